"""The metrics of the broker: counters and gauges of its parts, read at each scrape.

Metrics that Apache Kafka has are named as by the JMX exporter and mean the same here, so that dashboards and alerts
keep working; metrics that Kafka does not have begin with `kafkalite_`. Partitions and groups are read a few at a time.
docs/metrics.md lists all metrics.
Source: the MBeans of kafka.log.UnifiedLog, LogManager, LogCleaner, LogCleanerManager, kafka.server.ReplicaManager,
kafka.controller.KafkaController, kafka.network.Processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.cleaner.status import CleaningState
from kafkalite.common.metrics import Column, Metrics, Row
from kafkalite.common.names import NO_LEADER
from kafkalite.server.coordinator_metrics import add_coordinator_metrics

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.cleaner.status import CleanerTotals, PartitionCleaning
    from kafkalite.common.clock import Clock
    from kafkalite.common.metrics import LatestValues
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord
    from kafkalite.network.socket_server import SocketServer
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.server.coordinators import Coordinators
    from kafkalite.server.membership.cluster_member import ClusterMember
    from kafkalite.server.membership.single_broker import SingleBroker
    from kafkalite.zk.controller.pending_changes import ControllerStats

_PER_PAUSE = 500  # partitions or groups of which few numbers are read
_WHERE = ("topic", "partition")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_LOG_COLUMNS = (
    Column("kafka_log_log_size", "Bytes of the partition's segments."),
    Column("kafka_log_log_numlogsegments", "Segments of the partition."),
    Column("kafka_log_log_logstartoffset", "The first offset that may be read."),
    Column("kafka_log_log_logendoffset", "The offset that the next record will get."),
    Column("kafkalite_log_high_watermark", "Consumers read what lies below this offset."),
    Column(
        "kafkalite_log_live_records", "Data records, aborted ones too, exactly; absent where they were not counted yet."
    ),
    Column("kafkalite_log_control_records", "Markers of transactions, exactly; absent like live records."),
    Column(
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets that read_committed consumers cannot read yet; absent if there are none.",
    ),
)
_BROKER_COLUMNS = (
    Column("kafka_server_replicamanager_partitioncount", "Partitions of this broker."),
    Column("kafka_server_replicamanager_leadercount", "Partitions that this broker leads."),
    Column("kafka_server_replicamanager_offlinereplicacount", "Partitions in directories that have failed."),
    Column("kafka_controller_kafkacontroller_activecontrollercount", "1 if this broker is the controller."),
    Column("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader."),
    Column(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions that are not led by their first replica.",
    ),
    Column("kafka_controller_kafkacontroller_globaltopiccount", "Topics."),
    Column("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of all topics."),
    Column("kafka_controller_kafkacontroller_activebrokercount", "Brokers that are registered."),
    Column("kafka_controller_kafkacontroller_fencedbrokercount", "0: a broker is registered, or it is not."),
)
_DELETION_COLUMNS = (
    Column("kafka_controller_kafkacontroller_topicstodeletecount", "Topics that are to be deleted."),
    Column(
        "kafka_controller_kafkacontroller_topicsineligibletodeletecount",
        "Those of them that wait for a broker that is away.",
    ),
    Column("kafka_controller_kafkacontroller_replicastodeletecount", "Replicas that are to be deleted."),
    Column(
        "kafka_controller_kafkacontroller_replicasineligibletodeletecount", "Those of them on brokers that are away."
    ),
)
_CONTROLLER_STATS = "kafka_controller_controllerstats"
_QUANTILES = ("0.5", "0.95", "0.99")
_PROCESSOR = "kafka_server_socket_server_metrics"
_PROCESSOR_COLUMNS = (
    Column(f"{_PROCESSOR}_connection_count", "Open connections of clients."),
    Column(f"{_PROCESSOR}_connection_creation_total", "Connections of clients that were taken."),
    Column(f"{_PROCESSOR}_incoming_byte_total", "Bytes received from clients."),
    Column(f"{_PROCESSOR}_outgoing_byte_total", "Bytes of answers to clients."),
    Column("kafkalite_requests_total", "Requests of clients."),
)
_LATE_TRANSACTIONS = Column(
    "kafka_server_replicamanager_partitionswithlatetransactionscount",
    "Partitions with a transaction that is open for longer than any timeout allows.",
)
_LATE_TRANSACTION_BUFFER_MS = 5 * 60_000  # Kafka's: time for the coordinator to write its marker
_CLEANING = "kafkalite_log_cleaner"
_CLEANING_COLUMNS = (
    Column(f"{_CLEANING}_dirty_ratio", "Share of the log's compactable bytes that were not compacted yet."),
    Column(f"{_CLEANING}_clean_bytes", "Bytes in front of the first dirty offset."),
    Column(f"{_CLEANING}_dirty_bytes", "Bytes that could be compacted now."),
    Column(f"{_CLEANING}_uncleanable_bytes", "Bytes that may not be compacted yet."),
    Column(f"{_CLEANING}_first_dirty_offset", "The log is compacted below this offset."),
    Column(f"{_CLEANING}_is_running", "1 while the log is being compacted."),
    Column(f"{_CLEANING}_is_set_aside", "1 if the log cannot be compacted: see kafkalite cleaner status."),
    Column(f"{_CLEANING}_partition_runs_total", "Cleanings of the log since the start."),
    Column(f"{_CLEANING}_last_run_timestamp_seconds", "When the last cleaning ended, in seconds since 1970."),
    Column(f"{_CLEANING}_last_run_seconds", "How long the last cleaning took."),
    Column(f"{_CLEANING}_last_run_read_bytes", "Bytes that the last cleaning read to rewrite."),
    Column(f"{_CLEANING}_last_run_kept_bytes", "Bytes that it kept."),
    Column(f"{_CLEANING}_last_run_read_records", "Records that the last cleaning read to rewrite."),
    Column(f"{_CLEANING}_last_run_kept_records", "Records that it kept."),
)


def broker_metrics(
    member: SingleBroker | ClusterMember,
    logs: LogManager,
    replica_manager: ReplicaManager,
    coordinators: Coordinators,
    server: SocketServer,
    cleaner: Callable[[], LogCleaner],
    config: Callable[[], BrokerConfig],
    clock: Clock,
) -> Metrics:
    """All metrics but those of replication and quotas. Metrics of the whole cluster are 0 except on its controller, as
    in Kafka, so that the sum over all brokers counts them once."""
    metrics = Metrics()
    _add_process_metrics(metrics)
    metrics.table(_BROKER_COLUMNS, (), partial(_broker, replica_manager, member.metadata, member.broker_id))
    if member.controller_stats is not None:
        _add_controller_stats(metrics, member.controller_stats)
    directories = logs.directories
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Directories of log.dirs whose disk has failed.",
        lambda: len(directories.offline),
    )
    metrics.table(
        (Column("kafka_log_logmanager_logdirectoryoffline", "1 if the directory's disk has failed."),),
        ("logDirectory",),
        lambda: [Row((one.path,), (not one.is_online,)) for one in directories],
    )
    metrics.table(_PROCESSOR_COLUMNS, ("networkProcessor",), partial(_processors, server))
    add_coordinator_metrics(metrics, coordinators)
    metrics.table((_LATE_TRANSACTIONS,), (), partial(_late_transactions, replica_manager, config, clock))
    metrics.gauge(
        "kafka_log_logcleaner_deadthreadcount",
        "1 while the cleaner as a whole has a trouble, such as a worker process that cannot begin; /health names it.",
        lambda: cleaner().problem is not None,
    )
    _add_cleaner_totals(metrics, lambda: cleaner().totals())
    metrics.table(_CLEANING_COLUMNS, _WHERE, partial(_cleaning, replica_manager, cleaner))
    metrics.table(_LOG_COLUMNS, _WHERE, partial(_partitions, replica_manager))
    return metrics


def health(logs: LogManager, cleaner: LogCleaner) -> str:
    """One line: "ok", or the faults of a broker that is still serving."""
    wrong = [f"failed directory: {directory.path}" for directory in logs.directories.offline]
    if cleaner.problem is not None:
        wrong.append(cleaner.problem)
    if count := cleaner.totals().failing_partitions:
        wrong.append(f"{count} {'log' if count == 1 else 'logs'} cannot be compacted, see kafkalite cleaner status")
    return "; ".join(wrong) or "ok"


def _add_process_metrics(metrics: Metrics) -> None:
    """Under the names that every exporter uses."""
    started_s = _process_started_s()
    metrics.gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", lambda: started_s)
    metrics.counter("process_cpu_seconds_total", "Processor time of the broker's process.", time.process_time)
    metrics.gauge("process_resident_memory_bytes", "Memory of the broker's process.", _resident_bytes)


def _process_started_s() -> float | None:
    """None where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks_after_boot = int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks_after_boot / os.sysconf("SC_CLK_TCK")
    return round(time.time() - up_s, 2)


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return None


