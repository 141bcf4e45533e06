"""All partitions with their sizes, offsets, exact counts and state of compaction, and all log directories.

It takes a request for every 200 partitions, so it is cached for some seconds for each user, and refreshed in a thread
while pages need it. An Apache Kafka has no counts: its offsets come from ListOffsets.

Every page counts the records that a consumer of committed records gets. In a log with neither markers nor an open
transaction these are its live records. For other logs they are requested, and only when the log has changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from kafkalite.client import log_dirs
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.broker_reports import KnowsBrokers, record_counts
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages import log_dirs as wire

logger = logging.getLogger(__name__)

AGE_S = 10.0
_COUNTING_AGE_S = 0.5
_FIRST_WAIT_S = 0.1
_ASK_S = 10.0


@dataclass(slots=True)
class PartitionFacts:
    """Facts about a leader's log; None is unknown. `records` are those that a consumer of committed records gets,
    `live_records` all data records at or past the start of the log."""

    broker: int | None = None
    directory: str | None = None
    size_bytes: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    last_stable_offset: int | None = None
    records: int | None = None
    live_records: int | None = None
    control_records: int | None = None
    segments: int | None = None
    is_counting: bool = False
    cleaning: wire.LogCleaning | None = None

    def is_like(self, other: PartitionFacts) -> bool:
        """Whether the log is unchanged: no append, deletion, compaction or commit between the two."""
        return self._content() == other._content()

    def _content(self) -> tuple[int | None, ...]:
        offsets = self.start_offset, self.end_offset, self.last_stable_offset
        return (*offsets, self.live_records, self.control_records, self.size_bytes)


@dataclass(slots=True)
class Directory:
    """A log directory of a broker. `error` names the fault of one that has failed."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    free_bytes: int | None
    used_bytes: int
    partitions: int


@dataclass(slots=True)
class Inventory:
    """`made_s` is the time of the request. `is_kafkalite`: the brokers count records."""

    made_s: float
    partitions: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    directories: list[Directory] = field(default_factory=list)
    is_kafkalite: bool = False
    cleaner_is_off: bool = False
    complaints: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def is_counting(self) -> bool:
        return any(one.is_counting for one in self.partitions.values())


