"""Equal keys hash equal wherever they lie; different ones meet no more often than chance; nothing else is read."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.cleaner.compaction import key_hash
from kafkalite.cleaner.compaction.key_hash import COLUMN_BYTES_MAX, KeyHash
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes

SEED = b"the same every time"
EDGES = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 200, COLUMN_BYTES_MAX - 1, COLUMN_BYTES_MAX, COLUMN_BYTES_MAX + 1, 5000]


def columns_of(keys: list[bytes], gap: bytes = b"") -> tuple[Bytes, Array, Array]:
    """The keys one behind the other, with `gap` before each and behind the last."""
    data = np.frombuffer(gap + b"".join(key + gap for key in keys), np.uint8)
    end = np.cumsum([len(gap) + len(key) for key in keys], dtype=np.int64)
    return data, end - np.array([len(key) for key in keys], np.int64), end


def hashes_of(hash_of: KeyHash, keys: list[bytes], gap: bytes = b"") -> list[int]:
    first, last = hash_of(*columns_of(keys, gap))
    return [(high << 64) | low for high, low in zip(first.tolist(), last.tolist(), strict=True)]


def plain_hash(key: bytes) -> int:
    """The same hash with Python's own numbers, read off the definition."""
    words = COLUMN_BYTES_MAX // 8
    material = hashlib.shake_256(SEED).digest(8 * 4 * (2 + 2 * words) + 64)
    if len(key) > COLUMN_BYTES_MAX:
        digest = hashlib.blake2b(key, digest_size=16, key=material[-64:]).digest()
        return int.from_bytes(digest[:8], "little") << 64 | int.from_bytes(digest[8:], "little")
    numbers = [len(key)]
    for position in range(0, len(key), 8):
        word = int.from_bytes(key[position : position + 8], "little")
        numbers += [word & 0xFFFFFFFF, word >> 32]
    result = 0
    for which in range(4):
        coefficients = [
            int.from_bytes(material[at : at + 8], "little") for at in range(8 * which, len(material) - 64, 32)
        ]
        total = coefficients[0] + sum(m * v for m, v in zip(coefficients[1:], numbers, strict=False))
        result = result << 32 | total % (1 << 64) >> 32
    return result


keys_of_many_lengths = st.lists(
    st.binary(max_size=40)
    | st.builds(lambda size, fill: bytes([fill]) * size, st.sampled_from(EDGES), st.integers(0, 255)),
    max_size=40,
)


@settings(deadline=None)
@given(keys_of_many_lengths, st.binary(max_size=9))
def test_it_is_the_hash_that_its_definition_says(keys: list[bytes], gap: bytes) -> None:
    assert hashes_of(KeyHash(SEED), keys, gap) == [plain_hash(key) for key in keys]


