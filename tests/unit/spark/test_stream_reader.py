"""Micro-batches of the stream: the decisions without Spark, then a real Spark over segments that grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.record.batch import NewRecord
from tests.support.segment_writer import Topics

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.reader.options import parse_options
from kafkalite.spark import stream_reader
from kafkalite.spark.stream_reader import KafkaliteStreamReader

pytestmark = pytest.mark.timeout(300)


def records(first: int, end: int) -> list[NewRecord]:
    return [NewRecord(None, b"%d" % number) for number in range(first, end)]


class Stream:
    """Micro-batches as Spark asks for them; `checkpoint` survives restarts."""

    def __init__(self, topics: Topics, **options: str) -> None:
        given = {**topics.options, "subscribe": "orders", **options}
        self.options = parse_options(given, streaming=True)
        self.checkpoint: dict[str, Any] | None = None
        self.now_ms = 0
        self.restart()

    def restart(self) -> None:
        self.reader = KafkaliteStreamReader(
            self.options, [("partition", False), ("offset", False)], now_ms=lambda: self.now_ms
        )

    def go_on_from(self, checkpoint: dict[str, Any]) -> None:
        """A restart as Spark does it."""
        self.restart()
        self.checkpoint = checkpoint
        assert self.reader.partitions(checkpoint, checkpoint) == []

    def latest(self, limited: bool = True) -> dict[str, Any]:
        start = self.reader.initialOffset() if self.checkpoint is None else self.checkpoint
        if not stream_reader.HAS_LIMITS:
            return self.reader.latestOffset()
        limit = self.reader.getDefaultReadLimit() if limited else stream_reader.ReadAllAvailable()
        return self.reader.latestOffset(start, limit)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        splits = self.reader.partitions(start, end)
        batches = [batch for split in splits for batch in self.reader.read(split)]
        return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())

    def next(self, limited: bool = True) -> list[tuple[int, int]] | None:
        """The rows of the next micro-batch; None if there is none now."""
        start = self.reader.initialOffset() if self.checkpoint is None else self.checkpoint
        end = self.latest(limited)
        if end == self.checkpoint:
            return None
        self.checkpoint = end
        return self.rows(start, end)


def offsets(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def test_a_stream_reads_on_as_its_topic_grows(topics: Topics) -> None:
    topics.write(records(0, 10))
    stream = Stream(topics, startingOffsets="earliest")
    assert stream.next() == offsets(0, 0, 10)
    assert stream.next() is None
    topics.write(records(10, 13), base_offset=10)
    stream.restart()
    assert stream.next() == offsets(0, 10, 13)
    topics.write(records(0, 4), partition=1)
    assert stream.next() == offsets(1, 0, 4), "a new partition from its start"
    assert stream.checkpoint == {"orders": {"0": 13, "1": 4}}


@pytest.mark.parametrize("start", ["latest", '{"orders": {"0": -1}}'])
def test_where_latest_was_is_in_the_checkpoint_before_anything_is_read(topics: Topics, start: str) -> None:
    topics.write(records(0, 10))
    stream = Stream(topics, startingOffsets=start)
    assert stream.next() == []
    assert stream.checkpoint == {"orders": {"0": 10}}
    topics.write(records(10, 15), base_offset=10)
    stream.restart()
    # the first micro-batch was not committed: Spark runs it again, with a start that lies behind its end
    assert stream.rows(stream.reader.initialOffset(), stream.checkpoint) == []
    assert stream.next() == offsets(0, 10, 15)


def test_a_limit_is_shared_out_and_kept(topics: Topics) -> None:
    topics.write(records(0, 90))
    topics.write(records(0, 10), partition=1)
    stream = Stream(topics, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    assert stream.next() == offsets(0, 0, 45) + offsets(1, 0, 5)
    assert stream.next() == offsets(0, 45, 90) + offsets(1, 5, 10)
    assert stream.next() is None


def test_few_offsets_wait_for_more_or_for_the_delay(topics: Topics) -> None:
    topics.write(records(0, 2))
    stream = Stream(topics, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert stream.next() == offsets(0, 0, 2)
    topics.write(records(2, 5), base_offset=2)
    assert stream.next() is None
    stream.now_ms += 60_000
    assert stream.next() == offsets(0, 2, 5)
    topics.write(records(5, 20), base_offset=5)
    assert stream.next() == offsets(0, 5, 20)


@pytest.mark.skipif(not stream_reader.HAS_LIMITS, reason="needs Spark 4.2")
def test_available_now_ends_where_it_began_to_look(topics: Topics) -> None:
    topics.write(records(0, 10))
    stream = Stream(topics, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.next() == offsets(0, 0, 6)
    topics.write(records(10, 30), base_offset=10)
    assert stream.next() == offsets(0, 6, 10), "fewer than minOffsetsPerTrigger, but no more will come"
    assert stream.next() is None
    assert stream.reader.reportLatestOffset() == {"orders": {"0": 10}}
    stream.restart()
    assert stream.next(limited=False) == offsets(0, 10, 30)


def test_what_is_gone_is_told_or_passed_over(topics: Topics) -> None:
    topics.write(records(0, 10))
    end = topics.write(records(10, 20), base_offset=10)
    strict = Stream(topics, startingOffsets="earliest")
    tolerant = Stream(topics, startingOffsets="earliest", failOnDataLoss="false")
    for stream in (strict, tolerant):
        stream.go_on_from({"orders": {"0": 5}})
    topics.segment(0).unlink()
    topics.segment(0).with_suffix(".index").unlink()
    with pytest.raises(StorageError, match=r"offsets 5 to 9 of orders-0 are gone.*set failOnDataLoss to false"):
        strict.next()
    assert tolerant.next() == offsets(0, 10, end)
    for stream in (strict, tolerant):
        stream.go_on_from({"orders": {"0": 50}})
    with pytest.raises(StorageError, match="orders-0 ends at 20, before offset 50, up to which it was read"):
        strict.next()
    assert tolerant.next() == []
    assert tolerant.checkpoint == {"orders": {"0": 20}}
    for stream in (strict, tolerant):
        stream.go_on_from({"orders": {"0": 20, "7": 3}})
    with pytest.raises(StorageError, match="partition orders-7 is gone"):
        strict.next()
    assert tolerant.next() == []


# --- in a real Spark


def start(spark: Any, topics: Topics, place: Path, **options: str) -> Any:
    reader = spark.readStream.format("kafkalite").options(**topics.options, **options).load()
    rows = reader.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    return writer.option("path", str(place / "out")).trigger(availableNow=True).start()


def test_a_query_goes_on_where_its_checkpoint_says(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topics.write(records(0, 100))
    options = {"subscribePattern": "or.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    query = start(spark, topics, tmp_path / "query", **options)
    query.awaitTermination()
    if stream_reader.HAS_LIMITS:
        assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [40, 40, 20]
        (source,) = query.lastProgress.sources
        assert json.loads(source.endOffset) == json.loads(source.latestOffset) == {"orders": {"0": 100}}
    topics.write(records(100, 130), base_offset=100)
    topics.write(records(0, 7), topic="orders-again")
    for _ in range(2 if stream_reader.HAS_LIMITS else 5):  # before Spark 4.2 each run has one micro-batch
        start(spark, topics, tmp_path / "query", **options).awaitTermination()
    found = [tuple(row) for row in spark.read.parquet(str(tmp_path / "query" / "out")).collect()]
    expected = [("orders", 0, number, str(number)) for number in range(130)]
    expected += [("orders-again", 0, number, str(number)) for number in range(7)]
    assert sorted(found) == expected


def test_a_stream_begins_with_the_latest_unless_told(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topics.write(records(0, 10))
    start(spark, topics, tmp_path / "query", subscribe="orders").awaitTermination()
    topics.write(records(10, 15), base_offset=10)
    start(spark, topics, tmp_path / "query", subscribe="orders").awaitTermination()
    found = spark.read.parquet(str(tmp_path / "query" / "out")).collect()
    assert sorted(row.offset for row in found) == [10, 11, 12, 13, 14]


def test_a_stream_s_faults_reach_the_user_in_plain_words(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topics.write(records(0, 10))
    for options, complaint in (
        ({"subscribe": "orders", "endingOffsets": "latest"}, "'endingOffsets' is not for streams"),
        ({"subscribe": "orders", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
    ):
        with pytest.raises(Exception, match=complaint):
            start(spark, topics, tmp_path / "faults", **options).awaitTermination()
