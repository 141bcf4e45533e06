"""Splits hold every wanted record once, are about equal whatever the skew, and are few for many small segments."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import OffsetRange, current_offsets, offset_ranges, plan, plan_ranges
from kafkalite.reader.planning.read_options import Comparison, narrow
from kafkalite.reader.planning.split import Split
from kafkalite.record.batch import NewRecord

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")


def rows(count: int, size: int = 10, time: int = 0) -> list[NewRecord]:
    return [NewRecord(None, b"v" * size, (), time) for _ in range(count)]


def read(splits: list[Split]) -> list[tuple[str, int, int]]:
    from kafkalite.reader.chunk_reader import COLUMNS, read_split

    schema = pa.schema([(name, COLUMNS[name].arrow) for name in ("topic", "partition", "offset", "value")])
    found = []
    for split in splits:
        for batch in read_split(split, schema):
            found += [(row["topic"], row["partition"], row["offset"]) for row in batch.to_pylist()]
    return found


def options(topics: Any, **changes: str) -> Any:
    return parse_options({"subscribe": "orders"} | topics.options | changes)


def sizes(splits: list[Split]) -> list[int]:
    return [sum(chunk.size_bytes for chunk in split) for split in splits]


def test_work_is_equal_under_skew(topics: Any) -> None:
    topics.write(*[rows(10, 100)] * 500)
    for partition in range(1, 21):
        topics.write(*[rows(10, 100)] * 5, partition=partition)
    splits = plan(options(topics, maxPartitionBytes="30000"))
    assert read(splits) == [("orders", 0, at) for at in range(5000)] + [
        ("orders", partition, at) for partition in range(1, 21) for at in range(50)
    ]
    work = sizes(splits)
    assert max(work) <= 30_000 * 1.1
    assert len(work) <= sum(work) / 30_000 * 1.3 + 1, "no split is nearly empty"
    assert max(len({chunk.partition for chunk in split}) for split in splits) >= 4, "small partitions share one"
    assert not any({0, 1} <= {chunk.partition for chunk in split} for split in splits[:-4])


def test_many_small_segments_are_few_splits_and_are_not_opened(topics: Any) -> None:
    end = 0
    for _ in range(200):
        end = topics.write(rows(3), base_offset=end)
    splits = plan(options(topics))
    assert [len(split) for split in splits] == [200]
    assert all(chunk.head == b"" for chunk in splits[0][:-1])
    assert read(splits) == [("orders", 0, at) for at in range(600)]
    assert 9 <= len(plan(options(topics, minPartitions="10"))) <= 14


def test_a_small_read_is_divided_among_the_tasks_that_run_at_a_time(topics: Any) -> None:
    topics.write(*[rows(5, 100_000)] * 64)
    assert len(plan(options(topics))) == 1
    assert len(plan(options(topics), parallelism=2)) == 6
    assert len(plan(options(topics), parallelism=100)) == 8, "not below 4 MiB"


@pytest.mark.parametrize("index", [True, False], ids=["indexed", "without index"])
def test_no_split_has_more_offsets_than_asked_for(topics: Any, index: bool) -> None:
    end = topics.write(*[rows(7)] * 30, index=index)
    end = topics.write(rows(100), rows(1), base_offset=end + 40, index=index)  # behind a gap
    topics.write(rows(9), base_offset=end, index=index)
    topics.write(rows(5), partition=1, index=index)
    whole = plan(options(topics))
    for most in (1, 3, 7, 20, 64, 1000):
        splits = plan(options(topics, maxRecordsPerPartition=str(most)))
        assert read(splits) == read(whole)
        assert all(len(read([split])) <= most for split in splits)
    assert len(plan(options(topics, maxRecordsPerPartition="20"))) <= 365 // 20 + 2


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "reads"), [(5, 25), pytest.param(6, 300, marks=pytest.mark.long)])
def test_any_bounds_and_sizes_give_each_wanted_record_once(topics: Any, seed: int, reads: int) -> None:
    rng = random.Random(seed)
    end = 0
    for segment in range(6):
        batches = [rows(rng.randrange(1, 9), rng.randrange(60)) for _ in range(rng.randrange(1, 30))]
        end = topics.write(*batches, base_offset=end, index=segment != 3, codec=segment % 3)
    for _ in range(reads):
        start, stop = sorted((rng.randrange(end + 1), rng.randrange(end + 1)))
        changes = {
            "startingOffsets": f'{{"orders": {{"0": {start}}}}}',
            "endingOffsets": f'{{"orders": {{"0": {stop}}}}}',
            "maxPartitionBytes": str(rng.choice([1, 100, 1_000, 5_000, 1 << 20])),
            "minPartitions": str(rng.choice([1, 2, 7, 64])),
        }
        if rng.random() < 0.5:
            changes["maxRecordsPerPartition"] = str(rng.choice([1, 5, 50, 500]))
        assert read(plan(options(topics, **changes))) == [("orders", 0, at) for at in range(start, stop)], changes


def test_a_filter_that_keeps_a_part_reads_that_part(topics: Any) -> None:
    end, number = 0, 0
    for _ in range(10):
        batches = [rows(10, 100, time=1_000 + number + i) for i in range(100)]
        base, end = end, topics.write(*batches, base_offset=end)
        entries = [struct.pack(">qi", 1_000 + number + i, 10 * i + 9) for i in range(100)]
        topics.segment(base).with_suffix(".timeindex").write_bytes(b"".join(entries))
        number += 100
    whole = sum(sizes(plan(options(topics))))
    for filters, wanted in [
        ([Comparison("offset", ">=", 5_500), Comparison("offset", "<", 5_600)], range(5_500, 5_600)),
        ([Comparison("timestamp", ">=", 1_990_000)], range(9_900, 10_000)),
        ([Comparison("timestamp", ">", 1_989_500), Comparison("offset", "<", 9_950)], range(9_900, 9_950)),
        ([Comparison("partition", "=", 0), Comparison("offset", "=", 77)], range(77, 78)),
    ]:
        splits = plan(narrow(options(topics), filters))
        assert read(splits) == [("orders", 0, at) for at in wanted]
        assert sum(sizes(splits)) <= whole * 0.012
    for none in (Comparison("partition", ">", 0), Comparison("topic", "=", "bills"), Comparison("offset", "<", 0)):
        assert plan(narrow(options(topics), [none])) == []


def test_the_offsets_that_are_there_and_that_are_asked_for(topics: Any) -> None:
    topics.write(*[rows(10, time=5)] * 3, base_offset=100)
    topics.write(rows(4, time=6), partition=1)
    chosen = options(topics, startingOffsets="latest-7", endingTimestamp="6")
    assert current_offsets(chosen) == {("orders", 0): (100, 130), ("orders", 1): (0, 4)}
    with pytest.raises(ConfigError, match="startingOffsets of orders-1 is 1, after its endingTimestamp, 0"):
        offset_ranges(options(topics, startingOffsets="latest-3", endingTimestamp="6"))
    assert offset_ranges(chosen) == {("orders", 0): (123, 130), ("orders", 1): (0, 0)}
    ranges = {("orders", 0): OffsetRange(105, 107), ("orders", 1): OffsetRange(3, 4)}
    assert read(plan_ranges(chosen, ranges)) == [("orders", 0, 105), ("orders", 0, 106), ("orders", 1, 3)]


def test_a_stream_takes_partitions_that_its_first_positions_do_not_name(topics: Any) -> None:
    for partition in (0, 1):
        topics.write(rows(2), partition=partition)
    chosen = options(topics, startingOffsets='{"orders": {"0": 1}}')
    assert list(current_offsets(chosen)) == [("orders", 0), ("orders", 1)]
    assert read(plan_ranges(chosen, {("orders", 1): OffsetRange(0, 2)})) == [("orders", 1, 0), ("orders", 1, 1)]
    with pytest.raises(ConfigError, match="does not name partition 1"):
        offset_ranges(chosen)


def test_what_a_stream_wants_and_is_gone_is_named(topics: Any, caplog: pytest.LogCaptureFixture) -> None:
    topics.write(rows(10), base_offset=100)
    whole = {("orders", 0): OffsetRange(95, 115), ("bills", 0): OffsetRange(0, 2)}
    for of, wanted, why in [
        (("orders", 0), OffsetRange(95, 105), r"offsets 95 to 99 of orders-0 are gone: the log begins at 100"),
        (("orders", 0), OffsetRange(90, 95), r"offsets 90 to 94 of orders-0 are gone: the log begins at 100"),
        (("orders", 0), OffsetRange(105, 115), r"offsets 110 to 114 of orders-0 are gone: the log ends at 110"),
        (("bills", 0), OffsetRange(0, 2), r"offsets 0 to 1 of bills-0 are gone: there is no such partition"),
    ]:
        with pytest.raises(StorageError, match=why):
            plan_ranges(options(topics), {of: wanted})
    found = read(plan_ranges(options(topics, failOnDataLoss="false"), whole))
    assert found == [("orders", 0, at) for at in range(100, 110)]
    assert [record.message for record in caplog.records] == [
        "offsets 95 to 99 of orders-0 are gone: the log begins at 100",
        "offsets 110 to 114 of orders-0 are gone: the log ends at 110",
        "offsets 0 to 1 of bills-0 are gone: there is no such partition any more",
    ]
