"""Chunks hold every whole batch once, end where the log ended, and say so when the files change under them."""

from __future__ import annotations

import itertools
import shutil
import struct
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError, Malformed, StorageError
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.split import Chunk, Loss, ReadReport, ReadSettings, RowFilter, Split
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.message_set import build_set

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")


def rows(count: int) -> list[NewRecord]:
    return [NewRecord(b"k%d" % i, b"v%d" % i, (), i) for i in range(count)]


def plan_of(topics: Any, chunk_bytes: int = 1 << 20, **options: str) -> list[Chunk]:
    return [chunk for split in splits_of(topics, chunk_bytes, **options) for chunk in split]


def splits_of(topics: Any, split_bytes: int = 1 << 20, **options: str) -> list[Split]:
    chosen = {"subscribe": "orders", "maxPartitionBytes": str(split_bytes)} | topics.options | options
    return plan(parse_options(chosen))


def offsets(chunks: list[Chunk], read_bytes: int = 1 << 20) -> list[int]:
    from kafkalite.reader.chunk_reader import COLUMNS, read_chunk
    from kafkalite.reader.planning.split import ReadSettings

    found = []
    for chunk in chunks:
        for batch in read_chunk(
            chunk, pa.schema([(name, column.arrow) for name, column in COLUMNS.items()]), ReadSettings(read_bytes)
        ):
            batch.validate(full=True)
            found += batch.column("offset").to_pylist()
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("index", [True, False], ids=["indexed", "without index"])
def test_every_record_is_in_one_chunk_whatever_its_size(topics: Any, index: bool, codec: int) -> None:
    end = topics.write(*[rows(i % 9 + 1) for i in range(60)], index=index, codec=codec)
    end = topics.write(*[rows(3)] * 60, base_offset=end, index=index, padding_bytes=80_000)
    for chunk_bytes in (1 << 20, 5_000, 1_000, 1):
        chunks = plan_of(topics, chunk_bytes)
        assert offsets(chunks) == list(range(end))
        assert offsets(chunks, read_bytes=700) == list(range(end))
        if index and chunk_bytes <= 5_000:
            assert len(chunks) >= 4
        for before, after in itertools.pairwise(chunks):
            assert after.position in (0, before.position + before.size_bytes)
    assert len(plan_of(topics, minPartitions="10")) >= (10 if index else 2)


def test_a_batch_may_be_larger_than_the_buffer(topics: Any) -> None:
    end = topics.write(rows(2), rows(500), [NewRecord(None, bytes(100_000))], rows(1))
    assert offsets(plan_of(topics), read_bytes=100) == list(range(end))


def test_a_starting_and_an_ending_offset_cut_inside_batches(topics: Any) -> None:
    end = topics.write(*[rows(7)] * 30)
    end = topics.write(*[rows(7)] * 30, base_offset=end)
    for start, stop in [(0, 1), (5, 9), (7, 14), (100, 400), (209, 211), (210, 217), (419, 420), (420, 420), (8, 8)]:
        chunks = plan_of(
            topics,
            500,
            startingOffsets=f'{{"orders": {{"0": {start}}}}}',
            endingOffsets=f'{{"orders": {{"0": {stop}}}}}',
        )
        assert offsets(chunks) == list(range(start, stop))
        assert sum(chunk.size_bytes for chunk in chunks) <= (stop - start) * 25 + 1_000
    assert end == 420
    assert offsets(plan_of(topics, startingOffsets="latest-0")) == []
    assert offsets(plan_of(topics, startingOffsets="latest-3")) == [417, 418, 419]
    assert offsets(plan_of(topics, startingOffsets="latest-500", endingOffsets="latest-417")) == [0, 1, 2]


