"""XXH3 beside the vectors of the reference implementation (python-xxhash 4.1.0, xxHash 0.8.4)."""

from __future__ import annotations

import pytest

from kafkalite.common.xxh3 import xxh3_64

VECTORS = {
    0: 0x2D06800538D394C2,
    1: 0xC44BDFF4074EECDB,
    2: 0xD6645FC3051A9457,
    3: 0x5F4299FC161C9CBB,
    4: 0x60DAB036A58211F2,
    7: 0x0CD2084A62406B69,
    8: 0x3A1C2D7C85AF88F8,
    9: 0xE9612598145BB9DC,
    15: 0x55ECEDC2B87BB042,
    16: 0x8355E3A6F61770DB,
    17: 0x9EF341A99DE37328,
    31: 0x4F36DB8E4DF378FD,
    32: 0x3523581FE96E4C05,
    33: 0xE68C56BA88991E58,
    63: 0xAAA5F0FB98A36AE8,
    64: 0x6187EB9089B0ED55,
    65: 0x6928C76CE90422D0,
    96: 0x278A3E12EA046DFB,
    97: 0xE7220282DC4E14F4,
    127: 0x120B9787F8425F2F,
    128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A,
    143: 0x8222E885F060341D,
    144: 0x028E1E35FF4C0A01,
    159: 0x03FF9A757547FBC8,
    160: 0x5BEA9075EC9401B8,
    239: 0x972B14E3C46F214B,
    240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02,
    255: 0x074191BAF9C49567,
    256: 0x44F5D90DACDE463A,
    257: 0x88FC3F7934A6C9BE,
    320: 0x8A1836A6CC02F09E,
    1023: 0xD3D91D80AC495685,
    1024: 0xE5D78BAFA45B2AA5,
    1025: 0xE95C42288F28186E,
    1088: 0x1A848D807034C403,
    1089: 0xA51E35EC282CB1D8,
    2048: 0x25339063DB861586,
    2049: 0x6C9600C0E506E2AE,
    10000: 0x1CB3ABEE1C2FC1C4,
    25100: 0x9DF67A4632FB6557,
}
"""By length, the hash of the first bytes of 0, 1, 2 ... 250, 0, 1 ..."""
LETTERS = bytes(range(251)) * 100


@pytest.mark.parametrize("length", VECTORS)
def test_equals_the_reference_at_every_kind_of_length(length: int) -> None:
    assert xxh3_64(LETTERS[:length]) == VECTORS[length]


def test_takes_any_bytes_without_copying_them_first() -> None:
    assert xxh3_64(memoryview(bytearray(LETTERS[:1000]))) == xxh3_64(LETTERS[:1000])
