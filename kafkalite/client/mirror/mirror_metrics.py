"""The metrics of a mirror: lag, records, bytes, latency of each partition; state and errors of each source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkalite.client.mirror.flow_status import FlowStatus
from kafkalite.common.metrics import COUNTER, Column, Metrics, Row

_PARTITION = (
    Column("kafkalite_mirror_lag_records", "Offsets of committed records at the source that are not copied yet."),
    Column("kafkalite_mirror_records_total", "Records copied since the start of this process.", COUNTER),
    Column("kafkalite_mirror_bytes_total", "Bytes of their batches, as they are compressed.", COUNTER),
    Column("kafkalite_mirror_lost_offsets_total", "Offsets that the source deleted before they were copied.", COUNTER),
    Column("kafkalite_mirror_latency_ms", "From the time of the newest record of the last commit to that commit."),
    Column("kafkalite_mirror_position", "The offset at the source that is read next."),
    Column("kafkalite_mirror_partition_failed", "1 for a partition that is not copied for a reason of its own."),
)
_FLOW = (
    Column("kafkalite_mirror_copying", "1 while this process copies from the source."),
    Column("kafkalite_mirror_leads", "1 if this process divides the partitions and follows the topics."),
    Column("kafkalite_mirror_partitions", "Partitions of this process."),
    Column("kafkalite_mirror_errors_total", "Errors since the start of this process.", COUNTER),
    Column("kafkalite_mirror_last_error_timestamp_ms", "The time of the last error."),
)
_LAST_ERROR = (Column("kafkalite_mirror_last_error", "The last error, with its text as a label; 1."),)


def mirror_metrics(statuses: Sequence[FlowStatus]) -> Metrics:
    """The metrics of these sources."""
    metrics = Metrics()

    def partitions() -> Iterator[Row | None]:
        for status in statuses:
            for (topic, index), one in status.partitions.items():
                counts = one.counts
                values = (
                    counts.lag, counts.records, counts.size_bytes, counts.lost, counts.latency_ms, one.position,
                    int(bool(one.fault)),
                )  # fmt: skip
                yield Row((status.source, topic, str(index)), values)

    def flows() -> Iterator[Row | None]:
        for status in statuses:
            values = (
                int(status.is_copying), int(status.leads), len(status.partitions), status.errors, status.last_error_ms
            )  # fmt: skip
            yield Row((status.source,), values)

    def errors() -> Iterator[Row | None]:
        for status in statuses:
            if status.last_error:
                yield Row((status.source, status.last_error), (1,))

    metrics.table(_PARTITION, ("source", "topic", "partition"), partitions)
    metrics.table(_FLOW, ("source",), flows)
    metrics.table(_LAST_ERROR, ("source", "error"), errors)
    return metrics


def health(statuses: Sequence[FlowStatus]) -> str:
    """ "ok", or the first fault."""
    for status in statuses:
        if not status.is_copying:
            return f"{status.source} is not copied: {status.last_error or 'it begins'}"
        if faults := status.faults():
            return faults[0]
    return "ok"
