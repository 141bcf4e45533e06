"""count.py: exact numbers, and the first and last record, of every partition."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.record.batch import NewRecord, build_batch

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.common.errors import StorageError
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from spark_jobs import latest, load
from spark_jobs.count import PartitionCount, count, count_split
from spark_jobs.job import add_source, new_parser, source_options

T0 = 1_700_000_000_123
pytestmark = pytest.mark.timeout(300)


def counted(spark: Any, topics: Any, *arguments: str) -> dict[tuple[str, int], PartitionCount]:
    parser = new_parser("count", "")
    add_source(parser)
    options = parser.parse_args(["--data-dir", str(topics.path), "--topic-pattern", ".*", *arguments])
    return count(spark, source_options(options))


def test_records_bytes_and_ends_of_every_partition(spark: Any, topics: Any) -> None:
    rows = [NewRecord(b"k", b"%d" % n, (), T0 + n) for n in range(10)]
    topics.write(rows[:5], rows[5:])
    topics.write(rows[:4], base_offset=10, codec=4)
    topics.directory("orders", 1)
    how = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    topics.write(rows[:2], topic="bills", **how)
    marker = build_batch([NewRecord(b"\0\0\0\0", bytes(6), (), T0)], base_offset=2, control=True, **how)
    with open(topics.segment(topic="bills"), "ab") as file:
        file.write(marker)
    found = counted(spark, topics)
    size = sum(topics.segment(base).stat().st_size for base in (0, 10))
    first = (0, "2023-11-14 22:13:20.123Z")
    assert found == {
        ("bills", 0): PartitionCount(0, found["bills", 0].bytes, None, None),
        ("orders", 0): PartitionCount(14, size, first, (13, "2023-11-14 22:13:20.126Z")),
        ("orders", 1): PartitionCount(0, 0, None, None),
    }
    aborted_too = counted(spark, topics, "--isolation-level", "read_uncommitted")
    assert aborted_too["bills", 0][0] == 2 and aborted_too["bills", 0].last == (1, "2023-11-14 22:13:20.124Z")


def test_times_that_are_no_dates_are_told_as_they_are(spark: Any, topics: Any) -> None:
    """Of one topic in microseconds, one in nanoseconds, one without timestamps: the count of all topics ends well."""
    for topic, timestamp in (("micros", T0 * 1000), ("nanos", T0 * 1_000_000), ("none", -1)):
        topics.write([NewRecord(b"k", b"v", (), timestamp)], topic=topic)
    found = counted(spark, topics)
    assert {topic: one.first for (topic, _), one in found.items()} == {
        "micros": (0, "1700000000123000 ms"),
        "nanos": (0, ""),
        "none": (0, ""),
    }
    rows = spark.read.format("kafkalite").options(path=str(topics.path), subscribePattern=".*").load()
    latest.print_summary(rows)
    load.print_summary(rows)


def test_offsets_bound_the_count(spark: Any, topics: Any) -> None:
    topics.write([NewRecord(b"k", b"%d" % n, (), T0 + n) for n in range(10)])
    bounds = ("--from", '{"orders": {"0": 3}}', "--until", '{"orders": {"0": 7}}')
    found = counted(spark, topics, *bounds)["orders", 0]
    assert (found.records, found.first and found.first[0], found.last and found.last[0]) == (4, 3, 6)


def test_a_segment_that_goes_before_it_is_counted_is_an_error_unless_told_otherwise(topics: Any) -> None:
    topics.write([NewRecord(b"k", b"%d" % n, (), T0 + n) for n in range(10)])
    topics.write([NewRecord(b"k", b"x", (), T0)], base_offset=10)
    strict = {"path": str(topics.path), "subscribe": "orders"}
    splits = plan(parse_options(strict))
    topics.segment(0).unlink()
    with pytest.raises(StorageError, match="offsets 0 to 9 of orders-0 are gone"):
        [count_split(parse_options(strict), split) for split in splits]
    lenient = parse_options({**strict, "failOnDataLoss": "false"})
    assert sum(records for split in splits for _, records, _ in count_split(lenient, split)) == 1
