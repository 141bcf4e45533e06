"""The numbers of replication and of quotas, as a scraper reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvloop

from kafkalite.common.metrics import Metrics
from kafkalite.metadata.partition_state import WriteIsr, WriteOutcome
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.replica.leader_replica import ReplicaFetch
from kafkalite.replication.replica_roles import IsrWriter
from kafkalite.security.quota.client_quotas import ClientQuotaManager, QuotaWindows
from kafkalite.server.broker import Broker
from kafkalite.server.traffic_metrics import add_quota_metrics, add_replication_metrics
from tests.support.manual_clock import ManualClock
from tests.support.prometheus import Family, parse, value
from tests.support.replication.led_in_broker import REGISTRATIONS, follow, lead

TWO, THREE = 2, 3
MANAGER = "kafka_server_replicamanager"


def scrape(broker: Broker) -> dict[str, Family]:
    running: Any = broker._running
    metrics = Metrics()
    add_replication_metrics(metrics, running.replica_manager, running.apis.follower_fetches)
    return parse("".join(piece.decode() if isinstance(piece, bytes) else piece for piece in metrics.pieces()))


def test_a_leader_counts_its_partitions_by_their_in_sync_replicas(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running: Any = broker._running
            await running.topic_admin.create("t", 4, {})
            told = scrape(broker)
            assert value(told, f"{MANAGER}_underreplicatedpartitions") == 0
            assert value(told, f"{MANAGER}_atminisrpartitioncount") == 4  # with one replica, as in Kafka
            fetches = running.apis.follower_fetches
            fetches.bytes_out, fetches.reassignment_bytes_out = 7, 4
            whole = lead(broker, "t", 0, min_isr=2)
            lead(broker, "t", 1, isr=(TWO,), min_isr=2)
            lead(broker, "t", 2, isr=(), min_isr=2)
            whole.append(memoryview(build_batch([NewRecord(None, b"value", timestamp=1)])), 1, 9)
            whole.on_replica_fetch(ReplicaFetch(TWO, REGISTRATIONS[TWO], whole.leader_epoch, 0, -1, 0))
            told = scrape(broker)
            assert value(told, f"{MANAGER}_underreplicatedpartitions") == 2
            assert value(told, f"{MANAGER}_underminisrpartitioncount") == 1
            assert value(told, f"{MANAGER}_atminisrpartitioncount") == 2
            assert value(told, f"{MANAGER}_reassigningpartitions") == 0
            where = {"topic": "t", "partition": "1"}
            assert value(told, "kafka_cluster_partition_replicascount", **where) == 3
            assert value(told, "kafka_cluster_partition_insyncreplicascount", **where) == 2
            assert value(told, "kafkalite_partition_replica_lag", topic="t", partition="0", replica="2") == 1
            assert value(told, "kafka_server_brokertopicmetrics_replicationbytesout_total") == 7
            assert value(told, "kafka_server_brokertopicmetrics_reassignmentbytesout_total") == 4
            assert value(told, "kafka_server_brokertopicmetrics_reassignmentbytesin_total") == 0
            assert value(told, "kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
            states = running.replica_manager.by_name["t"].states
            states[3] = states[3]._replace(adding=(TWO,))
            follow(broker, "t", 0)
            told = scrape(broker)
            assert value(told, f"{MANAGER}_reassigningpartitions") == 1
            assert value(told, f"{MANAGER}_underreplicatedpartitions") == 2

    uvloop.run(story())


def test_a_follower_knows_whether_a_reassignment_adds_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running: Any = broker._running
            await running.topic_admin.create("t", 1, {})
            lead(broker, "t")
            follower = follow(broker, "t")
            topic = running.replica_manager.by_name["t"]
            for adding in ((TWO,), (TWO, running.broker_id), ()):
                topic.states = {0: topic.states[0]._replace(adding=adding)}
                running.replica_manager.hosted.update_replicas(topic)
                assert follower.is_being_added == (running.broker_id in adding)

    uvloop.run(story())


def test_changes_of_the_isr_are_counted_when_they_are_carried_out(tmp_path: Path) -> None:
    class Cluster:
        outcome = WriteOutcome.WRITTEN

        async def write_isr(self, topic: str, partition: int, write: WriteIsr) -> WriteOutcome:
            return self.outcome

    async def story() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running: Any = broker._running
            await running.topic_admin.create("t", 1, {})
            cluster = Cluster()
            writer = IsrWriter(cluster, ManualClock())  # type: ignore[arg-type]
            leader = lead(broker, "t", isr=(TWO,))
            me = running.broker_id

            async def write(*isr: int) -> tuple[int, int, int]:
                writer.write(leader, WriteIsr(frozenset({me, *isr}), frozenset(), 1, {}))
                await asyncio.wait(writer._tasks)
                return writer.shrinks, writer.expands, writer.failures

            assert await write() == (1, 0, 0)
            assert await write(TWO, THREE) == (1, 1, 0)
            cluster.outcome = WriteOutcome.UNKNOWN
            assert await write() == (1, 1, 0)
            cluster.outcome = WriteOutcome.REFUSED
            assert await write() == (1, 1, 1)

    uvloop.run(story())


def scrape_quotas(clients: ClientQuotaManager, connections: ConnectionQuotas, clock: ManualClock) -> dict[str, Family]:
    metrics = Metrics()
    add_quota_metrics(metrics, clients, connections, clock)
    return parse("".join(piece.decode() if isinstance(piece, bytes) else piece for piece in metrics.pieces()))


def test_whoever_has_a_quota_is_shown_with_what_it_used() -> None:
    clock = ManualClock()
    clients = ClientQuotaManager(QuotaWindows(11, 1_000), QuotaWindows(11, 1_000))
    connections = ConnectionQuotas(NetworkLimits(max_connection_creation_rate=1), {}, clock)
    assert (
        value(
            scrape_quotas(clients, connections, clock),
            "kafka_server_socket_server_metrics_broker_connection_accept_rate",
        )
        == 0
    )
    clients.put("users/a%2Ab", {"producer_byte_rate": "100", "controller_mutation_rate": "2"})
    clients.put("clients/app", {"request_percentage": "50"})
    now_ms = clock.monotonic_ms()
    resolved = clients.resolve("a*b", "app", now_ms)
    assert resolved.produce is not None and resolved.mutation is not None and resolved.request is not None
    resolved.produce.rate.record(3_000, now_ms)
    resolved.produce.throttle_times.add(700, now_ms)
    resolved.produce.throttle_times.add(300, now_ms)
    assert resolved.mutation.bucket is not None
    resolved.mutation.bucket.take(30, now_ms)
    resolved.request.rate.record(20, now_ms)
    for _ in range(11):
        connections.creation_wait_ms("OUTSIDE")
    told = scrape_quotas(clients, connections, clock)
    user, app = {"user": "a*b", "client_id": ""}, {"user": "", "client_id": "app"}
    assert value(told, "kafka_server_produce_byte_rate", **user) == 300
    assert value(told, "kafka_server_produce_throttle_time", **user) == 500
    assert value(told, "kafka_server_controllermutation_tokens", **user) == -8
    assert value(told, "kafka_server_request_request_time", **app) == 2
    sockets = "kafka_server_socket_server_metrics"
    assert value(told, f"{sockets}_connection_accept_rate", listener="OUTSIDE") == 1.1
    assert value(told, f"{sockets}_connection_accept_throttle_time", listener="OUTSIDE") == 1_000
    assert value(told, f"{sockets}_broker_connection_accept_rate") == 1.1
    clock.advance(60_000)
    told = scrape_quotas(clients, connections, clock)
    assert value(told, "kafka_server_produce_byte_rate", **user) == 0
    assert value(told, "kafka_server_produce_throttle_time", **user) == 0
