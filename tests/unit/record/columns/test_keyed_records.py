"""Fields cut out of a buffer, and compared with the field before, against plain slices."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalite.record.columns.keyed_records import cut, differ, first_two_bytes, last_four_bytes

fields = st.lists(
    st.one_of(st.binary(max_size=12), st.binary(max_size=2).map(lambda tail: b"a long beginning, " + tail)), min_size=1
)


def placed(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    ends = np.cumsum([len(row) for row in rows])
    return np.frombuffer(b"".join(rows) or b"-", np.uint8), ends - [len(row) for row in rows], ends


@given(fields, st.lists(st.booleans(), min_size=1))
def test_fields_are_cut_as_slices(rows: list[bytes], nulls: list[bool]) -> None:
    data, start, end = placed(rows)
    is_null = np.resize(nulls, len(rows))
    expected = [None if null else row for row, null in zip(rows, is_null, strict=True)]
    assert cut(data, start, np.where(is_null, start - 1, end)) == expected


def test_large_fields_and_fields_of_many_sizes_are_cut_too() -> None:
    for rows in ([b"x" * 5_000, b"y"], [b"z" * size for size in range(100)]):
        assert cut(*placed(rows)) == rows


@given(fields)
@example([b"a long beginning, ", bytes(8), bytes(8)])
def test_a_field_that_differs_is_seen(rows: list[bytes]) -> None:
    changes = differ(*placed(rows)).tolist()
    assert len(changes) == len(rows) - 1
    for row, before, change in zip(rows[1:], rows, changes, strict=False):
        assert change or row == before
        if row == before and min(map(len, rows)) >= 8:
            assert not change


def test_first_and_last_bytes_are_numbers() -> None:
    data, start, end = placed([b"\0\1abc\xff\xff\xff\xfe", b"\1\0\0\0"])
    assert first_two_bytes(data, start).tolist() == [1, 256]
    assert last_four_bytes(data, end) == [-2, 1 << 24]
