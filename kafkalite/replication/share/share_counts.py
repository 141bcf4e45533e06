"""Counts of the records of a share partition by their outcome, since this broker leads it.

The counts outlive the share partition in memory, which is dropped when its group has no session: a test, or a console,
asks for them when the workers are gone.
Source: org.apache.kafka.server.share.metrics.SharePartitionMetrics (4.3) for lock_timeouts and batch_sizes.
"""

from __future__ import annotations

from kafkalite.common.latest_values import LatestValues
from kafkalite.replication.share.in_flight import ACKNOWLEDGED, ARCHIVED


class ShareCounts:
    """Numbers of records. `released` are those that became available again, given back or after their lock."""

    __slots__ = ("acknowledged", "archived", "batch_sizes", "lock_timeouts", "released")

    def __init__(self) -> None:
        self.acknowledged = 0
        self.archived = 0  # rejected, delivered too often, aborted, deleted from the log, or never there
        self.released = 0
        self.lock_timeouts = 0
        self.batch_sizes = LatestValues()  # of records that were acquired for the first time together

    def add(self, state: int, count: int) -> None:
        """Acquired or available records have come to `state`."""
        if state == ACKNOWLEDGED:
            self.acknowledged += count
        elif state == ARCHIVED:
            self.archived += count
        else:
            self.released += count
