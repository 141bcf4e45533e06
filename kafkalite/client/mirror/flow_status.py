"""The state of one source's mirror, written by its threads, and the metrics and health that a scrape reads of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.common.metrics import COUNTER, Column, Metrics, Row
from kafkalite.common.names import TopicPartition

logger = logging.getLogger("kafkalite.mirror")


@dataclass(slots=True)
class FlowStatus:
    """`partitions` are those of this process; a new dict replaces it when the group divides them. `is_copying`: the
    process is a member of the group and both clusters answer. `topics` are all that are copied, if it leads."""

    source: str
    wall_ms: Callable[[], int]
    partitions: dict[TopicPartition, CopiedPartition] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    is_copying: bool = False
    leads: bool = False
    errors: int = 0
    last_error: str = ""
    last_error_ms: int | None = None

    def report(self, fault: str) -> None:
        """Notes an error, and logs it if it is another than the last one."""
        self.errors += 1
        if fault != self.last_error:
            logger.warning("%s: %s", self.source, fault)
        self.last_error, self.last_error_ms = fault, self.wall_ms()

    def faults(self) -> list[str]:
        """The partitions that are not copied, with the reason."""
        return [f"{one.name}: {one.fault}" for one in self.partitions.values() if one.fault]


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
