"""Batches from columns against records that are encoded one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.producer.bulk_load import Rows, cut, encode, sizes_alone
from kafkalite.record.batch import HEADER_BYTES, NewRecord, encode_records

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DATA = st.one_of(st.none(), st.binary(max_size=200))
HEADER = st.tuples(st.text(max_size=5), DATA)
RECORDS = st.lists(
    st.tuples(DATA, DATA, st.lists(HEADER, max_size=3), st.integers(-1, 1 << 45)), min_size=1, max_size=150
)


def rows_of(records: list[tuple]) -> Rows:
    keys, values, headers, timestamps = zip(*records, strict=True)
    lists = [[{"key": key, "value": value} for key, value in each] or None for each in headers]
    return Rows(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(lists, HEADERS), np.array(timestamps)
    )


@given(RECORDS, st.integers(100, 3000))
def test_batches_hold_the_records_as_they_would_be_one_by_one(records: list[tuple], batch_bytes: int) -> None:
    rows = rows_of(records)
    sizes = sizes_alone(rows)
    starts = cut(sizes, batch_bytes)
    expected = [NewRecord(key, value, tuple(headers), time) for key, value, headers, time in records]
    for row, record in enumerate(expected):
        assert sizes[row] == HEADER_BYTES + len(encode_records([record], [0], record.timestamp))
    for run, start, end in zip(encode(rows, starts), starts, [*starts[1:], len(records)], strict=True):
        batch = expected[start:end]
        assert run.records == encode_records(batch, range(len(batch)), batch[0].timestamp)
        assert run[1:] == (len(batch), batch[0].timestamp, max(record.timestamp for record in batch))
        assert len(run.records) + HEADER_BYTES <= batch_bytes or len(batch) == 1


def test_columns_may_be_slices_and_may_be_missing() -> None:
    keys = pa.array([b"left out", b"a", None, b"c", b"left out"]).slice(1, 3)
    rows = Rows(keys, None, None, np.full(3, 7))
    (run,) = encode(rows, [0])
    expected = [NewRecord(key, None, (), 7) for key in (b"a", None, b"c")]
    assert run.records == encode_records(expected, range(3), 7)
    turned = rows.take(np.array([2, 0, 1]))
    assert turned.keys.to_pylist() == [b"c", b"a", None]
    headers = pa.array([None, [{"key": "h", "value": None}], None, [{"key": "é", "value": b""}] * 2], HEADERS).slice(1)
    (run,) = encode(Rows(None, keys, headers, np.full(3, 7)), [0])
    pairs = [(("h", None),), (), (("é", b""),) * 2]
    expected = [NewRecord(None, value, each, 7) for value, each in zip((b"a", None, b"c"), pairs, strict=True)]
    assert run.records == encode_records(expected, range(3), 7)


def test_no_rows_are_no_batches() -> None:
    rows = Rows(None, pa.array([], pa.binary()), None, np.empty(0, np.int64))
    assert cut(sizes_alone(rows), 1000) == []
    assert encode(rows, []) == []