def test_offsets_that_are_not_there_are_an_error_unless_loss_is_allowed(topics: Any) -> None:
    topics.write(rows(10), base_offset=100)
    gone = {"startingOffsets": '{"orders": {"0": 50}}', "endingOffsets": '{"orders": {"0": 105}}'}
    with pytest.raises(ConfigError, match=r"startingOffsets of orders-0 is 50, but offsets 100 to 110"):
        plan_of(topics, **gone)
    assert offsets(plan_of(topics, **gone, failOnDataLoss="false")) == list(range(100, 105))
    with pytest.raises(ConfigError, match=r"endingOffsets of orders-0 is 111"):
        plan_of(topics, endingOffsets='{"orders": {"0": 111}}')
    with pytest.raises(ConfigError, match=r"is 105, after its endingOffsets, 103"):
        plan_of(topics, startingOffsets='{"orders": {"0": 105}}', endingOffsets='{"orders": {"0": 103}}')
    with pytest.raises(ConfigError, match="does not name partition 1"):
        topics.write(rows(1), partition=1)
        plan_of(topics, startingOffsets='{"orders": {"0": 105}}')


def test_a_row_filter_leaves_records_out_by_offset_and_by_time(topics: Any) -> None:
    topics.write(rows(10), rows(10), rows(10))  # timestamps 0 to 9 in each batch
    chunks = plan_of(topics)
    for row_filter, expected in [
        (RowFilter(min_offset=8, max_offset=11), [8, 9, 10, 11]),
        (RowFilter(min_timestamp=8), [8, 9, 18, 19, 28, 29]),
        (RowFilter(max_timestamp=0, min_offset=1), [10, 20]),
        (RowFilter(min_offset=12, max_offset=11), []),
    ]:
        assert offsets([chunk._replace(row_filter=row_filter) for chunk in chunks]) == expected


