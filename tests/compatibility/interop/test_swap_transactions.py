"""Transactions that one broker begins and another one ends: Apache Kafka, kafkalite, and Kafka again, on one ZooKeeper
and one set of data directories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from bench.reference.jars import ReferenceUnavailable
from kafkalite import Broker
from kafkalite.common.errors import ErrorCode
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import parse_properties
from kafkalite.coordinator.marker_writer import MarkerWriter
from kafkalite.coordinator.transaction.transaction_state import read_key, transaction_key
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN
from kafkalite.protocol.records import TRANSACTION_STATES
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.record.record import read_records
from kafkalite.server.broker_server import BrokerServer
from tests.compatibility.interop.swap_scene import BROKER_ID, SECONDS, Kafkalite, administer, partitions, read
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka
from tests.support.transactional_producer import UnconnectedProducer, committed, state
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
STATUS_AT = 16  # in a record's value, behind version, producer id, epoch and timeout
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
            await story(broker.server)

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


def decide(data_dir: Path, states: dict[str, str]) -> None:
    """Writes decisions to end transactions into stopped Kafka's __transaction_state, without their markers: a directory
    as it is when Kafka was killed just then."""
    left = dict(states)
    for path in sorted(data_dir.glob("__transaction_state-*/*.log")):
        values: dict[str, bytes] = {}
        end_offset = leader_epoch = 0
        for header, batch in iter_batches(memoryview(bytearray(path.read_bytes()))):
            end_offset, leader_epoch = header.last_offset + 1, header.leader_epoch
            for record in read_records(batch):
                values[read_key(record.key or b"") or ""] = record.value or b""
        with path.open("ab") as log:
            for name in sorted(values.keys() & left.keys()):
                value = bytearray(values[name])
                assert TRANSACTION_STATES[value[STATUS_AT]] == "Ongoing"
                value[STATUS_AT] = TRANSACTION_STATES.index(left.pop(name))
                record = NewRecord(transaction_key(name), bytes(value), (), int(time.time() * 1000))
                log.write(build_batch([record], base_offset=end_offset, leader_epoch=leader_epoch))
                end_offset += 1
    assert not left, left
    (data_dir / CLEAN_SHUTDOWN).unlink()


@pytest.mark.parametrize("successor", ["kafkalite", "kafka"])
def test_a_decision_is_carried_out_and_open_transactions_go_on(
    kafka: ZooKeeperKafka, kafkalite: Kafkalite, proved: Any, successor: str
) -> None:
    """With `kafka` as its own successor the story itself is proved."""
    if successor == "kafkalite":
        what = (
            "a commit and an abort that Kafka decided are carried out, stock producers continue their open transactions"
        )
        proved("Apache Kafka", VERSION, f"{what}, there and back at one address")
    properties = str(kafka.home / "server.properties")
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic("money", 1, 1)])
    names = ("committed", "aborted", "goes on")
    producers = {name: begin(kafka.bootstrap, name, name) for name in names}
    kafka.stop()
    decide(kafka.data_dirs[0], {"committed": "PrepareCommit", "aborted": "PrepareAbort"})

    kafkalite.start(properties) if successor == "kafkalite" else kafka.start()
    partitions(kafka.bootstrap)
    until(lambda: paid(kafka.bootstrap) == [b"committed"], "the decisions to be carried out")
    producers["goes on"].produce("money", "elsewhere")
    producers["goes on"].commit_transaction(SECONDS)
    assert paid(kafka.bootstrap) == [b"committed", b"goes on", b"elsewhere"]
    back = begin(kafka.bootstrap, "back", "back")
    zombie = begin(kafka.bootstrap, "committed", "never")
    kafkalite.stop() if successor == "kafkalite" else kafka.stop()

    kafka.start()
    back.commit_transaction(SECONDS)
    begin(kafka.bootstrap, "committed", "last").commit_transaction(SECONDS)
    assert paid(kafka.bootstrap) == [b"committed", b"goes on", b"elsewhere", b"back", b"last"]
    with pytest.raises(KafkaException):
        zombie.commit_transaction(SECONDS)
