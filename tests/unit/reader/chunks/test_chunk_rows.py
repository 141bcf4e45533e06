"""A chunk gives the rows that the plain readers give, whatever its formats, columns, bounds and memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.reader.planning.split import HIGHEST, LOWEST, ReadReport, ReadSettings, RowFilter
from kafkalite.record.batch import NewRecord, build_batch, parse_header, stamp_log_append_time
from kafkalite.record.message_set import build_message, build_set, entry_header
from tests.support.plain_rows import FAR, Row, chunk_of, plain_rows

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

SIZES = st.sampled_from([0, 1, 5, 63, 64, 70, 200, 8191, 8192])
blobs = st.none() | SIZES.map(bytes) | st.binary(max_size=5)
some_headers = st.lists(st.tuples(st.sampled_from(["", "a", "trace-id", "é" * 40]), blobs), max_size=3).map(tuple)
times = st.sampled_from([0, 5, -1]) | st.integers(0, 1 << 50)
records = st.builds(NewRecord, blobs, blobs, st.just(()) | some_headers, times)


@st.composite
def old_entries(draw: st.DrawFn, offset: int) -> list[bytes]:
    """Messages and wrappers of v0 or v1 from `offset` on."""
    magic = draw(st.sampled_from([0, 1]))
    kind = draw(st.sampled_from([0, 1]))
    codec = draw(st.sampled_from([0, 0, 1, 2, 3]))
    steps = draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=8))
    offsets = [offset + step for step in itertools.accumulate(steps)]
    rows = [(at, draw(times) if magic else -1, draw(blobs), draw(blobs)) for at in offsets]
    if codec:
        return [build_set(rows, magic, codec=codec, timestamp_type=kind)]
    return [build_set([row], magic, timestamp_type=kind) for row in rows]


@st.composite
def segments(draw: st.DrawFn) -> list[bytes]:
    """Batches and entries as they may follow one another in a segment: old formats first."""
    out: list[bytes] = []
    offset = draw(st.sampled_from([0, 7, 1 << 40]))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        entries = draw(old_entries(offset))
        out += entries
        offset = entry_header(entries[-1]).base_offset + 1
    dense_only = draw(st.booleans())
    for _ in range(draw(st.integers(0 if out else 1, 8))):
        rows = draw(st.lists(records, max_size=12))
        steps = draw(st.lists(st.sampled_from([1] if dense_only else [1, 1, 1, 100, 70_000]), min_size=len(rows),
                              max_size=len(rows)))  # fmt: skip
        last = max(0, sum(steps) - 1)
        batch = build_batch(
            rows, base_offset=offset, codec=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
            control=draw(st.integers(0, 9)) == 0, last_offset_delta=last,
            offset_deltas=[at - 1 for at in itertools.accumulate(steps)],
        )  # fmt: skip
        if draw(st.integers(0, 3)) == 0:
            stamp_log_append_time(batch, draw(times))
        out.append(bytes(batch))
        offset += last + 1
    return out


@st.composite
def filters(draw: st.DrawFn, parts: list[bytes]) -> RowFilter:
    rows = plain_rows(parts) or [Row(0, 0, 0, None, None, ())]
    offsets = [row.offset for row in rows]
    stamps = [row.timestamp for row in rows]
    some_offset = st.sampled_from(offsets) | st.integers(min(offsets) - 1, max(offsets) + 1)
    some_time = st.sampled_from(stamps) | st.integers(min(stamps) - 1, max(stamps) + 1)
    return RowFilter(
        draw(st.just(LOWEST) | some_offset), draw(st.just(HIGHEST) | some_offset),
        draw(st.just(LOWEST) | some_time), draw(st.just(HIGHEST) | some_time),
    )  # fmt: skip


def passes(bounds: RowFilter) -> Any:
    return lambda row: (
        bounds.min_offset <= row.offset <= bounds.max_offset
        and bounds.min_timestamp <= row.timestamp <= bounds.max_timestamp
    )


def write(parts: list[bytes]) -> Path:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".log", delete=False) as file:
        file.write(b"".join(parts))
    return Path(file.name)


def schema_of(*names: str) -> Any:
    from kafkalite.reader.chunk_reader import COLUMNS

    return pa.schema([(name, COLUMNS[name].arrow) for name in names or COLUMNS])


def tuples(batches: list[Any]) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def as_shown(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    headers = [{"key": key, "value": value} for key, value in row.headers] or None
    whole = {
        "key": row.key, "value": row.value, "topic": "orders", "partition": 0, "offset": row.offset,
        "timestamp": row.timestamp, "timestampType": row.timestamp_type, "headers": headers,
    }  # fmt: skip
    return {name: whole[name] for name in names}


def read(chunks: list[Any], names: tuple[str, ...], settings: ReadSettings, report: ReadReport) -> list[dict[str, Any]]:
    """Rows with times in milliseconds, whatever Python's datetime can hold."""
    from kafkalite.reader.chunk_reader import read_split

    found = []
    for batch in read_split(chunks, schema_of(*names), settings, report):
        if "timestamp" in names:
            at = names.index("timestamp")
            micros = batch.column(at).cast(pa.int64())
            batch = batch.set_column(at, pa.field("timestamp", pa.int64()), pa.compute.divide(micros, 1000))
        found.append(batch)
    return tuples(found)


ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_the_plain_readers(data: st.DataObject) -> None:
    import pyarrow.compute  # noqa: F401

    from kafkalite.reader.chunk_reader import count_rows

    parts = data.draw(segments())
    names = tuple(data.draw(st.just(ALL) | st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True)))
    bounds = data.draw(st.just(RowFilter()) | filters(parts))
    how = ReadSettings(data.draw(st.sampled_from([1, 64 << 20])))
    path = write(parts)
    try:
        chunk = chunk_of(path, row_filter=bounds)
        report = ReadReport()
        expected = plain_rows(parts, passes(bounds))
        assert read([chunk], names, how, report) == [as_shown(row, names) for row in expected]
        assert report.rows == len(expected)
        assert count_rows([chunk], how) == len(expected)
        assert not report.lost
    finally:
        path.unlink()


