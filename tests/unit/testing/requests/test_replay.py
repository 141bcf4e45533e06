"""A trace that is asked again of another broker: the same errors, though that broker chooses other ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from bench import wire
from kafkalite import Broker
from kafkalite.testing.requests.replay import Trace
from tests.support.wait import DEADLINE_S, until


def record(path: Path, story: Callable[[Broker], None]) -> Trace:
    with Broker() as broker:
        broker.requests.start()
        story(broker)
        broker.requests.save(path)
    return Trace.load(path)


def producers_and_groups(broker: Broker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop", "linger.ms": 0}
    )
    producer.init_transactions(DEADLINE_S)
    for number in range(2):
        producer.begin_transaction()
        producer.produce("orders", str(number))
        producer.flush()
        producer.commit_transaction(DEADLINE_S)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe(["orders"])
    taken: list[bytes] = []

    def enough() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            taken.append(message.value())
        return len(taken) == 2

    until(enough, "two records")
    consumer.commit(asynchronous=False)
    consumer.close()


def test_transactions_and_groups_are_asked_again_with_the_other_brokers_ids(tmp_path: Path) -> None:
    trace = record(tmp_path / "shop.trace", producers_and_groups)
    assert "EndTxn" in {each.api for each in trace} and "EndTxn" in trace.diagram()
    with Broker() as other:
        other.create_topic("before")  # so that ids are others
        with wire.Connection(other.bootstrap_servers) as client:
            client.request(22, 0, b"\xff\xff", (60_000).to_bytes(4))  # a producer id
        replayed = trace.replay(other.bootstrap_servers)
        assert len(replayed) == len(trace)
        assert [(each.then, each.now) for each in replayed if not each.is_alike and each.then.api != "Fetch"] == []
        assert [record.value for record in other.records("orders", isolation="read_committed")] == [b"0", b"1"]
        assert other.lag("billing") == 0
        ids = [
            {getattr(one.response, "producer_id", -1) for one in side if one.api == "InitProducerId"}
            for side in zip(*replayed, strict=True)
        ]
        assert ids[0] and ids[0].isdisjoint(ids[1])


def test_an_error_of_then_that_is_none_now_is_seen(tmp_path: Path) -> None:
    def story(broker: Broker) -> None:
        broker.create_topic("orders")
        with wire.Connection(broker.bootstrap_servers) as client, pytest.raises(wire.TopicExists):
            client.create_topic("orders")

    trace = record(tmp_path / "x.trace", story)
    with Broker() as other:
        [made] = [each for each in trace.replay(other.bootstrap_servers) if each.then.api == "CreateTopics"]
    assert (made.then.errors, made.now.errors, made.is_alike) == (["TOPIC_ALREADY_EXISTS"], [], False)


def test_an_answer_without_an_id_teaches_none(tmp_path: Path) -> None:
    """Where there was an error instead of a producer id, the later request that has none is not given one."""

    def story(broker: Broker) -> None:
        with broker.faults.error("InitProducerId", "COORDINATOR_NOT_AVAILABLE"):
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop", "log_level": 0}
            )
            producer.init_transactions(DEADLINE_S)

    trace = record(tmp_path / "x.trace", story)
    with Broker() as other:
        asked = [each for each in trace.replay(other.bootstrap_servers) if each.then.api == "InitProducerId"]
    assert [each.then.errors for each in asked] == [["COORDINATOR_NOT_AVAILABLE"], []]
    assert [each.now.errors for each in asked] == [[], []]


@pytest.mark.parametrize("address", ["nonsense", "host:port", ":9092", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"no host:port"):
        Trace([]).replay(address)


def test_a_broker_that_closes_connections_leaves_requests_unanswered(tmp_path: Path) -> None:
    def story(broker: Broker) -> None:
        with wire.Connection(broker.bootstrap_servers) as client:
            client.create_topic("orders")

    trace = record(tmp_path / "x.trace", story)
    with Broker() as other, other.faults.disconnect(times=None):
        assert not any(each.is_alike for each in trace.replay(other.bootstrap_servers))
    with pytest.raises(ConnectionRefusedError):
        trace.replay("127.0.0.1:1")
