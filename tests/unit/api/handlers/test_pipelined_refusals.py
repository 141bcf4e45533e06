"""Batches behind a refused one get its reason, and a producer that lost one is told so in the end."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.handlers.produce import IN_FLIGHT_MAX, inherited_error
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import ClientConnection
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.replication.led_in_broker import resign
from tests.unit.api.conftest import Asker

NONE, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


ALONE: Any = SimpleNamespace(is_surely_registered=True)


def connection() -> ClientConnection:
    return ClientConnection("PLAINTEXT", "127.0.0.1", 1, "127.0.0.1", 2)


def test_as_many_as_may_be_in_flight_are_behind_a_refusal() -> None:
    client = connection()
    assert inherited_error(ALONE, client, "t", 0, KafkaError(NOT_LEADER)).code is NOT_LEADER
    codes = [inherited_error(ALONE, client, "t", 0, KafkaError(OUT_OF_ORDER)).code for _ in range(IN_FLIGHT_MAX)]
    assert codes == [*[NOT_LEADER] * (IN_FLIGHT_MAX - 1), OUT_OF_ORDER]


@pytest.mark.parametrize(
    ("first", "index"), [(ErrorCode.MESSAGE_TOO_LARGE, 0), (NOT_LEADER, 1), (ErrorCode.INVALID_PRODUCER_EPOCH, 0)]
)
def test_other_refusals_and_other_partitions_change_nothing(first: ErrorCode, index: int) -> None:
    client = connection()
    assert inherited_error(ALONE, client, "t", index, KafkaError(first)).code is first
    assert inherited_error(ALONE, client, "t", 0, KafkaError(OUT_OF_ORDER)).code is OUT_OF_ORDER
    assert inherited_error(ALONE, connection(), "t", 0, KafkaError(OUT_OF_ORDER)).code is OUT_OF_ORDER


@pytest.mark.parametrize(
    ("is_sure", "replicas", "code"),
    [(False, (1, 2), NOT_LEADER), (False, (1,), OUT_OF_ORDER), (True, (1, 2), OUT_OF_ORDER)],
)
def test_a_leader_that_may_be_none_any_more_calls_nothing_out_of_order(
    is_sure: bool, replicas: tuple[int, ...], code: ErrorCode
) -> None:
    topic = SimpleNamespace(partitions={0: SimpleNamespace(replicas=replicas)})
    metadata: Any = SimpleNamespace(is_surely_registered=is_sure, topics={"t": topic})
    assert inherited_error(metadata, connection(), "t", 0, KafkaError(OUT_OF_ORDER)).code is code
    assert (
        inherited_error(metadata, connection(), "t", 0, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)).code is not code
    )


def produce(sequence: int) -> ProduceRequest:
    batch = build_batch(
        [NewRecord(None, b"value", timestamp=1)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    data = PartitionProduceData(index=0, records=memoryview(bytes(batch)))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


@pytest.mark.parametrize("known", [3, 0], ids=["of a known producer", "of a new one"])
def test_a_producer_sends_all_of_them_again(known: int, tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running

        async def code(sequence: int) -> int:
            answer = await asker.ask(produce(sequence), 9)
            return int(answer.responses[0].partition_responses[0].error_code)

        await running.topic_admin.create("t", 1, {})
        leader = running.replica_manager.by_name["t"].partitions[0]
        assert [await code(number) for number in range(known)] == [NONE] * known
        resign(broker, "t", leader=2)
        assert await code(known) == NOT_LEADER
        running.replica_manager.by_name["t"].partitions[0] = leader
        assert [await code(known + number) for number in (1, 2)] == [NOT_LEADER] * 2
        assert [await code(known + number) for number in (0, 1, 2)] == [NONE] * 3
        assert [await code(known + 6) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, OUT_OF_ORDER]

    tell(story)