def test_a_chunk_in_the_middle_of_a_file_and_bounds_inside_batches(tmp_path: Path) -> None:
    parts = [bytes(build_batch([NewRecord(b"k", b"v")] * 10, base_offset=10 * i)) for i in range(9)]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    start, size = len(parts[0]) * 3, len(parts[0]) * 4
    chunk = chunk_of(path, position=start, size_bytes=size, head=parts[3][:61], start_offset=34, end_offset=67)
    found = read([chunk], ("offset",), ReadSettings(), ReadReport())
    assert [row["offset"] for row in found] == list(range(34, 67))


def test_records_of_aborted_transactions_are_left_out(tmp_path: Path) -> None:
    parts = [
        bytes(build_batch([NewRecord(b"k", b"v")] * 2, base_offset=2 * i, producer_id=i % 2, producer_epoch=0,
                          base_sequence=0, transactional=True))
        for i in range(6)
    ]  # fmt: skip
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(parts))
    chunk = chunk_of(path, aborted=(AbortedTxn(1, 2, 10, 0),))
    for names in (("offset",), ("offset", "value")):
        found = read([chunk], names, ReadSettings(), ReadReport())
        assert [row["offset"] for row in found] == [0, 1, 4, 5, 8, 9, 10, 11]


def test_messages_of_both_old_magics_in_one_wrapper(tmp_path: Path) -> None:
    from kafkalite.record.compression import GZIP, compress

    inner = build_message(0, b"a", b"x", magic=0) + build_message(1, b"b", None, 77, magic=1)
    wrapper = build_message(41, None, compress(GZIP, inner), 99, magic=1, attributes=GZIP | 8)
    path = tmp_path / "0.log"
    path.write_bytes(wrapper)
    found = read([chunk_of(path)], ALL, ReadSettings(), ReadReport())
    assert found == [as_shown(row, ALL) for row in plain_rows([wrapper])]
    assert [(row["offset"], row["timestamp"]) for row in found] == [(40, -1), (41, 99)]


