"""State that the fetches of all followers share at their leader, and the requests that wait for it to lead.

Source: kafka.server.ReplicaManager (delayedFetchPurgatory), kafka.server.QuotaFactory (leader).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.common.names import TopicPartition
    from kafkalite.metadata.cluster_metadata import PartitionRecord
    from kafkalite.replication.delayed_operations import DelayedOperation
    from kafkalite.replication.replica.replication_quota import ReplicationQuota


class FollowerFetches:
    """The quota, the bytes that followers got, `reassignment_bytes_out` among them for replicas that are being added,
    and `ahead`: fetches and produces that wait until this broker is elected, which they know already. `awaited` has the
    state in which a partition was waited for, and until when."""

    __slots__ = ("ahead", "awaited", "bytes_out", "quota", "reassignment_bytes_out")

    def __init__(self, quota: ReplicationQuota) -> None:
        self.quota = quota
        self.bytes_out = self.reassignment_bytes_out = 0
        self.ahead: dict[DelayedOperation, None] = {}
        self.awaited: dict[TopicPartition, tuple[PartitionRecord, int]] = {}

    def on_election(self) -> None:
        """This broker leads more."""
        for operation in tuple(self.ahead):
            operation.wake()
