"""Stock clients meet faults that a broker makes on demand: they retry what may be retried, raise what is for the
program, and an idempotent producer writes once. Three clients with nothing in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kafkalite import Broker
from tests.compatibility.clients.faulted_clients import CLIENTS, FaultedClient
from tests.support.wait import DEADLINE_S, until


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> FaultedClient:
    return CLIENTS[request.param]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker


def values(broker: Broker) -> list[bytes]:
    return [record.value or b"" for record in broker.records("orders")]


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_a_produce_is_tried_again(broker: Broker, client: FaultedClient, error: str) -> None:
    with broker.faults.error("Produce", error, times=2, topic="orders") as fault:
        client.produce(broker.bootstrap_servers, "orders", "1")
    assert (fault.fired, values(broker)) == (2, [b"1"])


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_the_first_of_several_batches_is_refused_and_not_lost(broker: Broker, error: str) -> None:
    """librdkafka takes a batch for stored if a later one of the same producer is."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0}
        | {"batch.num.messages": 1, "retry.backoff.ms": 200}
    )
    producer.list_topics("orders")
    producer.produce("other", b"")  # so that it has its producer id
    assert producer.flush(DEADLINE_S) == 0
    with broker.faults.error("Produce", error, times=1, topic="orders"):
        for number in range(5):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0
    assert values(broker) == [b"%d" % number for number in range(5)]


def test_a_produce_that_cannot_succeed_is_given_up(broker: Broker, client: FaultedClient) -> None:
    with (
        broker.faults.error("Produce", "MESSAGE_TOO_LARGE", times=None) as fault,
        pytest.raises(client.failures) as raised,
    ):
        client.produce(broker.bootstrap_servers, "orders", "1")
    assert fault.fired == 1 and values(broker) == []
    assert "large" in repr(raised.value).lower()


@pytest.mark.parametrize("fault", ["disconnect", "error", "truncate_response"])
def test_an_idempotent_producer_whose_answer_is_lost_writes_once(
    broker: Broker, client: FaultedClient, fault: str
) -> None:
    client.produce(broker.bootstrap_servers, "orders", "0", idempotent=True)
    made = {
        "disconnect": lambda: broker.faults.disconnect("Produce", has_effect=True),
        "error": lambda: broker.faults.error("Produce", "REQUEST_TIMED_OUT", has_effect=True),
        "truncate_response": lambda: broker.faults.truncate_response("Produce", 6),
    }[fault]
    with made():
        client.produce(broker.bootstrap_servers, "orders", "1", idempotent=True)
    assert values(broker) == [b"0", b"1"]


def test_a_connection_that_closes_is_opened_again(broker: Broker, client: FaultedClient) -> None:
    with broker.faults.disconnect("Produce", times=2):
        client.produce(broker.bootstrap_servers, "orders", "1")
    assert values(broker) == [b"1"]


def test_an_answer_that_never_comes_is_given_up(broker: Broker, client: FaultedClient) -> None:
    with broker.faults.blackhole("Produce"):
        try:
            client.produce(broker.bootstrap_servers, "orders", "1", request_ms=1_000)
        except client.failures:  # aiokafka's time for a request is that for all its attempts
            assert client is CLIENTS["aiokafka"]
            client.produce(broker.bootstrap_servers, "orders", "1")
    assert values(broker) == [b"1"]


def test_throttled_and_slow_requests_succeed(broker: Broker, client: FaultedClient) -> None:
    with broker.faults.throttle(0.05, "Produce"), broker.faults.delay(0.05, "Metadata"):
        client.produce(broker.bootstrap_servers, "orders", "1")
    assert values(broker) == [b"1"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Metadata", "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "FETCH_SESSION_ID_NOT_FOUND"),
    ],
)
def test_a_consumer_finds_its_way(broker: Broker, client: FaultedClient, api: str, error: str) -> None:
    for number in range(3):
        broker.produce("orders", str(number))
    with broker.faults.error(api, error, times=2):
        assert client.consume(broker.bootstrap_servers, "orders", 3) == [b"0", b"1", b"2"]


def test_corrupt_records_are_not_taken_for_good_ones(broker: Broker, client: FaultedClient) -> None:
    broker.produce("orders", "1")
    with broker.faults.corrupt("orders") as fault:
        try:
            assert client.consume(broker.bootstrap_servers, "orders", 1) == [b"1"]  # read again
        except client.failures as error:
            assert "crc" in str(error).lower() or "corrupt" in repr(error).lower()
    assert fault.fired == 1
    broker.faults.clear()
    assert client.consume(broker.bootstrap_servers, "orders", 1) == [b"1"]


def test_a_crash_is_outlived(broker: Broker, client: FaultedClient) -> None:
    client.produce(broker.bootstrap_servers, "orders", "0", idempotent=True)
    broker.crash()
    broker.restart()
    client.produce(broker.bootstrap_servers, "orders", "1")
    assert values(broker) == [b"0", b"1"]


# groups and transactions, with the client that has both


def consumer_of(broker: Broker, revoked: list[Any]) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 50,
        }
    )

    def note(_: object, partitions: object) -> None:
        revoked.append(partitions)

    consumer.subscribe(["orders"], on_revoke=note, on_lost=note)
    return consumer


def stable(broker: Broker, consumer: confluent_kafka.Consumer, generation: int) -> None:
    def is_stable() -> bool:
        consumer.poll(0.05)
        group = broker.groups.get("billing")
        return group is not None and group.state == "Stable" and group.generation >= generation

    until(is_stable, f"generation {generation}")


def test_a_rebalance_and_a_lost_session_are_seen_by_the_consumer(broker: Broker) -> None:
    revoked: list[Any] = []
    consumer = consumer_of(broker, revoked)
    stable(broker, consumer, 1)
    broker.faults.rebalance("billing")
    stable(broker, consumer, 2)
    until(lambda: consumer.poll(0.05) is None and len(revoked) == 1, "partitions were taken away")
    [member] = broker.groups["billing"].members
    broker.faults.expire_session("billing", member.member_id)
    stable(broker, consumer, 3)
    [again] = broker.groups["billing"].members
    assert again.member_id != member.member_id
    with pytest.raises(ValueError, match="has no member"):
        broker.faults.expire_session("billing", member.member_id)
    consumer.close()


def test_a_fenced_producer_cannot_commit(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", "1")
    producer.flush()
    broker.faults.fence("shop")
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(DEADLINE_S)
    assert raised.value.args[0].fatal()
    assert broker.records("orders", isolation="read_committed") == []


@pytest.mark.parametrize("error", ["CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE"])
def test_a_transaction_goes_on_after_errors_of_its_coordinator(broker: Broker, error: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop", "retry.backoff.ms": 10}
    )
    for api in ("InitProducerId", "AddPartitionsToTxn", "EndTxn"):
        broker.faults.error(api, error, times=2)
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", "1")
    producer.commit_transaction(DEADLINE_S)
    broker.faults.check()
    assert [record.value for record in broker.records("orders", isolation="read_committed")] == [b"1"]