def test_a_batch_with_gaps_is_counted_without_its_records(tmp_path: Path) -> None:
    from kafkalite.reader.chunk_reader import count_rows

    batch = bytes(build_batch([NewRecord(b"k", bytes(1000))] * 40, offset_deltas=range(0, 80, 2), last_offset_delta=79))
    path = tmp_path / "0.log"
    path.write_bytes(batch)
    report = ReadReport()
    assert count_rows([chunk_of(path)], report=report) == 40
    assert (report.batches_seen, report.batches_read) == (1, 0)
    report = ReadReport()
    assert count_rows([chunk_of(path, start_offset=41)], report=report) == 19
    assert report.batches_read == 1


def test_header_facts_cost_headers_alone(tmp_path: Path) -> None:
    """And bounds that keep a hundredth cost little more than that hundredth."""
    from kafkalite.reader.chunk_reader import count_rows

    rows = [NewRecord(b"key", bytes(500), (), 0)] * 50
    parts = []
    for i in range(400):
        batch = build_batch([row._replace(timestamp=i) for row in rows], base_offset=50 * i)
        parts.append(bytes(batch))
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(parts))
    size = path.stat().st_size
    report = ReadReport()
    assert count_rows([chunk_of(path)], report=report) == 20_000
    assert report.bytes_read < size * 0.01
    assert (report.batches_seen, report.batches_read, report.rows) == (400, 0, 20_000)
    report = ReadReport()
    assert [row["offset"] for row in read([chunk_of(path)], ("offset",), ReadSettings(), report)] == list(range(20_000))
    assert report.bytes_read < size * 0.01
    for bounds in (RowFilter(min_timestamp=396), RowFilter(min_offset=19_800), RowFilter(max_offset=199)):
        report = ReadReport()
        found = read([chunk_of(path, row_filter=bounds)], ("value",), ReadSettings(), report)
        assert len(found) == 200
        assert report.bytes_read < size * 0.03
        assert report.batches_read == 4


def test_small_chunks_make_one_batch_and_large_ones_several(tmp_path: Path) -> None:
    from kafkalite.reader.chunk_reader import read_split

    chunks = []
    for i in range(50):
        path = tmp_path / f"{i}.log"
        path.write_bytes(bytes(build_batch([NewRecord(b"k", b"v")] * 10, base_offset=10 * i)))
        chunks.append(chunk_of(path))
    batches = list(read_split(chunks, schema_of("offset", "value")))
    assert [batch.num_rows for batch in batches] == [500]
    path = tmp_path / "large.log"
    path.write_bytes(bytes(build_batch([NewRecord(b"k", bytes(10_000), (("h", bytes(9_000)),))] * 100)))
    how = ReadSettings(batch_bytes=1 << 20)
    batches = list(read_split([chunk_of(path)], schema_of(*ALL), how))
    assert sum(batch.num_rows for batch in batches) == 100
    assert 5 <= len(batches) <= 12
    assert max(batch.nbytes for batch in batches) <= how.batch_bytes


def test_nothing_wanted_is_rows_without_columns(tmp_path: Path) -> None:
    from kafkalite.reader.chunk_reader import read_split

    path = tmp_path / "0.log"
    path.write_bytes(bytes(build_batch([NewRecord(b"k", b"v")] * 10)))
    (batch,) = read_split([chunk_of(path)], pa.schema([]))
    assert (batch.num_rows, batch.num_columns) == (10, 0)
    assert list(read_split([chunk_of(path, start_offset=10)], pa.schema([]))) == []
    assert parse_header(path.read_bytes()).record_count == 10
    assert FAR > 10