def _broker(replica_manager: ReplicaManager, metadata: ClusterMetadata, broker_id: int) -> Iterator[Row | None]:
    here = leading = offline = since_pause = of_all = leaderless = imbalanced = 0
    names = list(replica_manager)
    for topic in names:
        led, states = topic.partitions, topic.states
        broken = sum([partition.is_offline for partition in led.values()])
        broken_followers = sum([replica_manager.is_offline(topic.name, index) for index in states if index not in led])
        offline += broken + broken_followers
        here += len(led) + len(topic.followers) + broken_followers
        leading += len(led) - broken
        of_all += len(states)
        leaderless += broken + sum([state.leader == NO_LEADER and index not in led for index, state in states.items()])
        imbalanced += sum([not _has_preferred_leader(state) for state in states.values()])
        since_pause += 1 + len(states)
        if since_pause >= _PER_PAUSE:
            since_pause = 0
            yield None
    is_controller = metadata.controller_id == broker_id
    broker_count = len(metadata.brokers)
    of_cluster = (1, leaderless, imbalanced, len(names), of_all, broker_count) if is_controller else (0,) * 6
    fenced = 0  # Kafka's in ZooKeeper mode as well
    yield Row((), (here, leading, offline, *of_cluster, fenced))


def _has_preferred_leader(state: PartitionRecord) -> bool:
    """Whether the preferred leader leads. A replica that a reassignment adds need not lead before it is in sync.
    Source: kafka.controller.ControllerContext.hasPreferredLeader."""
    preferred = state.replicas[0]
    return state.leader == preferred or (preferred in state.adding and preferred not in state.isr)