def test_equal_keys_hash_equal_in_every_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, among keys of the same length, among others, at a border of blocks, at the very end of the data."""
    hash_of = KeyHash()
    keys = [bytes([i]) * size for size in EDGES for i in range(3)]
    alone = [hashes_of(hash_of, [key])[0] for key in keys]
    assert hashes_of(hash_of, keys) == alone
    assert hashes_of(hash_of, keys[::-1], b"gap") == alone[::-1]
    monkeypatch.setattr(key_hash, "_GROUP_ROWS", 50)
    monkeypatch.setattr(key_hash, "_BLOCK_ROWS", 2)
    assert hashes_of(hash_of, keys * 3) == alone * 3


@pytest.mark.parametrize("size", EDGES)
def test_no_byte_outside_the_key_counts(size: int) -> None:
    hash_of = KeyHash(SEED)
    key = bytes(range(1, 1 + min(size, 200))).ljust(size, b"k")
    expected = hashes_of(hash_of, [key])
    for gap in (b"\0", b"\xff" * 8, b"another gap"):
        assert hashes_of(hash_of, [key], gap) == expected


@pytest.mark.parametrize("size", EDGES)
def test_every_byte_of_a_key_counts_and_so_does_its_length(size: int) -> None:
    key = bytes(size)
    others = [key[:i] + b"\1" + key[i + 1 :] for i in range(size)] + [bytes(size + 1), bytes(size + 8)]
    seen = hashes_of(KeyHash(SEED), [key, *others])
    assert len(set(seen)) == len(seen)


def test_the_hash_is_drawn_anew_each_time_and_the_same_for_the_same_seed() -> None:
    keys = [b"", b"key", b"key" * 10, b"k" * 1000]
    assert not set(hashes_of(KeyHash(), keys)) & set(hashes_of(KeyHash(), keys))
    assert hashes_of(KeyHash(SEED), keys) == hashes_of(KeyHash(SEED), keys)
    assert hashes_of(KeyHash(SEED), keys) != hashes_of(KeyHash(b"another"), keys)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 11), (5, 4)])
def test_a_key_outside_of_the_data_is_refused(start: int, end: int) -> None:
    with pytest.raises(AssertionError, match="outside"):
        KeyHash()(np.zeros(10, np.uint8), np.array([0, start]), np.array([10, end]))


def test_memory_that_is_read_only_or_lies_at_an_odd_address_will_do() -> None:
    keys = [b"some", b"keys of several", b"lengths", b"l" * 600]
    data, start, end = columns_of(keys)
    moved = np.frombuffer(b"x" + data.tobytes(), np.uint8)[1:]
    assert not moved.flags.writeable
    for at_hand in (data, moved, data.copy()):
        first, last = KeyHash(SEED)(at_hand, start, end)
        expected_first, expected_last = KeyHash(SEED)(data, start, end)
        assert (first == expected_first).all() and (last == expected_last).all()


PAIRS = {
    "neighbouring numbers": ((41).to_bytes(8, "big"), (42).to_bytes(8, "big")),
    "far numbers": (bytes(16), (1 << 127).to_bytes(16, "big")),
    "digits": (b"user-0000000001", b"user-1000000000"),
    "words exchanged": (b"12345678abcdefgh", b"abcdefgh12345678"),
    "an overlap": (b"aaaaaaaaaaa", b"aaaaaaaaaab"),
    "lengths": (bytes(8), bytes(9)),
    "lengths of less than a word": (b"", b"\0"),
    "lengths far apart": (b"\1", b"\1" * COLUMN_BYTES_MAX),
    "long": (b"l" * 600, b"l" * 601),
    "long and short": (b"l" * COLUMN_BYTES_MAX, b"l" * (COLUMN_BYTES_MAX + 1)),
}


def test_whatever_two_keys_they_meet_as_often_as_promised() -> None:
    """Of each 32-bit hash five bits: over many draws each pair meets in one of 32, within five deviations. And of all
    four two bits: in one of 256, which they would not if one hash told of another."""
    draws = 1000
    keys = [key for pair in PAIRS.values() for key in pair]
    hashes = np.empty((draws, len(keys), 4), np.uint32)
    columns = columns_of(keys)
    for draw in range(draws):
        high, low = KeyHash(draw.to_bytes(4, "big"))(*columns)
        hashes[draw] = np.stack((high >> 32, high & 0xFFFFFFFF, low >> 32, low & 0xFFFFFFFF), axis=1)
    differ = hashes[:, ::2] ^ hashes[:, 1::2]
    for part, bits in (("upper", differ >> 27), ("lower", differ & 31)):
        met = (bits == 0).sum(axis=0)
        spread = (draws / 32 * 31 / 32) ** 0.5
        wrong = np.abs(met - draws / 32) > 5 * spread
        assert not wrong.any(), f"{part} bits of {[name for name, row in zip(PAIRS, wrong, strict=True) if row.any()]}"
    met = (differ >> 30 == 0).all(axis=2).sum(axis=0)
    assert (np.abs(met - draws / 256) < 5 * (draws / 256) ** 0.5).all(), dict(zip(PAIRS, met, strict=True))


def test_a_quarter_of_a_million_keys_differ_also_in_either_half_of_the_hash() -> None:
    """In 64 bits of the 128 the chance that any two meet is 2e-9."""
    data = np.arange(500_000, dtype=np.uint64).view(np.uint8)
    start = np.arange(0, len(data), 16)
    for half in KeyHash()(data, start, start + 16):
        assert len(np.unique(half)) == len(start)
