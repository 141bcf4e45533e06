"""Read committed without a broker: no aborted record, nothing from the oldest open transaction on, whatever is left to
tell of them: snapshot, .txnindex, or the log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.index.transaction_index import AbortedTxn, encode_entry
from kafkalite.log.state.producer_snapshots import SnapshotEntry, encode_snapshot
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.record.batch import NewRecord, build_batch, parse_header, stamp
from kafkalite.record.transaction_marker import build_marker

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")


class Log:
    """One partition, written by several transactional producers."""

    def __init__(self, topics: Any) -> None:
        self.topics = topics
        self.base_offset = self.offset = 0
        self.data = bytearray()

    def data_of(self, producer_id: int, count: int = 2, codec: int = 0) -> None:
        records = [NewRecord(None, b"%d" % producer_id, (), 1)] * count
        how = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
        self._append(build_batch(records, transactional=producer_id >= 0, codec=codec, **how))

    def end(self, producer_id: int, *, commit: bool) -> int:
        self._append(build_marker(producer_id, 0, 0, 1, commit=commit))
        return self.offset - 1

    def _append(self, batch: bytearray) -> None:
        stamp(batch, self.offset, 0)
        self.data += batch
        self.offset = parse_header(batch).last_offset + 1
        self.topics.segment(self.base_offset).write_bytes(self.data)

    def roll(self) -> None:
        self.base_offset, self.data = self.offset, bytearray()
        self.topics.segment(self.base_offset).write_bytes(b"")

    def index(self, *aborted: AbortedTxn) -> None:
        path: Path = self.topics.segment(self.base_offset).with_suffix(".txnindex")
        path.write_bytes(b"".join(map(encode_entry, aborted)))

    def snapshot(self, **open_since: int) -> None:
        entries = [SnapshotEntry(int(name[1:]), 0, 0, 0, 0, 1, 0, first) for name, first in open_since.items()]
        self.topics.segment(self.offset).with_suffix(".snapshot").write_bytes(encode_snapshot(entries))


@pytest.fixture
def log(topics: Any) -> Log:
    return Log(topics)


def read(topics: Any, chunk_bytes: int = 1 << 20, **options: str) -> list[int]:
    """The offsets that are read committed."""
    from kafkalite.reader.arrow import COLUMNS
    from kafkalite.reader.chunk_reader import read_chunk

    chosen = {"subscribe": "orders", "kafka.isolation.level": "read_committed"} | topics.options | options
    schema = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
    found: list[int] = []
    splits = plan(parse_options(chosen | {"maxPartitionBytes": str(chunk_bytes)}))
    for chunk in [chunk for split in splits for chunk in split]:
        for batch in read_chunk(chunk, schema):
            batch.validate(full=True)
            found += batch.column("offset").to_pylist()
    return found


@pytest.mark.parametrize("codec", [0, 2])
def test_an_aborted_transaction_is_left_out_and_its_neighbours_are_not(topics: Any, log: Log, codec: int) -> None:
    log.data_of(7, codec=codec)  # 0, 1
    log.data_of(8, codec=codec)  # 2, 3
    log.data_of(-1, codec=codec)  # 4, 5
    log.data_of(7, codec=codec)  # 6, 7
    log.end(7, commit=False)  # 8
    log.data_of(7, codec=codec)  # 9, 10
    log.end(7, commit=True)  # 11
    log.end(8, commit=True)  # 12
    for chunk_bytes in (1 << 20, 100):
        assert read(topics, chunk_bytes) == [2, 3, 4, 5, 9, 10]
    assert read(topics, **{"kafka.isolation.level": "read_uncommitted"}) == [*range(8), 9, 10]
    offsets = {"startingOffsets": '{"orders": {"0": 7}}', "endingOffsets": '{"orders": {"0": 10}}'}
    assert read(topics, **offsets) == [9], "a transaction that began before the first offset"
    offsets = {"startingOffsets": '{"orders": {"0": 1}}', "endingOffsets": '{"orders": {"0": 7}}'}
    assert read(topics, **offsets) == [2, 3, 4, 5], "a transaction that was aborted behind the last offset"


def test_the_oldest_open_transaction_is_the_end(topics: Any, log: Log) -> None:
    log.data_of(-1)  # 0, 1
    log.data_of(7)  # 2, 3
    log.data_of(8)  # 4, 5
    log.end(8, commit=True)  # 6
    assert read(topics) == [0, 1]
    with pytest.raises(ConfigError, match="but offsets 0 to 2 are there"):
        read(topics, endingOffsets='{"orders": {"0": 5}}')
    log.end(7, commit=True)
    assert read(topics) == [0, 1, 2, 3, 4, 5]


def test_a_snapshot_spares_the_segments_before_it(topics: Any, log: Log) -> None:
    log.data_of(7)  # 0, 1
    log.data_of(8)  # 2, 3
    log.index(AbortedTxn(9, 2, 3, 0))  # not in the log: the index is what counts before the snapshot
    log.roll()
    log.snapshot(p7=0)
    log.data_of(-1)  # 4, 5
    assert read(topics) == [], "open since before the snapshot"
    marker = log.end(7, commit=False)  # 6
    assert read(topics) == [2, 3, 4, 5], "the marker itself tells"
    log.index(AbortedTxn(7, 0, marker, 0))
    assert read(topics) == [2, 3, 4, 5], "and so does the index"


def test_a_broken_snapshot_is_not_believed(topics: Any, log: Log) -> None:
    log.data_of(7)
    log.roll()
    topics.segment(log.offset).with_suffix(".snapshot").write_bytes(b"torn")
    log.data_of(-1)
    assert read(topics) == []
    log.end(7, commit=True)
    assert read(topics) == [0, 1, 2, 3]


def test_an_isolation_level_that_there_is_not_is_refused(topics: Any, log: Log) -> None:
    with pytest.raises(ConfigError, match="read_uncommitted or read_committed"):
        read(topics, **{"kafka.isolation.level": "serializable"})
