"""The fetchers of a broker: num.replica.fetchers for each leader, over which its partitions are spread by their names.

A fetcher begins with its first partition and ends with its last one.
Source: kafka.server.{AbstractFetcherManager, ReplicaFetcherManager}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkalite.client.broker_channel import SecurityTo, without_security
from kafkalite.common.names import java_hash
from kafkalite.replication.replica.replication_quota import ReplicationQuota
from kafkalite.replication.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from kafkalite.client.broker_channel import FindEndpoint
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.replication.follower_partition import FollowerPartition


def fetcher_number(topic: str, index: int, count: int) -> int:
    """The number of the fetcher, of `count`, for a partition. Kafka's: abs(31 * hash + index) % count in 32 bits."""
    mixed = (31 * java_hash(topic) + index) & 0xFFFFFFFF
    if mixed >= 1 << 31:
        mixed -= 1 << 32
    return (0 if mixed == -(1 << 31) else abs(mixed)) % count


class ReplicaFetcherManager:
    """`quota` limits replicas of follower.replication.throttled.replicas. `bytes_in`, `reassignment_bytes_in` and
    `requests` are totals of all fetchers, also of those that have ended.

    Invariant: a partition that was added and not removed is in exactly one fetcher, that of its leader and number.
    """

    def __init__(
        self,
        find: FindEndpoint,
        clock: Clock,
        settings: Callable[[], BrokerConfig],
        broker_id: int,
        registration: Callable[[], int],
        security_to: SecurityTo = without_security,
    ) -> None:
        """`find` gives a broker's inter-broker endpoint, `registration` this broker's registration number."""
        self._find = find
        self._security_to = security_to
        self._clock = clock
        self._settings = settings
        self._broker_id = broker_id
        self._registration = registration
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._fetcher_of: dict[FollowerPartition, ReplicaFetcher] = {}
        self._ending: set[asyncio.Future[None]] = set()
        self._bytes_in = self._reassignment_bytes_in = self._requests = 0  # of fetchers that have ended
        now = settings()
        self._count = now.num_replica_fetchers
        self.quota = ReplicationQuota(
            broker_id,
            lambda: settings().follower_replication_throttled_rate,
            now.replication_quota_window_num,
            now.replication_quota_window_size_seconds * 1000,
        )

    def add(self, partition: FollowerPartition) -> None:
        """Fetch the partition from its leader."""
        partition.begin()
        self._place(partition)

    def remove(self, partition: FollowerPartition) -> None:
        """When this returns, nothing of an answer in flight reaches the partition."""
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            if not len(fetcher):
                asyncio.get_running_loop().call_soon(self._end_idle, fetcher)

    def on_brokers(self) -> None:
        """Brokers have come, gone or moved."""
        for fetcher in list(self._fetchers.values()):
            fetcher.on_brokers()

    def on_settings(self) -> None:
        """The broker's settings have changed; with another number of fetchers all partitions are spread again."""
        count = self._settings().num_replica_fetchers
        if count != self._count:
            self._count = count
            partitions = list(self._fetcher_of)
            for partition in partitions:
                self.remove(partition)
            for partition in partitions:
                self._place(partition)

    async def close(self) -> None:
        """Fetch nothing any more."""
        self._fetcher_of.clear()
        for fetcher in list(self._fetchers.values()):
            self._end(fetcher)
        await asyncio.gather(*self._ending)

    def _place(self, partition: FollowerPartition) -> None:
        number = fetcher_number(partition.topic, partition.index, self._count)
        fetcher = self._fetchers.get((partition.leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[partition.leader_id, number] = ReplicaFetcher(
                partition.leader_id,
                number,
                self._find,
                self._clock,
                self._settings,
                self.quota,
                self._broker_id,
                self._registration,
                self._security_to,
            )
        self._fetcher_of[partition] = fetcher
        fetcher.add(partition)

    def _end_idle(self, fetcher: ReplicaFetcher) -> None:
        """A turn later, since a partition that changes its leader epoch is removed and added again."""
        if not len(fetcher) and fetcher in self._fetchers.values():
            self._end(fetcher)

    def _end(self, fetcher: ReplicaFetcher) -> None:
        self._fetchers = {key: each for key, each in self._fetchers.items() if each is not fetcher}
        self._bytes_in += fetcher.bytes_in
        self._reassignment_bytes_in += fetcher.reassignment_bytes_in
        self._requests += fetcher.requests
        ending = asyncio.ensure_future(fetcher.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    # Numbers for metrics

    def __iter__(self) -> Iterator[ReplicaFetcher]:
        return iter(self._fetchers.values())

    @property
    def fetcher_count(self) -> int:
        return len(self._fetchers)

    @property
    def bytes_in(self) -> int:
        """The bytes that followers here have appended, since the start."""
        return self._bytes_in + sum(fetcher.bytes_in for fetcher in self)

    @property
    def reassignment_bytes_in(self) -> int:
        """The part of `bytes_in` for replicas that a reassignment adds (ReassignmentBytesInPerSec)."""
        return self._reassignment_bytes_in + sum(fetcher.reassignment_bytes_in for fetcher in self)

    @property
    def requests(self) -> int:
        """The fetches that were sent, since the start."""
        return self._requests + sum(fetcher.requests for fetcher in self)

    @property
    def max_lag(self) -> int:
        """The committed records that the follower which is furthest behind does not have (MaxLag)."""
        return max((partition.lag or 0 for partition in self._fetcher_of), default=0)

    @property
    def failed_partition_count(self) -> int:
        """Followers that wait for a new leader epoch (FailedPartitionsCount)."""
        return sum(partition.is_failed for partition in self._fetcher_of)

    def lags(self) -> dict[tuple[str, int], int]:
        """The lag of each partition that its leader has answered for (ConsumerLag of the fetcher)."""
        return {(each.topic, each.index): each.lag for each in self._fetcher_of if each.lag is not None}
