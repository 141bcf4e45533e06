"""Where records begin: seeds and lanes against the plain loop, with lengths, times and contents of every kind."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.record.batch import NewRecord, append_varint, encode_records
from kafkalite.record.columns import record_starts
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.record_starts import find_records_of
from kafkalite.record.columns.varint_columns import Corrupt, find_records


def lay(bodies: list[bytes]) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Array, Array]:
    ends = np.cumsum([len(body) for body in bodies])
    return np.frombuffer(b"".join(bodies), np.uint8), ends - np.diff(ends, prepend=0), ends


def body(count: int, size: int, random: Random, *, filler: bytes | None = None) -> bytes:
    records = []
    for _ in range(count):
        value = random.randbytes(random.randint(0, size)) if filler is None else filler * random.randint(0, size)
        records.append(NewRecord(b"%d" % random.randrange(1000), value, (), random.choice((0, 5, -70, 10_000))))
    return bytes(encode_records(records, range(count), 0))


def check(bodies: list[bytes], counts: list[int]) -> None:
    data, start, end = lay(bodies)
    count = np.array(counts)
    begin, stop = find_records_of(data, start, end, count, np.ones(len(counts), np.bool_))
    expected = find_records(data, start, count)
    assert (begin == expected).all()
    ends = np.append(expected[1:], 0)
    ends[np.cumsum(count) - 1] = end
    assert (stop == ends).all()


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.sampled_from((1, 2, 63, 127, 128, 129, 200, 700)), min_size=1, max_size=6),
    size=st.sampled_from((0, 3, 40, 200, 2000)),
    filler=st.sampled_from((None, None, b"\0", b"\x00\x00\x02", b"\x18\0\0\2", b"text ")),
    seed=st.integers(0, 10_000),
)
def test_any_batches(counts: list[int], size: int, filler: bytes | None, seed: int) -> None:
    random = Random(seed)
    check([body(count, size, random, filler=filler) for count in counts], counts)


def test_many_lanes_of_different_length() -> None:
    random = Random(1)
    counts = [random.choice((1, 5, 40, 100)) for _ in range(300)]
    check([body(count, 60, random) for count in counts], counts)


def test_records_that_two_bytes_do_not_tell_the_length_of() -> None:
    random = Random(2)
    check([body(20, 30_000, random) for _ in range(150)], [20] * 150)


def test_a_record_that_holds_records_leads_no_seed_astray() -> None:
    """The value of each record is a stretch of records whose numbers go up as if they were the batch's."""
    inner = bytes(encode_records([NewRecord(b"k", b"v" * 20)] * 150, range(150), -1))
    large = bytes(encode_records([NewRecord(b"k", inner[: 40 * n % 900]) for n in range(200)], range(200), -1))
    check([large, body(300, 50, Random(3))], [200, 300])


def test_seeds_are_sown_where_batches_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the rest of this file would be about nothing."""
    widths: list[int] = []
    monkeypatch.setattr(
        record_starts,
        "find_records",
        lambda data, start, count: (widths.append(len(start)), find_records(data, start, count))[1],
    )
    check([body(3000, 120, Random(4)) for _ in range(4)], [3000] * 4)
    assert widths[0] > 4 * 3000 / 64 * 0.9


@pytest.mark.parametrize("count", [3, 300])
def test_records_that_do_not_end_where_their_batch_does(count: int) -> None:
    good, bad = body(count, 50, Random(5)), bytearray(body(count, 50, Random(6)))
    bad[0] += 2
    data, start, end = lay([good, bytes(bad), good])
    with pytest.raises(Corrupt) as refused:
        find_records_of(data, start, end, np.array([count] * 3), np.ones(3, np.bool_))
    assert refused.value.row == 1


def test_a_length_that_leads_backwards() -> None:
    out = bytearray(b"\x0e" + bytes(7))
    append_varint(out, -8)
    data, start, end = lay([bytes(out)])
    with pytest.raises(Corrupt):
        find_records_of(data, start, end, np.array([3]), np.ones(1, np.bool_))