def _add_controller_stats(metrics: Metrics, stats: ControllerStats) -> None:
    metrics.counter(
        f"{_CONTROLLER_STATS}_uncleanleaderelections_total",
        "Leaders that may lack committed records, elected while this broker was the controller.",
        lambda: stats.unclean_elections,
    )
    metrics.counter(
        "kafkalite_controller_leader_elections_total",
        "Partitions that got another leader, or a new epoch, while this broker was the controller.",
        lambda: stats.elections,
    )
    metrics.table(_DELETION_COLUMNS, (), lambda: [Row((), stats.deletions)])
    _add_durations(
        metrics,
        f"{_CONTROLLER_STATS}_leaderelectionrateandtimems",
        "Times that this broker, as the controller, elected leaders because brokers came or went.",
        stats.election_rounds,
    )
    _add_durations(
        metrics,
        f"{_CONTROLLER_STATS}_autoleaderbalancerateandtimems",
        "Times that this broker, as the controller, checked whether preferred replicas have to lead again.",
        stats.balances,
    )


def _add_durations(metrics: Metrics, name: str, text: str, durations: LatestValues) -> None:
    metrics.counter(f"{name}_count", text, lambda: durations.count)
    metrics.table(
        (Column(name, "How many milliseconds the latest of them took."),),
        ("quantile",),
        lambda: [Row((quantile,), (durations.quantile(float(quantile)),)) for quantile in _QUANTILES],
    )


def _processors(server: SocketServer) -> Iterator[Row]:
    for one in server.processors:
        numbers = (len(one.connections), one.connections_accepted, one.bytes_in, one.bytes_out, one.requests)
        yield Row((str(one.number),), numbers)


def _late_transactions(
    replica_manager: ReplicaManager, config: Callable[[], BrokerConfig], clock: Clock
) -> Iterator[Row | None]:
    """Source: ProducerStateManager.hasLateTransaction."""
    late_since_ms = clock.wall_ms() - config().transaction_max_timeout_ms - _LATE_TRANSACTION_BUFFER_MS
    late = since_pause = 0
    for topic in list(replica_manager):
        for partition in list(topic.partitions.values()):
            oldest = None if partition.is_offline else partition.producers.oldest_open
            late += oldest is not None and 0 < oldest.last_timestamp_ms < late_since_ms
        since_pause += 1 + len(topic.partitions)
        if since_pause >= _PER_PAUSE:
            since_pause = 0
            yield None
    yield Row((), (late,))


