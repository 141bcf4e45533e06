"""Rows of varints against one varint after the other."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.record.batch import varint
from kafkalite.record.columns.varint_columns import encode_varint_rows, varint_sizes

INTEGERS = st.one_of(
    st.integers(-3, 300), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
)


@given(st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS), max_size=40))
def test_rows_are_their_varints_side_by_side(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[column] for row in rows], np.int64) for column in range(3)]
    data, offsets = encode_varint_rows(columns)
    found = [data[start:end].tobytes() for start, end in itertools.pairwise(offsets)]
    assert found == [b"".join(map(varint, row)) for row in rows]
    assert varint_sizes(columns[0]).tolist() == [len(varint(row[0])) for row in rows]