class InventoryCache:
    """The last inventory of a user's cluster. One thread builds the next one while others read the last."""

    def __init__(
        self,
        borrow: Callable[[], AbstractContextManager[ClusterClient]],
        brokers: KnowsBrokers,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._borrow = borrow
        self._brokers = brokers
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._made = threading.Event()
        self._last: Inventory | None = None
        self._is_making = False

    def get(self, wait_s: float = _FIRST_WAIT_S) -> Inventory | None:
        """The last inventory, perhaps some seconds old; None if there is none within `wait_s`."""
        last = self._last
        age_s = _COUNTING_AGE_S if last is not None and last.is_counting else AGE_S
        if last is None or self._monotonic_s() - last.made_s > age_s:
            self._begin()
        if last is None:
            self._made.wait(wait_s)
        return self._last

    def forget(self) -> None:
        """Drops the inventory after a change: the next reader starts a new one."""
        last = self._last
        if last is not None:
            last.made_s = float("-inf")

    def _begin(self) -> None:
        with self._lock:
            if self._is_making:
                return
            self._is_making = True
        threading.Thread(target=self._make, name="inventory", daemon=True).start()

    def _make(self) -> None:
        try:
            with self._borrow() as cluster:
                made = take_inventory(cluster, self._monotonic_s())
                _add_records(made, self._last, cluster, self._brokers)
            _add_rates(made, self._last)
            self._last = made
        except Exception as fault:
            logger.warning("the sizes of topics are unknown now: %s", fault)
        finally:
            self._is_making = False
            self._made.set()


def take_inventory(cluster: ClusterClient, now_s: float) -> Inventory:
    """Builds the inventory. Raises Unanswered if no broker answers."""
    made = Inventory(now_s)
    for broker_id, led in sorted(cluster.led_by(()).items()):
        client = cluster.client(broker_id)
        try:
            _add_directories(made, broker_id, client, led)
            _add_counts(made, broker_id, client, sorted(led))
        except Unanswered as fault:
            if client.is_lost:
                raise
            made.complaints.append(f"broker {broker_id}: {fault}")
    for broker_id in sorted(set(cluster.brokers) - set(cluster.led_by(()))):
        try:
            _add_directories(made, broker_id, cluster.client(broker_id), set())
        except Unanswered as fault:
            made.complaints.append(f"broker {broker_id}: {fault}")
    _add_offsets(made, cluster)
    return made


def _add_directories(made: Inventory, broker_id: int, client: BlockingClient, led: set[TopicPartition]) -> None:
    results = log_dirs.directories(client)
    for key, one, path in log_dirs.led_partitions(results, led):
        made.partitions[key] = PartitionFacts(broker_id, path, one.partition_size)
    for result in results:
        sizes = [one.partition_size for topic in result.topics for one in topic.partitions]
        error = None if not result.error_code else f"the disk has failed (error {result.error_code})"
        total, free = (None if each < 0 else each for each in (result.total_bytes, result.usable_bytes))
        made.directories.append(Directory(broker_id, result.log_dir, error, total, free, sum(sizes), len(sizes)))


def _add_counts(made: Inventory, broker_id: int, client: BlockingClient, keys: list[TopicPartition]) -> None:
    for response, partitions in log_dirs.describe(client, keys, count_records=wire.COUNTS, describe_cleaning=True):
        if not response.counts_records:
            return  # an Apache Kafka
        made.is_kafkalite = True
        made.cleaner_is_off = made.cleaner_is_off or response.cleaning == wire.CLEANER_IS_OFF
        for key, one in partitions:
            if one.counts is not None and not one.is_future_key:
                _add_count(made.partitions.setdefault(key, PartitionFacts(broker_id)), one)


def _add_count(facts: PartitionFacts, one: wire.DescribeLogDirsPartition) -> None:
    counts: Any = one.counts
    facts.size_bytes = one.partition_size
    facts.start_offset, facts.end_offset = counts.start_offset, counts.end_offset
    facts.live_records = None if counts.live_records < 0 else counts.live_records
    facts.control_records = None if counts.control_records < 0 else counts.control_records
    facts.segments = counts.segment_count
    facts.is_counting = wire.COUNTING in (counts.live_records, counts.control_records)
    facts.cleaning = one.cleaning


def _add_records(made: Inventory, last: Inventory | None, cluster: ClusterClient, pool: KnowsBrokers) -> None:
    counted = {key: facts for key, facts in made.partitions.items() if facts.live_records is not None}
    stable = LogOffsets(cluster, _ASK_S).known_ends(counted, committed=True).offsets if counted else {}
    before = {} if last is None else last.partitions
    asked: list[TopicPartition] = []
    for key, facts in counted.items():
        facts.last_stable_offset = stable.get(key)
        end, stable_end = facts.end_offset, facts.last_stable_offset
        if facts.control_records == 0 and end is not None and stable_end is not None and stable_end >= end:
            facts.records = facts.live_records
        elif key in before and before[key].records is not None and facts.is_like(before[key]):
            facts.records = before[key].records
        else:
            asked.append(key)
    for (key, _), count in record_counts(cluster, pool, [(key, 0) for key in asked]).items():
        made.partitions[key].records = count


def _add_offsets(made: Inventory, cluster: ClusterClient) -> None:
    """Adds offsets from ListOffsets for the partitions whose leaders returned none."""
    missing = [key for key in cluster.places if (facts := made.partitions.get(key)) is None or facts.end_offset is None]
    if not missing:
        return
    of_logs = LogOffsets(cluster, _ASK_S)
    starts, ends = of_logs.known_starts(missing).offsets, of_logs.known_ends(missing).offsets
    for key in missing:
        if key in ends:
            facts = made.partitions.setdefault(key, PartitionFacts(cluster.places[key].leader))
            facts.start_offset, facts.end_offset = starts.get(key), ends[key]


def _add_rates(made: Inventory, last: Inventory | None) -> None:
    """Adds the growth of topics in bytes per second. Deleted segments count as no growth."""
    if last is None or made.made_s <= last.made_s or last.made_s < 0:
        return
    grown: dict[str, int] = {}
    for key, facts in made.partitions.items():
        before = last.partitions.get(key)
        if before is not None and facts.size_bytes is not None and before.size_bytes is not None:
            grown[key[0]] = grown.get(key[0], 0) + max(0, facts.size_bytes - before.size_bytes)
    seconds = made.made_s - last.made_s
    made.rates = {topic: round(size / seconds, 1) for topic, size in grown.items()}
