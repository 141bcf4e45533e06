"""The topics at the target in which a mirror keeps its state: created when they are missing, compacted, one partition.

Checkpoints and heartbeats are written outside of transactions, after what they are about is committed.
Source: org.apache.kafka.connect.mirror.MirrorUtils (createSinglePartitionCompactedTopic).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.state_records import OffsetSync
from kafkalite.client.partition_scan import PartitionScan
from kafkalite.client.producer.record_writer import RecordWriter
from kafkalite.client.topic_changes import create_topics
from kafkalite.common.errors import Malformed
from kafkalite.record.batch import NewRecord

OFFSET_SYNCS_KEPT_MS = 86_400_000


class StateTopics:
    """Writes to topics of the target. Raises Unanswered, WriteFailed."""

    def __init__(self, target: ClusterClient, retries: Retries, replication_factor: int = -1) -> None:
        self._target = target
        self._retries = retries
        self._replication_factor = replication_factor
        self._writers: dict[str, RecordWriter] = {}

    def write(self, topic: str, records: Iterable[NewRecord]) -> None:
        """Returns when the records are on every in-sync replica."""
        writer = self._writer(topic)
        for record in records:
            writer.add(record, 0)
        writer.flush()

    def create(self, *topics: str, kept_ms: int = 0) -> None:
        """Creates those that are missing. Compaction keeps all records of the last `kept_ms`."""
        refused = create_topics(
            self._target,
            topics,
            self._retries.timeout_s,
            partitions=1,
            replicas=self._replication_factor,
            configs={"cleanup.policy": "compact"} | ({"min.compaction.lag.ms": str(kept_ms)} if kept_ms else {}),
            if_not_exists=True,
        )
        if refused:
            raise WriteFailed(refused[0])

    def _writer(self, topic: str) -> RecordWriter:
        writer = self._writers.get(topic)
        if writer is None:
            writer = self._writers[topic] = RecordWriter(self._target, topic, self._retries)
        return writer


def read_offset_syncs(cluster: ClusterClient, topic: str, timeout_s: float) -> Iterator[OffsetSync]:
    """All pairs of offsets in a topic, in their order; none if it is not there. Raises Unanswered."""
    key = topic, 0
    if key not in cluster.places:
        return
    offsets = LogOffsets(cluster, timeout_s)
    position, end = offsets.starts([key])[key], offsets.ends([key])[key]
    scan = PartitionScan(cluster, topic, 0, committed_only=True)
    while position < end:
        for record in scan.read(position, end):
            try:
                if record.marker is None and record.value is not None:
                    yield OffsetSync.read(record.key, record.value, record.headers)
            except Malformed:
                continue
        position = max(scan.position, position + 1)
