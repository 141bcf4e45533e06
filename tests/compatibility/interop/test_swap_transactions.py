"""Transactions that one broker begins and another one ends: Apache Kafka, kafkalite, and Kafka again, on one ZooKeeper
and one set of data directories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from bench.reference.jars import ReferenceUnavailable
from kafkalite import Broker
from kafkalite.common.errors import ErrorCode
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import parse_properties
from kafkalite.coordinator.marker_writer import MarkerWriter
from kafkalite.server.broker_server import BrokerServer
from tests.compatibility.interop.swap_scene import BROKER_ID, SECONDS, administer, read
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka
from tests.support.transactional_producer import UnconnectedProducer, committed, state

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ZooKeeperKafka]:
    data_dirs = [tmp_path / "data"]
    data_dirs[0].mkdir()
    try:
        with zookeeper_kafka(tmp_path / "kafka", data_dirs, broker_id=BROKER_ID) as kafka:
            yield kafka
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def begin(bootstrap: str, name: str, value: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("money", value)
    assert producer.flush(SECONDS) == 0
    return producer


def paid(bootstrap: str) -> list[bytes | None]:
    return [one.value for one in read(bootstrap, [("money", 0)], isolation="read_committed")["money", 0]]


def live(kafka: ZooKeeperKafka, story: Callable[[BrokerServer], Awaitable[object]]) -> None:
    """A life of kafkalite with Kafka's own properties."""

    async def one() -> None:
        properties = parse_properties((kafka.home / "server.properties").read_text())
        async with Broker(BrokerConfig.load(properties)) as broker:
            await story(broker._require())

    asyncio.run(one())


def test_each_ends_the_transactions_that_the_other_began(
    kafka: ZooKeeperKafka, monkeypatch: pytest.MonkeyPatch, proved: Any
) -> None:
    proved("Apache Kafka", VERSION, "transactions begun by one broker and ended by the other, on the same directories")
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic("money", 1, 1)])
    begin(kafka.bootstrap, "done", "kafka 1").commit_transaction(SECONDS)
    left_open = begin(kafka.bootstrap, "open at kafka", "never")
    assert paid(kafka.bootstrap) == [b"kafka 1"]
    kafka.stop()

    async def ours(running: BrokerServer) -> None:
        assert [state(running, name) for name in ("done", "open at kafka")] == ["CompleteCommit", "Ongoing"]
        assert committed(running, "money") == [b"kafka 1"]
        successor = UnconnectedProducer(running, "open at kafka")
        assert [await successor.init() for _ in range(2)] == [CONCURRENT, ErrorCode.NONE]
        assert state(running, "open at kafka") == "Empty"
        partition = running.replica_manager.require("money", 0)
        assert partition.last_stable_offset == partition.high_watermark
        producers = {}
        for name in ("open here", "committed here", "aborted here"):
            producers[name] = producer = UnconnectedProducer(running, name)
            await producer.init()
            producer.add(("money", 0))
            producer.send(name.encode(), "money")
        monkeypatch.setattr(MarkerWriter, "write", lambda *_: None)
        assert producers["committed here"].end(commit=True, version=2) == ErrorCode.NONE
        assert producers["aborted here"].end(commit=False) == ErrorCode.NONE
        assert state(running, "committed here") == "PrepareCommit"
        monkeypatch.undo()
        assert committed(running, "money") == [b"kafka 1"]

    live(kafka, ours)
    del left_open

    kafka.start()
    begin(kafka.bootstrap, "open here", "kafka 2").commit_transaction(SECONDS)  # aborts what it finds open
    assert paid(kafka.bootstrap) == [b"kafka 1", b"committed here", b"kafka 2"]
    kafka.stop()

    async def again(running: BrokerServer) -> None:
        assert committed(running, "money") == [b"kafka 1", b"committed here", b"kafka 2"]
        names = ("open here", "committed here", "aborted here")
        assert [state(running, name) for name in names] == ["CompleteCommit", "CompleteCommit", "CompleteAbort"]

    live(kafka, again)
