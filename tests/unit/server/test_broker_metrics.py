"""A running broker is scraped: what is told is true, and a strict reader takes it."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ConfigError
from kafkalite.common.metrics import Metrics
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import EMPTY, ONGOING, PREPARE_ABORT, TransactionMetadata
from kafkalite.protocol.messages.cleaner import RunCleanerRequest
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.record.batch import NewRecord, build_batch, build_batch_at
from kafkalite.server.broker import Broker
from kafkalite.server.broker_metrics import broker_metrics
from kafkalite.server.broker_server import BrokerServer
from kafkalite.zk.controller.pending_changes import ControllerStats, PendingDeletions
from tests.support.places import ROOT
from tests.support.prometheus import Family, parse, value
from tests.support.wait import DEADLINE_S

MINUTE_MS = 60_000


def create(client: BlockingClient, name: str, partition_count: int, policy: str = "delete") -> None:
    configs = [CreatableTopicConfig(name="cleanup.policy", value=policy)]
    topics = [CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1, configs=configs)]
    assert client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5).topics[0].error_code == 0


def produce(client: BlockingClient, topic: str, partition: int, count: int) -> None:
    for _ in range(count):
        records = memoryview(build_batch([NewRecord(b"key", b"x" * 100), NewRecord(b"key", b"y" * 100)]))
        data = [PartitionProduceData(index=partition, records=records)]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=topics), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def get(broker: Broker, path: str) -> str:
    with urllib.request.urlopen(f"http://{broker.metrics_address}{path}", timeout=DEADLINE_S) as answer:
        return str(answer.read().decode())


def scrape(broker: Broker) -> dict[str, Family]:
    return parse(get(broker, "/metrics"))


def metrics_of(running: BrokerServer, controller_stats: ControllerStats | None = None) -> Metrics:
    own: Any = running._member
    member: Any = SimpleNamespace(metadata=own.metadata, broker_id=own.broker_id, controller_stats=controller_stats)
    return broker_metrics(
        member,
        running.logs,
        running.replica_manager,
        running.coordinators,
        running.server,
        lambda: running.cleaner,
        lambda: running.config,
        running.clock,
    )


def test_what_is_told_of_partitions_is_true(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, log_segment_bytes=700, metrics_listener="127.0.0.1:0") as broker:
        with BlockingClient(broker.bootstrap_servers, 10) as client:
            create(client, "orders", 2)
            produce(client, "orders", 1, 5)
            partition = DeleteRecordsPartition(partition_index=1, offset=6)
            topic = DeleteRecordsTopic(name="orders", partitions=[partition])
            assert client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=9000), 2).topics[0].name == "orders"
            told = scrape(broker)
        where = {"topic": "orders", "partition": "1"}
        files = list((tmp_path / "data" / "orders-1").glob("*.log"))
        assert value(told, "kafka_log_log_size", **where) == sum(path.stat().st_size for path in files)
        assert value(told, "kafka_log_log_numlogsegments", **where) == len(files)
        assert value(told, "kafka_log_log_logstartoffset", **where) == 6
        assert value(told, "kafka_log_log_logendoffset", **where) == 10
        assert value(told, "kafkalite_log_high_watermark", **where) == 10
        assert value(told, "kafkalite_log_live_records", topic="orders", partition="0") == 0
        assert value(told, "kafka_server_replicamanager_partitioncount") == 2
        assert value(told, "kafka_controller_kafkacontroller_globaltopiccount") == 1
        assert value(told, "kafka_controller_kafkacontroller_activebrokercount") == 1
        assert value(told, "kafka_controller_kafkacontroller_fencedbrokercount") == 0
        assert value(told, "kafka_log_logmanager_offlinelogdirectorycount") == 0
        connections = told["kafka_server_socket_server_metrics_connection_count"].samples.values()
        assert sum(connections) == 1
        assert sum(told["kafkalite_requests_total"].samples.values()) >= 7
        assert value(told, "process_resident_memory_bytes") > 1_000_000
        assert get(broker, "/health") == "ok\n"


def test_records_are_told_when_nothing_has_to_be_read_for_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"log_segment_bytes": 700, "metrics_listener": "127.0.0.1:0"}
    where = {"topic": "orders", "partition": "0"}
    with (
        Broker(data_dir=tmp_path / "data", port=0, **settings) as broker,
        BlockingClient(broker.bootstrap_servers, 10) as client,
    ):
        create(client, "orders", 1)
        produce(client, "orders", 0, 5)
        assert value(scrape(broker), "kafkalite_log_live_records", **where) == 10
    with Broker(data_dir=tmp_path / "data", port=0, **settings) as broker:
        told = scrape(broker)
        while "kafkalite_log_live_records" not in told:  # noted at the stop, and looked up by another hand
            told = scrape(broker)
        assert value(told, "kafkalite_log_live_records", **where) == 10
        assert value(told, "kafkalite_log_control_records", **where) == 0
    for noted in (tmp_path / "data" / "orders-0").glob("kafkalite-record-counts*"):
        noted.unlink()
    with Broker(data_dir=tmp_path / "data", port=0, **settings) as broker:
        for _ in range(3):
            assert "kafkalite_log_live_records" not in scrape(broker), "nothing is read because somebody scrapes"
            assert value(scrape(broker), "kafka_log_log_logendoffset", **where) == 10


def test_groups_are_counted_by_state(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, metrics_listener="127.0.0.1:0") as broker:
        told = scrape(broker)
        assert value(told, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 0
        for state in ("stable", "empty", "preparingrebalance", "completingrebalance", "dead"):
            assert value(told, f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}") == 0
        of_consumers = "kafka_server_group_coordinator_metrics_consumer_group"
        assert (
            value(told, f"{of_consumers}_rebalance_count") == value(told, f"{of_consumers}_count", state="Stable") == 0
        )
        assert value(told, "kafka_server_group_coordinator_metrics_group_count", protocol="consumer") == 0


def test_offsets_and_rebalances_are_counted(tmp_path: Path) -> None:
    prefix = "kafka_server_group_coordinator_metrics_"
    with Broker(data_dir=tmp_path / "data", port=0, metrics_listener="127.0.0.1:0") as broker:
        assert "partition_load_time" not in scrape(broker)
        with BlockingClient(broker.bootstrap_servers, 10) as client:
            create(client, "orders", 3)
            client.ask(FindCoordinatorRequest(key="g"), 3)
            partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=5) for i in range(3)]
            topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
            for _ in range(2):
                client.ask(OffsetCommitRequest(group_id="g", topics=topics), 2)
            one = [OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition()])]
            client.ask(OffsetDeleteRequest(group_id="g", topics=one), 0)
        told = scrape(broker)
        counts = [value(told, f"{prefix}offset_{what}_count") for what in ("commit", "deletion", "expiration")]
        assert counts == [6, 1, 0] and value(told, f"{prefix}group_completed_rebalance_count") == 0
        assert value(told, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2
        for state, count in (("active", 50), ("loading", 0), ("failed", 0)):
            assert value(told, f"{prefix}num_partitions", state=state) == count
        assert value(told, f"{prefix}partition_load_time_max") >= value(told, f"{prefix}partition_load_time_avg") >= 0


async def called(function: Callable[[], object]) -> None:
    function()


def test_open_and_late_transactions_are_told(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, metrics_listener="127.0.0.1:0") as broker:
        with BlockingClient(broker.bootstrap_servers, 10) as client:
            create(client, "orders", 3)
        assert value(scrape(broker), "kafkalite_transactions_oldest_open_seconds") == 0
        running = broker._running
        assert running is not None
        now_ms = running.clock.wall_ms()
        for index, age_ms in enumerate([20 * MINUTE_MS - 10_000, 20 * MINUTE_MS + 10_000]):
            partition = running.replica_manager.partition("orders", index)
            assert partition is not None
            guard = partition.producers.begin_verification(7, 0, 0)
            batch = build_batch_at(now_ms - age_ms, [(None, b"x")], producer_id=7, producer_epoch=0, transactional=True)
            append = partial(partition.append, memoryview(batch), now_ms, 9, trusted=True, guard=guard)
            assert broker._thread is not None
            broker._thread.run(partial(called, append))
        store = running.transactions.store
        for number, state in enumerate([ONGOING, ONGOING, PREPARE_ABORT, EMPTY]):
            start_ms = now_ms - 1000 * (number + 1)
            metadata = TransactionMetadata(number, 0, 60_000, now_ms, state, start_ms=start_ms)
            store.add(Transaction(f"t{number}", 0, metadata))
            store.on_change(store.by_id[f"t{number}"])
        told = scrape(broker)
        for transaction in list(store.by_id.values()):
            store.remove(transaction)
    assert value(told, "kafkalite_transactions_open") == 2
    assert 2 <= value(told, "kafkalite_transactions_oldest_open_seconds") < 60
    assert value(told, "kafkalite_transactions_ending") == 1
    by_state = {dict(labels)["state"]: count for labels, count in told["kafkalite_transactional_ids"].samples.items()}
    assert by_state == {
        "Empty": 1, "Ongoing": 2, "PrepareCommit": 0, "PrepareAbort": 1, "CompleteCommit": 0, "CompleteAbort": 0,
    }  # fmt: skip
    assert value(told, "kafka_server_replicamanager_partitionswithlatetransactionscount") == 1
    lags = {dict(labels)["partition"] for labels in told["kafka_cluster_partition_laststableoffsetlag"].samples}
    assert lags == {"0", "1"}


def test_compaction_is_told(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, log_segment_bytes=700, metrics_listener="127.0.0.1:0") as broker:
        with BlockingClient(broker.bootstrap_servers, 10) as client:
            create(client, "orders", 1)
            create(client, "users", 2, "compact")
            produce(client, "users", 1, 10)
            told = scrape(broker)
            assert value(told, "kafkalite_log_cleaner_dirty_ratio", topic="users", partition="1") == 1
            assert set(told["kafkalite_log_cleaner_dirty_bytes"].samples) == {
                frozenset({("topic", "users"), ("partition", index)}) for index in ("0", "1")
            }
            assert "kafkalite_log_cleaner_last_run_seconds" not in told, "there was none yet"
            request = RunCleanerRequest(topic="users", partitions=[1], rolls=True, waits=True, timeout_ms=60_000)
            (done,) = client.ask(request, 0, 70).partitions
            assert (done.error_code, done.message) == (0, None)
        told = scrape(broker)
        where = {"topic": "users", "partition": "1"}
        assert value(told, "kafkalite_log_cleaner_last_run_kept_records", **where) == 1
        assert value(told, "kafkalite_log_cleaner_partition_runs_total", **where) == 1
        assert value(told, "kafkalite_log_cleaner_is_set_aside", **where) == 0
        assert value(told, "kafkalite_log_live_records", **where) == 1
        assert value(told, "kafkalite_log_cleaner_read_records_total") == 20
        assert value(told, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 0
        assert value(told, "kafka_log_logcleaner_deadthreadcount") == 0
        assert 0 < value(told, "kafka_log_logcleaner_cleaner_recopy_percent") < 100


def test_a_cleaner_in_trouble_is_told(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, metrics_listener="127.0.0.1:0") as broker:
        assert broker._running is not None
        broker._running.cleaner._health.cannot_start("no cleaner process can begin: no memory", 1000)
        assert value(scrape(broker), "kafka_log_logcleaner_deadthreadcount") == 1
        assert get(broker, "/health") == "no cleaner process can begin: no memory\n"


def test_topics_may_go_while_they_are_told_of(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running = broker._running
            assert running is not None
            for name in ("first", "second"):
                await running.topic_admin.create(name, 40, {"cleanup.policy": "compact"})
            metrics = metrics_of(running)
            parts = []
            for number, piece in enumerate(metrics.pieces(rows_per_piece=1)):
                parts.append(piece)
                if number == 70:
                    await running.topic_admin.delete("second")
            told = parse("".join(parts))
            names = {dict(labels)["topic"] for labels in told["kafka_log_log_size"].samples}
            assert names == {"first"}

    uvloop.run(scene())


def test_every_metric_stands_in_the_documentation(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    words = set(re.findall(r"`(\w+)`", page))
    endings = tuple(word for word in words if word.startswith("_"))

    async def scene() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running = broker._running
            assert running is not None
            metrics = metrics_of(running, ControllerStats())
            names = {name for name in metrics.names if name not in words and not name.endswith(endings)}
            assert not names

    uvloop.run(scene())


def test_elections_and_balances_are_counted_and_timed(tmp_path: Path) -> None:
    name = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    balance = "kafka_controller_controllerstats_autoleaderbalancerateandtimems"

    async def scene() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            stats = ControllerStats()
            metrics = metrics_of(broker.server, stats)
            assert name not in parse("".join(metrics.pieces())), "nothing was elected yet"
            for duration_ms in (5, 7, 300):
                stats.election_rounds.add(duration_ms)
            told = parse("".join(metrics.pieces()))
            assert value(told, f"{name}_count") == 3
            assert [value(told, name, quantile=each) for each in ("0.5", "0.99")] == [7, 300]
            assert value(told, f"{balance}_count") == 0 and balance not in told
            stats.balances.add(4)
            told = parse("".join(metrics.pieces()))
            assert value(told, f"{balance}_count") == 1 and value(told, balance, quantile="0.5") == 4

    uvloop.run(scene())


def test_topics_that_wait_for_their_deletion_are_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            stats = ControllerStats()
            stats.deletions = PendingDeletions(3, 2, 18, 5)
            told = parse("".join(metrics_of(broker.server, stats).pieces()))
            assert value(told, "kafka_controller_kafkacontroller_topicstodeletecount") == 3
            assert value(told, "kafka_controller_kafkacontroller_topicsineligibletodeletecount") == 2
            assert value(told, "kafka_controller_kafkacontroller_replicastodeletecount") == 18
            assert value(told, "kafka_controller_kafkacontroller_replicasineligibletodeletecount") == 5

    uvloop.run(scene())


def test_nobody_is_told_anything_by_default(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        assert broker.metrics_address is None


def test_a_taken_address_ends_the_start_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = Broker(data_dir=tmp_path / "data", port=0, metrics_listener=address)
        with pytest.raises(ConfigError, match=f"metrics.listener={address} cannot be bound"), broker:
            raise AssertionError
    with Broker(data_dir=tmp_path / "data", port=0, metrics_listener=address) as broker:  # nothing was left behind
        assert broker.metrics_address == address