def _partitions(replica_manager: ReplicaManager) -> Iterator[Row]:
    for topic in list(replica_manager):
        for index, partition in [*topic.partitions.items(), *topic.followers.items()]:
            if partition.is_offline or replica_manager.by_name.get(topic.name) is not topic:
                continue
            log = partition.log
            counts = log.record_counts.known()
            yield Row(
                (topic.name, str(index)),
                (
                    log.size_bytes,
                    len(log.segments),
                    log.start_offset,
                    log.end_offset,
                    partition.high_watermark,
                    None if counts is None else counts.records,
                    None if counts is None else counts.control_records,
                    partition.high_watermark - partition.last_stable_offset or None,
                ),
            )


# compaction


def _add_cleaner_totals(metrics: Metrics, totals: Callable[[], CleanerTotals]) -> None:
    """Add the totals of the cleaner, all from one call of `totals`."""
    columns = (
        Column("kafka_log_logcleanermanager_uncleanable_partitions_count", "Logs that cannot be compacted."),
        Column("kafka_log_logcleanermanager_uncleanable_bytes", "Bytes of logs that cannot be compacted."),
        Column(f"{_CLEANING}_failing_partitions", "Logs whose last try failed, whether it is repeated or not."),
        Column("kafka_log_logcleanermanager_max_dirty_percent", "The dirtiest log's share of dirty bytes, in percent."),
        Column("kafka_log_logcleanermanager_time_since_last_run_ms", "Time since the cleaner's last scan."),
        Column("kafka_log_logcleaner_max_clean_time_secs", "Duration of the last cleaning."),
        Column(
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            "How full the offset map of the last cleaning was, in percent.",
        ),
        Column("kafka_log_logcleaner_cleaner_recopy_percent", "Bytes kept of those read in the last cleaning."),
        Column(f"{_CLEANING}_workers", "Worker processes that are running."),
        Column(f"{_CLEANING}_workers_busy", "Worker processes that are compacting a log."),
        Column(f"{_CLEANING}_worker_deaths_total", "Worker processes that ended when they should not."),
        Column(f"{_CLEANING}_runs_total", "Cleanings of logs."),
        Column(f"{_CLEANING}_read_bytes_total", "Bytes read to be rewritten."),
        Column(f"{_CLEANING}_kept_bytes_total", "Bytes of them that were kept."),
        Column(f"{_CLEANING}_read_records_total", "Records read to be rewritten."),
        Column(f"{_CLEANING}_kept_records_total", "Records of them that were kept."),
    )

    def rows() -> Iterator[Row]:
        now = totals()
        values = (
            now.uncleanable_partitions,
            now.uncleanable_bytes,
            now.failing_partitions,
            100 * now.max_dirty_ratio,
            now.ms_since_last_run,
            now.max_clean_seconds,
            100 * now.max_buffer_utilization,
            100 * now.recopy_ratio,
            now.workers,
            now.workers_busy,
            now.worker_deaths,
            now.runs,
            now.bytes_read,
            now.bytes_kept,
            now.records_read,
            now.records_kept,
        )
        yield Row((), values)

    metrics.table(columns, (), rows)


def _cleaning(replica_manager: ReplicaManager, cleaner: Callable[[], LogCleaner]) -> Iterator[Row]:
    for topic in list(replica_manager):
        if "compact" in topic.config.cleanup_policy:
            keys = [(topic.name, index) for index in topic.partitions]
            for one in cleaner().rows(keys, as_last_seen=True):
                yield Row((one.topic, str(one.partition)), _of_one_log(one))


def _of_one_log(one: PartitionCleaning) -> tuple[float | None, ...]:
    last = one.last
    return (
        one.dirty_ratio,
        one.clean_bytes,
        one.dirty_bytes,
        one.uncleanable_bytes,
        one.first_dirty_offset,
        one.state is CleaningState.CLEANING,
        one.state is CleaningState.UNCLEANABLE,
        one.runs,
        None if one.last_run_ms < 0 else one.last_run_ms / 1000,
        None if last is None else last.seconds,
        None if last is None else last.bytes_read,
        None if last is None else last.bytes_kept,
        None if last is None else last.records_read,
        None if last is None else last.records_kept,
    )
