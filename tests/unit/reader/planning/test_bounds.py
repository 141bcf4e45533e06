"""Bounds of a partition: which of several replicas is read and up to where, timestamps, what may be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.index.transaction_index import AbortedTxn, encode_entry
from kafkalite.log.state.producer_snapshots import SnapshotEntry, encode_snapshot
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import current_offsets, offset_ranges, plan
from kafkalite.record.batch import NewRecord, build_batch, parse_header, stamp
from kafkalite.record.transaction_marker import build_marker
from tests.support.segment_writer import Topics

BY_TIME = "startingOffsetsByTimestamp"


def rows(count: int, time: int = 0) -> list[NewRecord]:
    return [NewRecord(None, b"v", (), time) for _ in range(count)]


class Brokers:
    """Data directories of several brokers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def directory(self, name: str, broker_id: int | None) -> Topics:
        topics = Topics(self._path / name)
        topics.path.mkdir(exist_ok=True)
        if broker_id is not None:
            (topics.path / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\n")
        return topics

    def options(self, *names: str, **changes: str) -> Any:
        paths = ",".join(str(self._path / name) for name in names)
        return parse_options({"path": paths, "subscribe": "orders"} | changes)


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def checkpoint(topics: Topics, name: str, offset: int) -> None:
    (topics.path / name).write_text(f"0\n1\norders 0 {offset}\n")


def epochs(topics: Topics, *entries: tuple[int, int]) -> None:
    lines = "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
    (topics.directory() / "leader-epoch-checkpoint").write_text(f"0\n{len(entries)}\n{lines}")


def paths_read(options: Any) -> list[str]:
    return [Path(chunk.path).parents[1].name for split in plan(options) for chunk in split]


def test_a_topic_may_lie_in_several_directories_of_one_broker(brokers: Brokers) -> None:
    one, two = brokers.directory("one", 1), brokers.directory("two", 1)
    one.write(rows(3), partition=0)
    two.write(rows(4), partition=1)
    assert current_offsets(brokers.options("one", "two")) == {("orders", 0): (0, 3), ("orders", 1): (0, 4)}
    with pytest.raises(ConfigError, match=r"'orders' has partition 1 in .*two, but no partition 0"):
        plan(brokers.options("two"))


def test_of_a_copy_and_its_original_the_one_with_more_is_read_to_its_end(brokers: Brokers) -> None:
    original, copy = brokers.directory("original", 1), brokers.directory("copy", 1)
    copy.write(rows(5))
    original.write(rows(5), rows(2))
    for names in (("original", "copy"), ("copy", "original")):
        assert paths_read(brokers.options(*names)) == ["original"]
        assert current_offsets(brokers.options(*names)) == {("orders", 0): (0, 7)}
    copy.write(rows(5), rows(2))
    original.segment().unlink()
    original.write(rows(5), base_offset=2)  # retention went on there
    assert paths_read(brokers.options("original", "copy")) == ["copy"], "as far, and it begins earlier"


def test_replicas_are_read_up_to_what_surely_was_below_the_high_watermark(brokers: Brokers) -> None:
    leader, follower = brokers.directory("leader", 1), brokers.directory("follower", 2)
    leader.write(rows(5), rows(5))
    follower.write(rows(5), rows(2))
    both = brokers.options("leader", "follower")
    assert current_offsets(both) == {("orders", 0): (0, 7)}, "all replicas have it"
    assert paths_read(both) == ["leader"]
    checkpoint(leader, "replication-offset-checkpoint", 9)
    assert current_offsets(both) == {("orders", 0): (0, 9)}, "a follower that is behind was not in sync"
    assert current_offsets(brokers.options("leader")) == {("orders", 0): (0, 10)}, "nothing tells of another replica"
    assert current_offsets(brokers.options("follower")) == {("orders", 0): (0, 7)}


def test_a_later_leader_epoch_counts_for_more_than_a_longer_log(brokers: Brokers) -> None:
    former, leader = brokers.directory("former", 1), brokers.directory("leader", 2)
    former.write(rows(5), rows(5))
    leader.write(rows(5), rows(2))
    epochs(former, (0, 0))
    epochs(leader, (0, 0), (1, 5))
    assert paths_read(brokers.options("former", "leader")) == ["leader"]
    (leader.directory() / "leader-epoch-checkpoint").unlink()
    assert paths_read(brokers.options("former", "leader")) == ["former"], "nothing tells"


def test_topics_of_the_same_name_are_not_taken_for_replicas(brokers: Brokers) -> None:
    for name, topic_id in (("one", "ExrJZ2hqTx-eZ0Zz0Zz0ZQ"), ("two", "GxrJZ2hqTx-eZ0Zz0Zz0ZQ")):
        topics = brokers.directory(name, 1)
        topics.write(rows(1))
        (topics.directory() / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    with pytest.raises(ConfigError, match="orders-0 is of different topics of the same name"):
        plan(brokers.options("one", "two"))


def test_a_log_start_behind_the_end_leaves_nothing(brokers: Brokers) -> None:
    one = brokers.directory("one", 1)
    one.write(rows(5))
    checkpoint(one, "log-start-offset-checkpoint", 9)
    assert offset_ranges(brokers.options("one")) == {("orders", 0): (5, 5)}


def test_timestamps_mean_the_first_record_that_is_not_earlier(brokers: Brokers) -> None:
    one = brokers.directory("one", 1)
    end = one.write(rows(2, 10), rows(2, 30), rows(2, 20))
    one.write(rows(2, 40), base_offset=end)
    one.write(rows(3, 20), partition=1)
    late = {"startingOffsetsByTimestampStrategy": "latest"}

    def ranges(**changes: str) -> list[tuple[int, int]]:
        return list(offset_ranges(brokers.options("one", **changes)).values())

    assert ranges(startingTimestamp="15", endingTimestamp="35") == [(2, 6), (0, 3)]
    assert ranges(startingTimestamp="11", endingTimestamp="20") == [(2, 2), (0, 0)]
    with pytest.raises(ConfigError, match="startingTimestamp of orders-1 is 21, and no record has a timestamp so late"):
        ranges(startingTimestamp="21")
    assert ranges(startingTimestamp="21", **late) == [(2, 8), (3, 3)]
    by_time = '{"orders": {"0": 40, "*": 0}}'
    assert ranges(**{BY_TIME: by_time}) == [(6, 8), (0, 3)]
    with pytest.raises(ConfigError, match=rf"'{BY_TIME}' does not name partition 1 of topic 'orders'; add it, or give"):
        ranges(**{BY_TIME: '{"orders": {"0": 40}}'})
    with pytest.raises(ConfigError, match="names, though it is not read, partition 7 of topic 'orders'"):
        ranges(**{BY_TIME: '{"orders": {"7": 40, "*": 0}}'})
    checkpoint(one, "log-start-offset-checkpoint", 3)
    assert ranges(startingTimestamp="0") == [(3, 8), (0, 3)]


def test_a_timestamp_behind_the_last_stable_offset_is_not_found(brokers: Brokers) -> None:
    one = brokers.directory("one", 1)
    end = one.write(rows(2, 10))
    one.write(rows(2, 20), base_offset=end, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    committed = {"kafka.isolation.level": "read_committed"}
    assert offset_ranges(brokers.options("one", endingTimestamp="15")) == {("orders", 0): (0, 2)}
    assert offset_ranges(brokers.options("one", startingTimestamp="15")) == {("orders", 0): (2, 4)}
    with pytest.raises(ConfigError, match="no record has a timestamp so late"):
        offset_ranges(brokers.options("one", startingTimestamp="15", **committed))


def test_without_fail_on_data_loss_what_is_left_is_read(brokers: Brokers) -> None:
    brokers.directory("one", 1).write(rows(10), base_offset=100)
    for start, end, found in [
        (50, 105, (100, 105)),
        (105, 200, (105, 110)),
        (0, 50, (100, 100)),
        (120, 130, (110, 110)),
    ]:
        positions = {
            "startingOffsets": f'{{"orders": {{"0": {start}}}}}',
            "endingOffsets": f'{{"orders": {{"0": {end}}}}}',
        }
        assert offset_ranges(brokers.options("one", failOnDataLoss="false", **positions)) == {("orders", 0): found}
        with pytest.raises(ConfigError, match="but offsets 100 to 110 are there"):
            offset_ranges(brokers.options("one", **positions))


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
    from kafkalite.reader.chunk_reader import COLUMNS, read_chunk

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
