"""AppendAt: batches that keep their offsets, if the log ends where the mirror expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.append_at import (
    ANY_END,
    AppendAtPartition,
    AppendAtPartitionResult,
    AppendAtRequest,
    AppendAtTopic,
)
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch, compute_crc
from kafkalite.record.message_set import V1, build_set
from kafkalite.record.transaction_marker import build_marker
from kafkalite.testing import Broker
from tests.support.wait import DEADLINE_S

T0 = 1_700_000_000_000
EARLIEST, LATEST = -2, -1


def batch(offset: int, *values: str, **how: Any) -> bytes:
    records = [NewRecord(b"k", value.encode(), timestamp=T0 + offset) for value in values]
    return bytes(build_batch(records, base_offset=offset, **how))


class World:
    """A broker with the topic `copy`, and a client."""

    def __init__(self, data_dir: Path, settings: dict[str, Any]) -> None:
        self.broker = Broker(data_dir=data_dir)
        self.broker.__enter__()
        self.broker.create_topic("copy", 1, **settings)
        self._client = BlockingClient(self.broker.bootstrap_servers, DEADLINE_S)

    def ask(self, request: Any, version: int) -> Any:
        return self._client.ask(request, version)

    def append(
        self, end_offset: int, *batches: bytes, start_offset: int = -1, topic: str = "copy"
    ) -> AppendAtPartitionResult:
        data = AppendAtPartition(index=0, end_offset=end_offset, start_offset=start_offset)
        data.records = memoryview(b"".join(batches)) if batches else None
        request = AppendAtRequest(timeout_ms=9000, topics=[AppendAtTopic(name=topic, partitions=[data])])
        return self.ask(request, 0).topics[0].partitions[0]  # type: ignore[no-any-return]

    def offset_at(self, timestamp: int) -> int:
        one = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="copy", partitions=[one])])
        return int(self.ask(request, 5).topics[0].partitions[0].offset)

    def records(self) -> list[tuple[int, bytes | None]]:
        return [(one.offset, one.value) for one in self.broker.records("copy")]

    def crash(self) -> None:
        self._client.close()
        self.broker.crash()
        self.broker.restart()
        self._client = BlockingClient(self.broker.bootstrap_servers, DEADLINE_S)

    def close(self) -> None:
        self._client.close()
        self.broker.__exit__(None, None, None)


Begin = Callable[..., World]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes the world; with settings of the topic."""
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        worlds.append(world := World(tmp_path / "data", settings))
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(begin: Begin) -> World:
    return begin()


def outcome(result: AppendAtPartitionResult) -> tuple[int, int, int]:
    return result.error_code, result.start_offset, result.end_offset


def test_batches_keep_their_offsets_and_gaps(world: World) -> None:
    gaps = batch(9, "d", "e", offset_deltas=[0, 5], last_offset_delta=7)
    assert outcome(world.append(0, batch(0, "a", "b"), batch(4, "c"), gaps)) == (0, 0, 17)
    assert world.records() == [(0, b"a"), (1, b"b"), (4, b"c"), (9, b"d"), (14, b"e")]
    assert world.offset_at(LATEST) == 17
    assert world.offset_at(T0 + 4) == 4
    assert world.offset_at(T0 + 5) == 9


def test_only_a_mirror_that_knows_the_end_of_the_log_appends(world: World) -> None:
    assert outcome(world.append(0, batch(0, "a"))) == (0, 0, 1)
    again = world.append(0, batch(0, "a"))  # its answer was lost, or another mirror had the partition
    assert outcome(again) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 1)
    assert again.error_message == "the log ends at offset 1, and not at 0"
    assert outcome(world.append(2, batch(2, "c"))) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 1)
    assert outcome(world.append(ANY_END)) == (0, 0, 1)
    assert outcome(world.append(1, batch(1, "b"))) == (0, 0, 2)
    assert world.records() == [(0, b"a"), (1, b"b")]


def test_an_empty_log_begins_where_its_source_does(world: World) -> None:
    assert outcome(world.append(0, start_offset=1 << 40)) == (0, 1 << 40, 1 << 40)
    assert (world.offset_at(EARLIEST), world.offset_at(LATEST)) == (1 << 40, 1 << 40)
    end = (1 << 40) + 2
    assert outcome(world.append(1 << 40, batch(1 << 40, "a", "b"))) == (0, 1 << 40, end)
    late = world.append(end, batch(end + 8, "c"), start_offset=end + 8)
    assert outcome(late) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1 << 40, end)
    assert late.error_message == f"the log has records before offset {end}, so it cannot begin at {end + 8}"


