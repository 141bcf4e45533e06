"""The metrics of replication and of quotas: the partitions that this broker leads and copies, and the throttling of
clients.

The names are those that the JMX exporter gives Kafka's MBeans, as in `broker_metrics`. A broker whose partitions have
one replica each has all of the totals as well, so that alerts on them need no exception. Of quotas there is a row for
each client that has used its quota lately; a user or client id that shares its quota with others is empty in the row.
Source: the MBeans of kafka.server.{ReplicaManager, AbstractFetcherManager, FetcherLagMetrics, BrokerTopicMetrics,
ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager}, kafka.cluster.Partition,
kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.api.request.metrics_data import COUNT, SUM
from kafkalite.common.metrics import COUNTER, Column, Metrics, Row
from kafkalite.common.names import desanitized
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.security.quota.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

if TYPE_CHECKING:
    from kafkalite.api.request.client_telemetry import ClientTelemetry
    from kafkalite.api.request.fetch_sessions import FollowerFetches
    from kafkalite.common.clock import Clock
    from kafkalite.metadata.cluster_metadata import PartitionRecord
    from kafkalite.network.connection_quotas import ConnectionQuotas
    from kafkalite.replication.hosted_replicas import Topic
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.replication.replica_roles import ReplicaRoles
    from kafkalite.security.quota.client_quotas import ClientQuotaManager

_PER_PAUSE = 500  # partitions of which few numbers are read
_MANAGER = "kafka_server_replicamanager"
_PARTITION = "kafka_cluster_partition"

_LED_COLUMNS = (
    Column(f"{_MANAGER}_underreplicatedpartitions", "Partitions led here of which a replica is not in sync."),
    Column(
        f"{_MANAGER}_underminisrpartitioncount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
    ),
    Column(f"{_MANAGER}_atminisrpartitioncount", "Partitions led here that have just as many."),
    Column(f"{_MANAGER}_reassigningpartitions", "Partitions led here whose replicas are being reassigned."),
)
_PARTITION_COLUMNS = (
    Column(f"{_PARTITION}_replicascount", "Replicas of the partition."),
    Column(f"{_PARTITION}_insyncreplicascount", "In-sync replicas of the partition."),
    Column(f"{_PARTITION}_underreplicated", "1 if a replica is not in sync."),
    Column(f"{_PARTITION}_underminisr", "1 if there are fewer than min.insync.replicas."),
    Column(f"{_PARTITION}_atminisr", "1 if there are just as many."),
)
_REPLICA_LAG = Column(
    "kafkalite_partition_replica_lag", "Records of the leader's log that this replica does not have yet."
)
_CONSUMER_LAG = Column(
    "kafka_server_fetcherlagmetrics_consumerlag", "Committed records that the follower here does not have yet."
)
_FETCHER_COLUMNS = (
    Column("kafka_server_replicafetchermanager_maxlag", "The largest lag of a follower here, in records."),
    Column("kafka_server_replicafetchermanager_failedpartitionscount", "Followers here that ceased to fetch."),
)


def add_replication_metrics(metrics: Metrics, replica_manager: ReplicaManager, fetches: FollowerFetches) -> None:
    """`fetches` are those of the followers of this broker."""
    roles = replica_manager.roles
    metrics.table(_LED_COLUMNS, (), partial(_led, replica_manager))
    _add_counters(metrics, roles, fetches)
    metrics.table(_FETCHER_COLUMNS, ("clientId",), partial(_fetchers, roles))
    where = ("topic", "partition")
    metrics.table(_PARTITION_COLUMNS, where, partial(_led_with_replicas, replica_manager))
    metrics.table((_REPLICA_LAG,), (*where, "replica"), partial(_replica_lags, replica_manager))
    metrics.table((_CONSUMER_LAG,), ("clientId", *where), partial(_consumer_lags, roles))


def _add_counters(metrics: Metrics, roles: ReplicaRoles | None, fetches: FollowerFetches) -> None:
    def count(read: Callable[[ReplicaRoles], int]) -> Callable[[], int]:
        return lambda: 0 if roles is None else read(roles)

    metrics.counter(
        f"{_MANAGER}_isrshrinks_total", "In-sync replicas that were removed.", count(lambda it: it.isr_writer.shrinks)
    )
    metrics.counter(
        f"{_MANAGER}_isrexpands_total", "In-sync replicas that were added.", count(lambda it: it.isr_writer.expands)
    )
    metrics.counter(
        f"{_MANAGER}_failedisrupdates_total",
        "Changes of in-sync replicas that were refused.",
        count(lambda it: it.isr_writer.failures),
    )
    metrics.counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes that followers here got from leaders.",
        count(lambda it: it.fetchers.bytes_in),
    )
    metrics.counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes that leaders here sent.",
        lambda: fetches.bytes_out,
    )
    metrics.counter(
        "kafka_server_brokertopicmetrics_reassignmentbytesin_total",
        "Those that followers here got to become replicas, in a reassignment.",
        count(lambda it: it.fetchers.reassignment_bytes_in),
    )
    metrics.counter(
        "kafka_server_brokertopicmetrics_reassignmentbytesout_total",
        "Those that leaders here sent to brokers that become replicas, in a reassignment.",
        lambda: fetches.reassignment_bytes_out,
    )


def _led(replica_manager: ReplicaManager) -> Iterator[Row | None]:
    totals = [0, 0, 0, 0]
    since_pause = 0
    for topic in list(replica_manager):
        for index, led in list(topic.partitions.items()):
            if led.is_offline:
                continue
            if isinstance(led, LeaderPartition):
                _, _, *counted = _counts(led, topic.states.get(index))
                counted.append(_is_reassigned(topic, index))
            else:
                counted = [False, False, True, _is_reassigned(topic, index)]  # as many as there are replicas
            totals = [total + one for total, one in zip(totals, counted, strict=True)]
        since_pause += 1 + len(topic.partitions)
        if since_pause >= _PER_PAUSE:
            since_pause = 0
            yield None
    yield Row((), totals)


def _is_reassigned(topic: Topic, index: int) -> bool:
    state = topic.states.get(index)
    return state is not None and bool(state.adding or state.removing)


def _counts(led: LeaderPartition, state: PartitionRecord | None) -> tuple[int, int, bool, bool, bool]:
    """Replicas and in-sync replicas, and whether it is under-replicated, under its min ISR, and just at it. Replicas
    that a reassignment adds do not count."""
    replicas = len(led.replica.replicas - set(state.adding if state is not None else ()))
    in_sync, min_isr = len(led.replica.in_sync.isr), led.replica.min_isr
    return replicas, in_sync, in_sync < replicas, in_sync < min_isr, in_sync == min_isr


def _leaders(replica_manager: ReplicaManager) -> Iterator[tuple[Topic, LeaderPartition]]:
    for topic in list(replica_manager):
        for led in list(topic.partitions.values()):
            if isinstance(led, LeaderPartition) and replica_manager.by_name.get(topic.name) is topic:
                yield topic, led


def _led_with_replicas(replica_manager: ReplicaManager) -> Iterator[Row]:
    for topic, led in _leaders(replica_manager):
        yield Row((topic.name, str(led.index)), _counts(led, topic.states.get(led.index)))


def _replica_lags(replica_manager: ReplicaManager) -> Iterator[Row]:
    for topic, led in _leaders(replica_manager):
        end_offset = led.log.end_offset
        for broker_id, state in sorted(led.replica.followers.items()):
            lag = None if state.log_end_offset < 0 else max(end_offset - state.log_end_offset, 0)
            yield Row((topic.name, str(led.index), str(broker_id)), (lag,))


def _fetchers(roles: ReplicaRoles | None) -> Iterator[Row]:
    fetchers = None if roles is None else roles.fetchers
    values = (0, 0) if fetchers is None else (fetchers.max_lag, fetchers.failed_partition_count)
    yield Row(("Replica",), values)


def _consumer_lags(roles: ReplicaRoles | None) -> Iterator[Row]:
    lags = {} if roles is None else roles.fetchers.lags()
    for (topic, index), lag in lags.items():
        yield Row(("Replica", topic, str(index)), (lag,))


_CLIENTS_PER_PAUSE = 500
_WHO = ("user", "client_id")
_THROTTLE_TIME = "Milliseconds of throttle time, on the average of the requests that were throttled."
_SOCKETS = "kafka_server_socket_server_metrics"
_LISTENER_COLUMNS = (
    Column(f"{_SOCKETS}_connection_accept_rate", "New connections in a second."),
    Column(f"{_SOCKETS}_connection_accept_throttle_time", "Milliseconds that new connections waited."),
    Column(
        f"{_SOCKETS}_ip_connection_accept_throttle_time",
        "Milliseconds that connections of addresses over their quota were kept before they were closed.",
    ),
)


def add_quota_metrics(
    metrics: Metrics, clients: ClientQuotaManager, connections: ConnectionQuotas, clock: Clock
) -> None:
    for key, name, rate in (
        (PRODUCER_BYTE_RATE, "produce", Column("kafka_server_produce_byte_rate", "Bytes produced in a second.")),
        (CONSUMER_BYTE_RATE, "fetch", Column("kafka_server_fetch_byte_rate", "Bytes fetched in a second.")),
        (
            REQUEST_PERCENTAGE,
            "request",
            Column("kafka_server_request_request_time", "Time of the broker, in percent of one processor."),
        ),
        (
            CONTROLLER_MUTATION_RATE,
            "controllermutation",
            Column("kafka_server_controllermutation_mutation_rate", "Partitions made or deleted in a second."),
        ),
    ):
        columns = (rate, Column(f"kafka_server_{name}_throttle_time", _THROTTLE_TIME))
        metrics.table(columns, _WHO, partial(_clients, clients, key, clock))
    tokens = Column("kafka_server_controllermutation_tokens", "Partitions that they may make or delete now.")
    metrics.table((tokens,), _WHO, partial(_tokens, clients, clock))
    metrics.gauge(
        f"{_SOCKETS}_broker_connection_accept_rate",
        "New connections in a second, of all listeners that clients share.",
        lambda: connections.rate.per_second(clock.monotonic_ms()),
    )
    metrics.table(_LISTENER_COLUMNS, ("listener",), partial(_listeners, connections, clock))


def _clients(clients: ClientQuotaManager, key: str, clock: Clock) -> Iterator[Row | None]:
    for number, counted in enumerate(clients.counted(key), start=1):
        now_ms = clock.monotonic_ms()
        user, client_id = counted.sharers
        numbers = counted.rate.per_second(now_ms), counted.throttle_times.average_ms(now_ms)
        yield Row((desanitized(user), client_id), numbers)
        if number % _CLIENTS_PER_PAUSE == 0:
            yield None


def _tokens(clients: ClientQuotaManager, clock: Clock) -> Iterator[Row]:
    for counted in clients.counted(CONTROLLER_MUTATION_RATE):
        if counted.bucket is not None:
            user, client_id = counted.sharers
            yield Row((desanitized(user), client_id), (counted.bucket.tokens(clock.monotonic_ms()),))


def _listeners(connections: ConnectionQuotas, clock: Clock) -> Iterator[Row]:
    now_ms = clock.monotonic_ms()
    for listener in connections.listeners:
        waits = listener.accept_waits.average_ms(now_ms), listener.ip_waits.average_ms(now_ms)
        yield Row((listener.name,), (listener.rate.per_second(now_ms), *waits))


_OF_A_CLIENT = (
    "metric",
    "attributes",
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_address",
)


_HISTOGRAM = "kafkalite_client_metric_histogram"
_COLUMN_OF_PART = {SUM: 2, COUNT: 3}
_NO_BUCKETS = ("", SUM, COUNT)


def add_client_metrics(metrics: Metrics, telemetry: ClientTelemetry) -> None:
    """The metrics that clients push (KIP-714): names are values of a label, since clients choose them."""
    metrics.counter(
        "kafkalite_client_telemetry_pushes_total", "Pushes of metrics by clients.", lambda: telemetry.push_count
    )
    metrics.counter(
        "kafkalite_client_telemetry_left_out_total",
        "Values of clients beyond the limits, which are left out.",
        lambda: telemetry.left_out_count,
    )
    columns = (
        Column("kafkalite_client_metric", "The last value of a metric that a client pushed."),
        Column("kafkalite_client_metric_total", "The sum of a metric that a client pushed, since its first push."),
        Column(f"{_HISTOGRAM}_sum", "The sum of the values of a histogram that a client pushed.", COUNTER),
        Column(f"{_HISTOGRAM}_count", "The number of these values.", COUNTER),
    )
    metrics.table(columns, _OF_A_CLIENT, partial(_client_metrics, telemetry, are_buckets=False))
    buckets = (Column(f"{_HISTOGRAM}_bucket", "The number of those that are no larger than le.", COUNTER),)
    metrics.table(buckets, (*_OF_A_CLIENT, "le"), partial(_client_metrics, telemetry, are_buckets=True))


def _client_metrics(telemetry: ClientTelemetry, *, are_buckets: bool) -> Iterator[Row | None]:
    for instance, name, attributes, sample in telemetry.samples():
        if (sample.part not in _NO_BUCKETS) != are_buckets:
            continue
        client = instance.client
        labels = (
            name,
            attributes,
            client["client_instance_id"],
            client.get("client_id", ""),
            client.get("client_software_name", ""),
            client.get("client_software_version", ""),
            client.get("client_source_address", ""),
        )
        if are_buckets:
            yield Row((*labels, sample.part), (sample.value,))
            continue
        at = _COLUMN_OF_PART.get(sample.part, int(sample.is_counter))
        yield Row(labels, [sample.value if index == at else None for index in range(4)])
