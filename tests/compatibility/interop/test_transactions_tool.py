"""kafka-transactions: what is open and of whom, transactions that nobody will end, and their end by an operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.record.batch import NewRecord, build_batch
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.swap_scene import read
from tests.compatibility.interop.transaction_stories import SETTINGS
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = SETTINGS | {"transaction.partition.verification.enable": "false"}  # so that one can be left hanging
YESTERDAY_MS = int(time.time() * 1000) - 86_400_000


@pytest.fixture(params=("3.9.1", "4.1.0"))
def java(request: pytest.FixtureRequest, broker: Any, run: Callable[..., str]) -> JavaTools:
    return JavaTools(request.param, broker.bootstrap, run)


@pytest.fixture
def client(broker: Any) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap, DEADLINE_S) as client:
        yield client


def table(printed: str) -> list[dict[str, str]]:
    """The rows that the tool prints, by column."""
    lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    heading = [cell.strip() for cell in lines[0]] if lines else []
    return [dict(zip(heading, [cell.strip() for cell in line], strict=False)) for line in lines[1:]]


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in read(bootstrap, [(topic, 0)], "read_committed")[topic, 0]]


def leave_hanging(client: BlockingClient, topic: str) -> int:
    """Records of a transaction that its coordinator knows nothing of, as in KIP-664; returns the producer id."""
    gone = Producer({"bootstrap.servers": client.address, "transactional.id": f"{topic}-gone"})
    gone.init_transactions(DEADLINE_S)
    asked = InitProducerIdRequest(transactional_id=f"{topic}-gone", transaction_timeout_ms=60_000)

    def initialised() -> Any:
        answer = client.ask(asked, 4)
        return answer if answer.error_code == 0 else None

    owner = until(initialised, "a producer id")
    record = NewRecord(b"key", b"hanging", (), YESTERDAY_MS)
    by = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch, "base_sequence": 0}
    batch = build_batch([record], transactional=True, **by)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])]
    produce = ProduceRequest(transactional_id=f"{topic}-gone", acks=-1, timeout_ms=10_000, topic_data=data)
    (answer,) = client.ask(produce, 9).responses[0].partition_responses
    assert answer.error_code == 0, answer
    return int(owner.producer_id)


def test_open_and_ended_transactions_are_listed_and_described(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str], broker: Any
) -> None:
    prove("kafka-transactions list, describe, describe-producers: of an open and of a committed transaction")
    topic, name = unique("described"), unique("payments")
    java.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, f"{number}", partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0

    def listed(*filters: str) -> list[dict[str, str]]:
        return [row for row in table(java("TransactionsCommand", "list", *filters)) if row["TransactionalId"] == name]

    (row,) = listed()
    assert row["TransactionState"] == "Ongoing"
    assert listed("--duration-filter", "3600000") == []
    (described,) = table(java("TransactionsCommand", "describe", "--transactional-id", name))
    assert described["TransactionState"] == "Ongoing" and described["ProducerId"] == row["ProducerId"]
    assert set(described["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-1"}
    assert int(described["TransactionDurationMs"]) > 0 and described["TransactionTimeoutMs"] == "60000"
    of_topic = ("--topic", topic, "--partition", "0")
    (active,) = table(java("TransactionsCommand", "describe-producers", *of_topic))
    assert active["ProducerId"] == row["ProducerId"]
    assert (active["CurrentTransactionStartOffset"], active["LastSequence"]) == ("0", "2")
    assert active["LatestCoordinatorEpoch"] in ("-1", "0")

    producer.commit_transaction(DEADLINE_S)
    (row,) = until(lambda: [row for row in listed() if row["TransactionState"] == "CompleteCommit"], "the end")
    (described,) = table(java("TransactionsCommand", "describe", "--transactional-id", name))
    assert (described["TransactionState"], described["TopicPartitions"]) == ("CompleteCommit", "")
    (active,) = table(java("TransactionsCommand", "describe-producers", *of_topic))
    assert active["CurrentTransactionStartOffset"] == "None"
    unknown = java("TransactionsCommand", "describe", "--transactional-id", unique("nobody"), check=False)
    assert "the ID could not be found" in unknown, unknown


def test_a_hanging_transaction_is_found_and_aborted(
    java: JavaTools,
    prove: Callable[[str], None],
    unique: Callable[[str], str],
    broker: Any,
    client: BlockingClient,
) -> None:
    prove("kafka-transactions find-hanging (by topic, by broker), abort: a transaction that no coordinator knows")
    topic = unique("stuck")
    java.create_topic(topic)
    producer_id = leave_hanging(client, topic)
    java.produce(topic, "behind it\n")
    assert values(broker.bootstrap, topic) == []

    (found,) = table(java("TransactionsCommand", "find-hanging", "--topic", topic))
    assert (found["Topic"], found["Partition"], found["ProducerId"]) == (topic, "0", str(producer_id))
    everywhere = table(java("TransactionsCommand", "find-hanging", "--broker-id", "0"))
    assert topic in {row["Topic"] for row in everywhere}
    where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    java("TransactionsCommand", "abort", *where)
    assert values(broker.bootstrap, topic) == [b"behind it"]
    assert table(java("TransactionsCommand", "find-hanging", "--topic", topic)) == []
    again = java("TransactionsCommand", "abort", *where, check=False)
    assert "Could not find any open transactions" in again, again