def test_a_log_that_began_late_is_the_same_after_a_crash(world: World) -> None:
    world.append(0, batch(70, "a"), batch(75, "b"), start_offset=70)
    world.append(76, bytes(build_batch([], base_offset=79)))  # a gap at the end
    world.crash()
    assert world.records() == [(70, b"a"), (75, b"b")]
    assert outcome(world.append(ANY_END)) == (0, 70, 80)
    assert outcome(world.append(80, batch(80, "c"))) == (0, 70, 81)


def unreadable() -> bytes:
    """A batch whose checksum is right, and whose record is not."""
    data = bytearray(batch(0, "a"))
    data[61] += 2
    data[17:21] = compute_crc(data).to_bytes(4, "big")
    return bytes(data)


IDS = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
BAD = {
    "a transaction's": (batch(0, "a", **IDS, transactional=True), "has a producer"),
    "a producer's": (batch(0, "a", **IDS), "has a producer"),
    "a marker": (bytes(build_marker(5, 0, 0, T0, commit=True)), "has a producer"),
    "of an old format": (bytes(build_set([(0, T0, b"k", b"v")], V1)), "is of an old format"),
    "more records than offsets": (batch(0, "a", "b", last_offset_delta=0), "more records than offsets"),
    "not readable": (unreadable(), "cannot be read"),
    "a damaged one": (batch(0, "a")[:-1] + b"\7", "is corrupt"),
    "cut off": (batch(0, "a") + batch(1, "b")[:-1], "is cut off"),
    "before the end": (batch(0, "a", "b") + batch(1, "c"), "comes after offset 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_mirror_is_a_client_like_others(world: World, what: str) -> None:
    data, why = BAD[what]
    result = world.append(0, data)
    assert result.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE), result
    assert why in (result.error_message or "") and result.end_offset == 0
    assert not world.records()


def test_limits_of_the_topic_hold_but_those_of_new_records_do_not(begin: Begin) -> None:
    world = begin(
        max_message_bytes=400, cleanup_policy="compact", message_timestamp_before_max_ms=1000, compression_type="gzip"
    )
    assert world.append(0, batch(0, "a" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    old = bytes(build_batch([NewRecord(None, b"v", timestamp=5)], base_offset=3, timestamp_type=1))
    assert outcome(world.append(0, old)) == (0, 0, 4)
    assert [(one.offset, one.timestamp) for one in world.broker.records("copy")] == [(3, 5)]


def test_producers_write_on_behind_the_copy(world: World) -> None:
    world.append(0, batch(10, "a"))
    for sequence in range(2):
        mine = batch(0, "b", producer_id=0, producer_epoch=0, base_sequence=sequence)
        data = PartitionProduceData(index=0, records=memoryview(mine))
        topic = TopicProduceData(name="copy", partition_data=[data])
        answer = world.ask(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic]), 9)
        one = answer.responses[0].partition_responses[0]
        assert (one.error_code, one.base_offset) == (0, 11 + sequence)
    assert outcome(world.append(11, batch(11, "c"))) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 13)


def test_an_answer_waits_for_the_disk_where_the_topic_asks_for_it(begin: Begin) -> None:
    world = begin(flush_messages=1)
    assert outcome(world.append(0, batch(3, "a"), batch(9, "b"), start_offset=3)) == (0, 3, 10)
    assert world.records() == [(3, b"a"), (9, b"b")]
    assert outcome(world.append(10, batch(10, "c"))) == (0, 3, 11)
    assert world.offset_at(LATEST) == 11


def test_refusals_have_their_reasons(world: World) -> None:
    assert outcome(world.append(0, batch(0, "a"), topic="other")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert world.append(ANY_END, batch(0, "a")).error_code == ErrorCode.INVALID_REQUEST


def test_segments_roll_as_those_of_a_follower(begin: Begin) -> None:
    size = len(batch(0, "a"))
    world = begin(segment_bytes=3 * size)
    batches = [batch(offset, "a") for offset in range(0, 20, 2)]
    assert outcome(world.append(0, *batches)) == (0, 0, 19)
    assert [offset for offset, _ in world.records()] == list(range(0, 20, 2))
    far = 1 << 33  # further than an index can say
    assert outcome(world.append(19, batch(far, "b"))) == (0, 0, far + 1)
    assert world.records()[-1] == (far, b"b")
