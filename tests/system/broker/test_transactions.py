"""Transactions in a whole broker, driven at the coordinator: markers in logs, time-outs, restarts, Kafka's files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.common.errors import ErrorCode, UnverifiedTransaction
from kafkalite.common.names import TRANSACTION_STATE_TOPIC
from kafkalite.coordinator.group.group import Identity
from kafkalite.coordinator.marker_writer import MarkerWriter
from kafkalite.coordinator.offset_manager import TransactionalCommit
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT
from kafkalite.server.broker_server import BrokerServer
from tests.support.manual_clock import ManualClock
from tests.support.places import ROOT
from tests.support.transactional_producer import TIMEOUT_MS, Call, UnconnectedProducer, committed, state

KAFKA_DIRECTORY = ROOT / "tests/golden/inspection/kafka-3.9.1"
OK = ErrorCode.NONE


Story = Callable[[BrokerServer], Awaitable[object]]


@pytest.fixture
def live(tmp_path: Path) -> Callable[..., None]:
    """`live(story)`: one life of a broker on the same directory; it has the topic `t`."""

    def live(story: Story, **settings: object) -> None:
        async def one() -> None:
            adopt = bool(settings.pop("adopt", False))
            clock: Any = settings.pop("clock", None)
            broker = Broker(
                data_dir=tmp_path / "data",
                port=0,
                adopt=adopt,
                clock=clock,
                **{"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2} | settings,
            )
            async with broker:
                running = broker.server
                if "t" not in running.replica_manager.by_name:
                    await running.topic_admin.create("t", 1, {})
                await running.coordinators.offsets_topic.ensure()
                await running.coordinators.transaction_topic.ensure()
                await story(running)

        asyncio.run(one())

    return live


def test_commits_are_seen_and_aborts_are_not_also_after_a_restart(live: Callable[..., None]) -> None:
    async def first(running: BrokerServer) -> None:
        producer = UnconnectedProducer(running)
        assert await producer.init() == OK
        for number in range(6):
            assert producer.add() == OK
            producer.send(b"%d" % number)
            partition = running.replica_manager.require("t", 0)
            assert partition.last_stable_offset == partition.high_watermark - 1
            assert producer.end(commit=number % 2 == 0, version=0 if number < 3 else 2) == OK
            assert partition.last_stable_offset == partition.high_watermark
        assert committed(running) == [b"0", b"2", b"4"]
        assert producer.ids.producer_epoch == 3
        producer.add()
        producer.send(b"open")

    async def second(running: BrokerServer) -> None:
        assert state(running) == "Ongoing"
        producer = UnconnectedProducer(running)
        assert await producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert state(running) == "CompleteAbort"
        assert await producer.init() == OK
        assert producer.ids.producer_epoch == 5
        producer.add()
        producer.send(b"later")
        producer.end(commit=True)
        assert committed(running) == [b"0", b"2", b"4", b"later"]

    live(first)
    live(second)


def test_the_topic_of_transactions_is_made_as_kafkas(live: Callable[..., None]) -> None:
    async def story(running: BrokerServer) -> None:
        topic = running.replica_manager.by_name[TRANSACTION_STATE_TOPIC]
        assert len(topic.partitions) == 2
        assert topic.overrides == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
        }

    live(story)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_markers_is_finished_by_the_next_start(
    live: Callable[..., None], monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    async def first(running: BrokerServer) -> None:
        monkeypatch.setattr(MarkerWriter, "write", lambda *_: None)
        producer = UnconnectedProducer(running)
        await producer.init()
        producer.add()
        producer.send(b"decided")
        assert producer.end(commit=commit) == OK
        assert state(running) == ("PrepareCommit" if commit else "PrepareAbort")
        monkeypatch.undo()

    async def second(running: BrokerServer) -> None:
        assert state(running) == ("CompleteCommit" if commit else "CompleteAbort")
        assert committed(running) == ([b"decided"] if commit else [])

    live(first)
    live(second)


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_from_the_end_of_their_transaction_on(live: Callable[..., None], commit: bool) -> None:
    async def story(running: BrokerServer) -> None:
        producer, call, added = UnconnectedProducer(running), Call(), Call()
        await producer.init()
        running.transactions.add_offsets("copy", *producer.ids, "g", added)
        assert added.result == OK
        request = TransactionalCommit("g", Identity("", None, -1), "copy", producer.ids, [("t", 0, 42, -1, "", -1)])
        running.groups.offsets.commit_in_transaction(request, call, running.coordinators.add_partitions.verify_commit)
        assert call.result == [OK]
        assert offset(running) == -1
        assert producer.end(commit=commit) == OK
        assert offset(running) == (42 if commit else -1)

    def offset(running: BrokerServer) -> int:
        _, found = running.groups.offsets.fetch("g", [("t", [0])])
        return found[0][1][0][1].offset

    live(story, transaction_partition_verification_enable=False)


def test_verification_may_be_switched_off_while_the_broker_runs(live: Callable[..., None]) -> None:
    async def story(running: BrokerServer) -> None:
        producer = UnconnectedProducer(running)
        await producer.init()
        with pytest.raises(UnverifiedTransaction):
            producer.send(b"1", verifies=False)
        settings = {"transaction.partition.verification.enable": "false"}
        await running.dynamic_config.change(CLUSTER_DEFAULT, lambda _: settings, validate_only=False)
        producer.send(b"2", verifies=False)
        await running.dynamic_config.change(CLUSTER_DEFAULT, lambda _: {}, validate_only=False)
        producer.add()
        producer.end(commit=True)
        with pytest.raises(UnverifiedTransaction):
            producer.send(b"3", verifies=False)

    live(story)


def test_a_deleted_topic_does_not_hold_up_its_transaction(live: Callable[..., None]) -> None:
    async def story(running: BrokerServer) -> None:
        await running.topic_admin.create("gone", 1, {})
        producer = UnconnectedProducer(running)
        await producer.init()
        producer.add(("t", 0), ("gone", 0))
        producer.send(b"1")
        producer.send(b"2", "gone")
        await running.topic_admin.delete("gone")
        assert producer.end(commit=True) == OK
        assert state(running) == "CompleteCommit"
        assert committed(running) == [b"1"]

    live(story)


def test_time_ends_a_transaction_and_forgets_an_unused_id(live: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(running: BrokerServer) -> None:
        producer = UnconnectedProducer(running)
        await producer.init()
        producer.add()
        producer.send(b"slow")
        clock.advance(TIMEOUT_MS + 10_000)
        assert state(running) == "CompleteAbort"
        assert running.replica_manager.require("t", 0).last_stable_offset == 2
        clock.advance(7 * 86_400_000 + 3_600_000)
        clock.advance(1)
        assert state(running) == "TRANSACTIONAL_ID_NOT_FOUND"

    live(story, clock=clock)


def test_a_directory_of_kafka_with_an_open_transaction(live: Callable[..., None], tmp_path: Path) -> None:
    shutil.copytree(KAFKA_DIRECTORY, tmp_path / "data")

    async def first(running: BrokerServer) -> None:
        found = {each.transactional_id: each.state.value for each in running.transactions.store.by_id.values()}
        assert found == {"anna": "CompleteCommit", "bert": "CompleteCommit", "carl": "Ongoing"}
        money = running.replica_manager.require("money", 0)
        assert money.last_stable_offset == money.high_watermark - 1
        before = committed(running, "money")
        running.transactions.abort_timed_out()  # it is long ago
        assert state(running, "carl") == "CompleteAbort"
        assert money.last_stable_offset == money.high_watermark
        assert committed(running, "money") == before
        assert len(before) == 32  # 8 of 12 transactions of 4 records
        anna = UnconnectedProducer(running, "anna")
        assert await anna.init() == OK
        assert anna.ids == (3, 1)

    live(first, adopt=True, broker_id=1)
