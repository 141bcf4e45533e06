"""The share partitions of the partitions that this broker leads, by group.

Each is made and loaded at its first use, and dropped when its group has no session here any more, when the partition
is led by another broker or under another epoch, and when it is fenced.
Source: kafka.server.share.SharePartitionManager, SharePartitionCache (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.metrics import LatestValues
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.replication.partition import Partition
from kafkalite.replication.share.durable_state import SharePartitionKey
from kafkalite.replication.share.in_flight import ShareCounts
from kafkalite.replication.share.led_share_partition import LedSharePartition, ShareStateStore
from kafkalite.replication.share.share_partition import ShareLimits

logger = logging.getLogger(__name__)

EARLIEST = "earliest"
LATEST = "latest"
_COUNTS_MAX = 2_000  # share partitions, in use or not, whose counts are kept


def _log(error: KafkaError | None) -> None:
    if error is not None:
        logger.warning("records of a member that left could not be released: %s", error)


class ShareReading(NamedTuple):
    """How a group reads: its own settings over the broker's."""

    limits: ShareLimits
    reads_committed: bool
    begins_at: str | int  # EARLIEST, LATEST, or how many ms before now


class SharePartitions:
    """All of them. `reading_of` gives the settings of a group, `load_times` are milliseconds."""

    def __init__(self, clock: Clock, store: ShareStateStore, reading_of: Callable[[str], ShareReading]) -> None:
        self.reading_of = reading_of
        self.load_times = LatestValues()
        self._clock = clock
        self._store = store
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._counts: dict[SharePartitionKey, ShareCounts] = {}

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(list(self._led.values()))

    def get(self, group_id: str, topic_id: UUID, partition: Partition) -> tuple[LedSharePartition, bool]:
        """The share partition, which may be loading, and whether this is its first use."""
        key = SharePartitionKey(group_id, topic_id, partition.index)
        led = self._led.get(key)
        if led is not None and led.partition is not partition:
            self._fence(led)
            led = None
        is_new = led is None
        if led is None:
            limits, counts = partial(self._limits, group_id), self._counts_for(key)
            led = LedSharePartition(key, partition, self._store, self._clock, limits, self._forget, counts)
            self._led[key] = led
            led.load(partial(self._first_offset, group_id, partition), self.load_times.add)
        return led, is_new

    def _counts_for(self, key: SharePartitionKey) -> ShareCounts:
        counts = self._counts.pop(key, None) or ShareCounts()
        self._counts[key] = counts
        if len(self._counts) > _COUNTS_MAX:
            del self._counts[next(iter(self._counts))]
        return counts

    def counts_of(self, key: SharePartitionKey) -> ShareCounts | None:
        """The counts of a share partition since this broker leads it; it may not be in use now."""
        return self._counts.get(key)

    def find(self, group_id: str, topic_id: UUID, index: int) -> LedSharePartition | None:
        """The share partition if it is in use."""
        return self._led.get(SharePartitionKey(group_id, topic_id, index))

    def drop_group(self, group_id: str) -> None:
        """The group has no session here: its share partitions are loaded again when it returns."""
        for key, led in list(self._led.items()):
            if key.group_id == group_id:
                self._fence(led)

    def on_session_end(self, group_id: str, member_id: str, partitions: Iterable[tuple[UUID, int]]) -> None:
        """A session of the member has ended: what it holds of these partitions is released."""
        for topic_id, index in partitions:
            led = self.find(group_id, topic_id, index)
            if led is not None:
                led.release(member_id, _log)

    def on_resignation(self, partition: Partition) -> None:
        """Another broker leads the partition, or it is deleted."""
        for led in self:
            if led.partition is partition:
                self._fence(led)
        topic_id = partition.log.metadata.topic_id
        for key in [each for each in self._counts if each[1:] == (topic_id, partition.index)]:
            del self._counts[key]

    def close(self) -> None:
        for led in self:
            self._fence(led)

    def _fence(self, led: LedSharePartition) -> None:
        led.fence(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _forget(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]

    def _limits(self, group_id: str) -> ShareLimits:
        return self.reading_of(group_id).limits

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        """Where a group begins that has never read the partition. Raises KafkaError."""
        begins_at = self.reading_of(group_id).begins_at
        if begins_at == EARLIEST:
            return partition.log.start_offset
        if isinstance(begins_at, str):
            return partition.latest_offset()
        lookup = partition.lookup_of_timestamp(self._clock.wall_ms() - begins_at)
        while lookup.begin():
            lookup.read()
        return partition.latest_offset() if lookup.found is None else lookup.found.offset
