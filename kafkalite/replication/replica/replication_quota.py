"""The quota of replication: how fast replicas that are not in sync may be filled, at their leader and at the follower.

The rate is measured over some windows of fixed length, and bytes are recorded after they have moved: a caller that
finds the quota exceeded leaves the throttled partitions out until it is not. Replicas that are in sync are never left
out, but count.
Source: kafka.server.ReplicationQuotaManager, org.apache.kafka.common.metrics.stats.SimpleRate, KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

EVERY_REPLICA = ("*",)


class ReplicationQuota:
    """The bytes per second of one direction. Times are monotonic milliseconds.

    Invariant: `_windows` are [start, bytes], ascending; `_total_bytes` is their sum.
    """

    __slots__ = ("_broker_id", "_covered", "_rate", "_total_bytes", "_window_count", "_window_ms", "_windows")

    def __init__(self, broker_id: int, rate: Callable[[], int], window_count: int, window_ms: float) -> None:
        """`rate` is the setting leader.replication.throttled.rate or follower.replication.throttled.rate."""
        self._broker_id = broker_id
        self._rate = rate
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()
        self._total_bytes = 0.0
        self._covered: tuple[tuple[str, ...], frozenset[int]] = ((), frozenset())  # the latest list, parsed

    def covers(self, replicas: tuple[str, ...], index: int) -> bool:
        """Whether the topic's setting (partition:broker of each replica, or "*") names this broker's replica."""
        if not replicas:
            return False
        if replicas == EVERY_REPLICA:
            return True
        if self._covered[0] is not replicas:
            own = f":{self._broker_id}"
            found = frozenset(int(word.partition(":")[0]) for word in replicas if word.endswith(own))
            self._covered = (replicas, found)
        return index in self._covered[1]

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Bytes of a covered partition have moved."""
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += size_bytes
        self._total_bytes += size_bytes

    def byte_rate(self, now_ms: float) -> float:
        """Bytes per second since the beginning of the oldest window; the first one counts as if it were over."""
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self._window_count * self._window_ms:
            self._total_bytes -= windows.popleft()[1]
        if not windows:
            return 0.0
        return self._total_bytes * 1000 / max(now_ms - windows[0][0], self._window_ms)

    def is_exceeded(self, now_ms: float) -> bool:
        return bool(self._windows) and self.byte_rate(now_ms) > self._rate()

    def exceeded_until_ms(self, now_ms: float) -> float:
        """The time from which on it is exceeded no more if nothing moves meanwhile; now if it is not exceeded."""
        if not self.is_exceeded(now_ms):
            return now_ms
        start_ms = self._windows[0][0]
        expiry_ms = start_ms + self._window_count * self._window_ms
        rate = self._rate()
        return min(expiry_ms, start_ms + self._total_bytes * 1000 / rate) if rate > 0 else expiry_ms
