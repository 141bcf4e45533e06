"""The metrics of share groups (KIP-932): their requests, sessions and partitions, and the share coordinator.

The locks of Kafka's threads have no counterpart here: FetchLockTimeMs, FetchLockRatio and TopicPartitionsAcquireTimeMs
are absent.
Source: the MBeans of kafka.server.{ShareGroupMetrics, SharePartitionMetrics, ShareSessionCache, BrokerTopicMetrics,
DelayedShareFetchMetrics, DelayedOperationPurgatory} and of share-coordinator-metrics (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.api.request.share_traffic import ShareTraffic
from kafkalite.common.metrics import COUNTER, Column, LatestValues, Metrics, Row
from kafkalite.common.names import SHARE_STATE_TOPIC
from kafkalite.replication.share.in_flight import ACCEPT, REJECT, RELEASE, RENEW
from kafkalite.server.coordinator_metrics import add_internal_topic_metrics

if TYPE_CHECKING:
    from kafkalite.api.handlers.share_fetch import ShareFetchApi
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.replication.share.led_share_partition import LedSharePartition
    from kafkalite.server.coordinators import Coordinators

Used = Callable[[], "ShareFetchApi | None"]

_GROUPS = "kafka_server_sharegroupmetrics"
_PARTITIONS = "kafka_server_sharepartitionmetrics"
_SESSIONS = "kafka_server_sharesessioncache"
_TOPICS = "kafka_server_brokertopicmetrics"
_PURGATORY = "kafka_server_delayedoperationpurgatory"
_COORDINATOR = "kafka_server_share_coordinator_metrics"
_TYPES = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}
_WHERE = ("group", "topic", "partition")
_QUANTILES = ("0.5", "0.95", "0.99")

_ACKNOWLEDGED = Column(f"{_GROUPS}_recordacknowledgements_total", "Records by the type of their acknowledgement.")
_TRAFFIC_COLUMNS = (
    Column(f"{_TOPICS}_totalsharefetchrequests_total", "ShareFetch requests, one for each of their topics."),
    Column(f"{_TOPICS}_failedsharefetchrequests_total", "Those of them of which a partition failed."),
    Column(
        f"{_TOPICS}_totalshareacknowledgementrequests_total",
        "Requests with acknowledgements, one for each of their topics.",
    ),
    Column(f"{_TOPICS}_failedshareacknowledgementrequests_total", "Those of them of which a partition failed."),
    Column(
        "kafka_server_delayedsharefetchmetrics_expires_total",
        "ShareFetch requests that waited for records as long as they were to.",
    ),
)
_SESSION_COLUMNS = (
    Column(f"{_SESSIONS}_sharesessionscount", "Share sessions."),
    Column(f"{_SESSIONS}_sharepartitionscount", "Partitions of all share sessions together."),
    Column(f"{_SESSIONS}_sharesessionevictions_total", "Share sessions that ended with their connection."),
)
_WAITING_COLUMNS = (
    Column(f"{_PURGATORY}_purgatorysize", "Requests that wait."),
    Column(f"{_PURGATORY}_numdelayedoperations", "The same: here a request leaves when it is answered."),
)
_PARTITION_COLUMNS = (
    Column(f"{_PARTITIONS}_inflightmessagecount", "Offsets in flight, those included that are done."),
    Column(f"{_PARTITIONS}_inflightbatchcount", "Batches in which they were acquired."),
    Column(f"{_PARTITIONS}_acquisitionlocktimeout_total", "Records whose acquisition lock was over."),
    Column(f"{_PARTITIONS}_inflightbatchmessagecount_count", "Batches that were acquired.", COUNTER),
)
_WRITE_COLUMNS = (
    Column(f"{_COORDINATOR}_write_total", "Changes of states of share partitions."),
    Column(f"{_COORDINATOR}_write_latency_avg", "Milliseconds, of the latest hundred."),
    Column(f"{_COORDINATOR}_write_latency_max", "Milliseconds, of the latest hundred."),
)
_PRUNED = Column(
    f"{_COORDINATOR}_last_pruned_offset", "The offset before which records that no state needs are deleted."
)


def add_share_metrics(metrics: Metrics, coordinators: Coordinators, replicas: ReplicaManager, used: Used) -> None:
    """`used` gives the API of records of share groups once a client has used it."""
    metrics.table((_ACKNOWLEDGED,), ("ackType",), partial(_acknowledged, used))
    metrics.table(_TRAFFIC_COLUMNS, (), partial(_traffic, used))
    metrics.table(_SESSION_COLUMNS, (), partial(_sessions, used))
    metrics.table(_WAITING_COLUMNS, ("delayedOperation",), partial(_waiting, used))
    _add_values(metrics, f"{_GROUPS}_partitionloadtimems", "Loads of share partitions.", (), partial(_loads, used))
    ratio = "ShareFetch requests, and how many percent of their partitions had something to acquire or room for it."
    _add_values(metrics, f"{_GROUPS}_requesttopicpartitionsfetchratio", ratio, ("group",), partial(_ratios, used))
    metrics.table(_PARTITION_COLUMNS, _WHERE, partial(_partitions, used))
    sizes = Column(f"{_PARTITIONS}_inflightbatchmessagecount", "Offsets of the batches that were acquired lately.")
    metrics.table((sizes,), (*_WHERE, "quantile"), partial(_batch_sizes, used))
    metrics.table(_WRITE_COLUMNS, (), partial(_writes, coordinators))
    metrics.table((_PRUNED,), ("topic", "partition"), partial(_pruned, coordinators, replicas))
    add_internal_topic_metrics(metrics, _COORDINATOR, coordinators.share_topic)


def _add_values(
    metrics: Metrics,
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Callable[[], Iterator[tuple[tuple[str, ...], LatestValues]]],
) -> None:
    """Add a count, and quantiles of the latest values."""
    count = Column(f"{name}_count", text, COUNTER)
    metrics.table((count,), labels, lambda: (Row(where, (each.count,)) for where, each in values()))
    metrics.table((Column(name, text),), (*labels, "quantile"), lambda: _quantiles(values()))


def _quantiles(values: Iterator[tuple[tuple[str, ...], LatestValues]]) -> Iterator[Row]:
    for where, each in values:
        for quantile in _QUANTILES:
            yield Row((*where, quantile), (each.quantile(float(quantile)),))


def _traffic_of(used: Used) -> ShareTraffic:
    api = used()
    return ShareTraffic() if api is None else api.traffic


def _acknowledged(used: Used) -> Iterator[Row]:
    counts = _traffic_of(used).acknowledged
    return (Row((name,), (counts.get(kind, 0),)) for kind, name in _TYPES.items())


def _traffic(used: Used) -> Iterator[Row]:
    its = _traffic_of(used)
    fetches, acknowledgements = (its.fetches, its.failed_fetches), (its.acknowledgements, its.failed_acknowledgements)
    yield Row((), (*fetches, *acknowledgements, its.expired_fetches))


def _sessions(used: Used) -> Iterator[Row]:
    api = used()
    sessions = None if api is None else api.sessions
    yield Row((), (0, 0, 0) if sessions is None else (len(sessions), sessions.partition_count, sessions.evictions))


def _waiting(used: Used) -> Iterator[Row]:
    count = len({fetch for led in _led(used) for fetch in led.delayed_fetches})
    yield Row(("ShareFetch",), (count, count))


def _loads(used: Used) -> Iterator[tuple[tuple[str, ...], LatestValues]]:
    api = used()
    yield (), LatestValues() if api is None else api.shares.load_times


def _ratios(used: Used) -> Iterator[tuple[tuple[str, ...], LatestValues]]:
    return (((group_id,), each) for group_id, each in list(_traffic_of(used).fetch_ratios.items()))


def _led(used: Used) -> Iterator[LedSharePartition]:
    api = used()
    return iter(()) if api is None else iter(api.shares)


def _where(led: LedSharePartition) -> tuple[str, str, str]:
    return led.key.group_id, led.partition.topic, str(led.partition.index)


def _partitions(used: Used) -> Iterator[Row]:
    for led in _led(used):
        state, counts = led.state, led.counts
        if state is not None:
            in_flight = state.in_flight_count, len(state.records)
            yield Row(_where(led), (*in_flight, counts.lock_timeouts, counts.batch_sizes.count))


def _batch_sizes(used: Used) -> Iterator[Row]:
    return _quantiles((_where(led), led.counts.batch_sizes) for led in _led(used) if led.counts.batch_sizes.count)


def _writes(coordinators: Coordinators) -> Iterator[Row]:
    """Latencies are absent before the first write, as Kafka's are NaN."""
    shares = coordinators.shares
    yield Row((), (shares.write_count, shares.write_times.average(), shares.write_times.quantile(1)))


def _pruned(coordinators: Coordinators, replicas: ReplicaManager) -> Iterator[Row]:
    for index in sorted(coordinators.shares.store.owned):
        partition = replicas.partition(SHARE_STATE_TOPIC, index)
        if partition is not None and not partition.is_offline and partition.log.start_offset:
            yield Row((SHARE_STATE_TOPIC, str(index)), (partition.log.start_offset,))