def test_what_was_deleted_by_request_is_not_read(topics: Any) -> None:
    topics.write(*[rows(10)] * 3)
    (topics.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 13\n")
    assert offsets(plan_of(topics)) == list(range(13, 30))


@pytest.mark.parametrize("index", [True, False], ids=["indexed", "without index"])
def test_a_torn_tail_is_left_out(topics: Any, index: bool) -> None:
    topics.write(rows(10), rows(10), index=index)
    whole = topics.segment().read_bytes()
    batch = bytes(build_batch(rows(5), base_offset=20))
    wrong = batch[:-1] + b"!"
    for tail in (batch[:5], batch[:60], batch[:61], batch[:-1], bytes(300), batch[:-4] + bytes(4), wrong):
        topics.segment().write_bytes(whole + tail)
        assert offsets(plan_of(topics)) == list(range(20))
    topics.segment().write_bytes(whole + batch)
    assert offsets(plan_of(topics)) == list(range(25))


def test_what_is_written_after_planning_is_not_read(topics: Any) -> None:
    topics.write(rows(10), rows(10))
    chunks = plan_of(topics)
    with open(topics.segment(), "ab") as file:
        file.write(build_batch(rows(5), base_offset=20))
    assert offsets(chunks) == list(range(20))


def test_broken_batches_that_others_follow_are_not_passed_over(topics: Any) -> None:
    topics.write(rows(10), rows(10), rows(10), index=False)
    path = topics.segment()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data + build_batch(rows(3), base_offset=30))
    with pytest.raises(Malformed, match=r"the batch at offset 20 in .* is corrupt"):
        plan_of(topics)
    path.write_bytes(data[: len(data) // 3] + b"\1" * 100)
    with pytest.raises(Malformed, match="no v2 record batch at position"):
        plan_of(topics)
    topics.write(rows(10), base_offset=30)
    path.write_bytes(data)
    with pytest.raises(Malformed, match=r"00000\.log: the batch at position 342, offsets 20 to 29, is corrupt"):
        offsets(plan_of(topics))


def test_an_index_that_lies_is_not_believed(topics: Any) -> None:
    topics.write(*[rows(5)] * 20)
    index = topics.segment().with_suffix(".index")
    good = index.read_bytes()
    for position in (3, 100, 1_000, 1 << 30):
        for entry in (0, 7, 18):
            lie = bytearray(good)
            struct.pack_into(">i", lie, 8 * entry + 4, position)
            index.write_bytes(lie)
            assert offsets(plan_of(topics, 300)) == list(range(100))
    index.write_bytes(b"\xff" * 77)
    assert offsets(plan_of(topics, 300)) == list(range(100))


def test_segments_that_are_renamed_after_planning_are_read_as_they_were(topics: Any) -> None:
    end = topics.write(*[rows(5)] * 20)
    topics.write(rows(5), base_offset=end)
    chunks = plan_of(topics, 500)
    path = topics.segment()
    path.rename(f"{path}.deleted")
    assert offsets(chunks) == list(range(105))
    path.write_bytes(bytes(build_batch(rows(5), offset_deltas=[0, 20, 40, 60, 80])))
    assert offsets(chunks) == list(range(105)), "compaction has put another in its place"
    path.with_name(f"{path.name}.deleted").unlink()
    assert offsets(chunks) == [0, 20, 40, 60, 80, *range(100, 105)], "as a consumer that comes now"


def test_compaction_after_planning_loses_and_doubles_nothing_that_is_left(topics: Any) -> None:
    """Four segments become two, of which one is larger than any before."""
    end = 0
    for _ in range(5):
        end = topics.write(*[rows(2)] * 20, base_offset=end)
    chunks = plan_of(topics, 400)
    assert len(chunks) > 8
    for base in (40, 120):
        topics.segment(base).unlink()
        topics.segment(base).with_suffix(".index").unlink()
    topics.write(*[rows(2)] * 36, [NewRecord(None, b"v" * 200)], base_offset=0)  # offset 73 to 79 are gone
    topics.write(rows(1), base_offset=80)
    assert offsets(chunks) == [*range(73), 80, *range(160, 200)]
    assert offsets(plan_of(topics, startingOffsets='{"orders": {"0": 7}}')) == [*range(7, 73), 80, *range(160, 200)]


def test_a_last_segment_that_compaction_replaced_is_seen_though_it_begins_alike(topics: Any) -> None:
    topics.write(*[rows(2)] * 5)
    chunks = plan_of(topics)
    path = topics.segment()
    path.rename(f"{path}.deleted")
    topics.write(rows(2), rows(2), base_offset=0)
    topics.write(rows(1), base_offset=10)
    assert offsets(chunks) == list(range(10))
    path.with_name(f"{path.name}.deleted").unlink()
    assert offsets(chunks) == list(range(4)), "as a consumer that comes now"


def test_what_retention_or_recovery_takes_after_planning_is_named(topics: Any) -> None:
    end = 0
    for _ in range(3):
        end = topics.write(*[rows(2)] * 5, base_offset=end)
    chunks = plan_of(topics)
    topics.segment(0).unlink()
    with pytest.raises(StorageError, match=r"0\.log was deleted by retention after planning: offsets 0 to 9 of"):
        offsets(chunks)
    assert offsets(chunks[1:]) == list(range(10, 30))
    report = lost(chunks)
    assert [(one.first_offset, one.end_offset) for one in report] == [(0, 10)]
    last = topics.segment(20)
    last.write_bytes(bytes(build_batch(rows(3), base_offset=20)))
    with pytest.raises(StorageError, match="changed by compaction or recovery after planning: offsets 23 to 29"):
        offsets(chunks[2:])
    shutil.rmtree(last.parent)
    assert [(one.first_offset, one.end_offset) for one in lost(chunks)] == [(0, 10), (10, 20), (20, 30)]


def lost(chunks: list[Chunk]) -> list[Loss]:
    from kafkalite.reader.chunk_reader import count_rows

    report = ReadReport()
    rows = count_rows(chunks, ReadSettings(fail_on_data_loss=False), report)
    assert rows + sum((one.end_offset or 0) - (one.first_offset or 0) for one in report.lost) == 30
    return report.lost


def test_a_switch_of_segments_in_progress_is_an_error_not_a_hole(topics: Any) -> None:
    topics.write(rows(5))
    topics.segment().rename(f"{topics.segment()}.swap")
    with pytest.raises(StorageError, match="compaction is switching segments"):
        plan_of(topics)


def test_topics_are_chosen_by_name_pattern_and_assignment(topics: Any) -> None:
    for topic, partition in [("orders", 0), ("orders", 1), ("orders-eu", 0), ("bills", 2), ("__consumer_offsets", 0)]:
        topics.write(rows(1), topic=topic, partition=partition)
    topics.write(rows(1), topic="__cluster_metadata")
    for suffix in ("delete", "future", "stray"):
        (topics.path / f"orders-3.{'0' * 32}-{suffix}").mkdir()
    (topics.path / "orders-x").mkdir()

    def chosen(**options: str) -> list[tuple[str, int]]:
        splits = plan(parse_options(topics.options | options))
        return [(chunk.topic, chunk.partition) for split in splits for chunk in split]

    assert chosen(subscribe="orders") == [("orders", 0), ("orders", 1)]
    assert chosen(subscribe="orders-eu, orders") == [("orders", 0), ("orders", 1), ("orders-eu", 0)]
    assert chosen(subscribePattern="orders.+") == [("orders-eu", 0)]
    assert chosen(subscribePattern="order") == [("orders", 0), ("orders", 1), ("orders-eu", 0)], "searched, as in Spark"
    assert chosen(subscribePattern="^order$") == []
    assert chosen(subscribePattern=".*", failOnDataLoss="false") == [
        ("bills", 2), ("orders", 0), ("orders", 1), ("orders-eu", 0)
    ]  # fmt: skip
    assert chosen(assign='{"orders": [1], "bills": [2]}') == [("bills", 2), ("orders", 1)]
    assert chosen(subscribe="__consumer_offsets,__cluster_metadata") == [
        ("__cluster_metadata", 0), ("__consumer_offsets", 0)
    ]  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"topic 'order' not found in .*; topics there: __consumer_offsets, bills, orders"
    ):
        chosen(subscribe="order")
    with pytest.raises(ConfigError, match="'orders' has no partition 7"):
        chosen(assign='{"orders": [7]}')
    with pytest.raises(ConfigError, match=r"'bills' has partition 2 in .*, but no partition 0; name"):
        chosen(subscribe="bills")
    with pytest.raises(ConfigError, match="cannot read the data directory /nowhere"):
        plan(parse_options({"path": "/nowhere", "subscribe": "orders"}))


def test_an_empty_partition_has_nothing(topics: Any) -> None:
    topics.directory()
    assert plan_of(topics) == []
    topics.segment().write_bytes(b"")
    assert plan_of(topics) == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats_are_planned_like_batches(topics: Any, magic: int, codec: int) -> None:
    sets = [build_set([(4 * i + j, 5, b"k", b"v") for j in range(4)], magic, codec=codec) for i in range(30)]
    old = b"".join(sets)
    topics.segment().write_bytes(old)
    for split_bytes in (1 << 20, 300, 1):
        assert offsets(plan_of(topics, split_bytes)) == list(range(120))
    topics.segment().write_bytes(old + sets[0][:20])
    assert offsets(plan_of(topics)) == list(range(120)), "a torn tail"
    topics.segment().write_bytes(old + build_batch(rows(3), base_offset=120))
    assert offsets(plan_of(topics)) == list(range(123))
    topics.write(rows(5), base_offset=123)
    assert offsets(plan_of(topics, 300, maxRecordsPerPartition="7")) == list(range(128))
    assert offsets(plan_of(topics, startingOffsets='{"orders": {"0": 2}}', endingOffsets="latest-121")) == [
        2,
        3,
        4,
        5,
        6,
    ]
