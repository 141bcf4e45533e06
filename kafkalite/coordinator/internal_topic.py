"""A coordinator's topic on this broker: creation at the first use, loading of led partitions, appends.

A coordinator owns exactly the partitions of its topic that this broker leads: a partition is loaded into the
coordinator's store when this broker is elected leader (`on_election`), and unloaded when it resigns (`on_resignation`).
Used for `__consumer_offsets`, `__transaction_state` and `__share_group_state`.
Source: kafka.coordinator.group.GroupMetadataManager, kafka.coordinator.transaction.TransactionStateManager (loading and
appending).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from typing import Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import ProducerIdAndEpoch, partition_for_id
from kafkalite.coordinator.internal_topic_settings import TopicSettings
from kafkalite.coordinator.runtime.effects import AppendDone, Records
from kafkalite.coordinator.runtime.partitioned_store import PIECE_BYTES, PartitionedStore, PartitionLoader
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.record.batch import build_batch_at
from kafkalite.record.batches import find_bounds
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition, ReplicatedPartition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin

logger = logging.getLogger(__name__)

_INTERNAL_PRODUCE_VERSION = 9
_OF_CLEANUP = ("cleanup.policy", "retention.ms")
_PRODUCERS_FAULTS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
_WITHOUT_REPLICAS = frozenset(  # clients repeat their requests until there are enough, or another leader
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_RECENT_MS = 30_000  # the window of Kafka's metrics of loads
_LOADS_REMEMBERED = 1_000
_APPEND_MS = 60_000  # the default of transaction.timeout.ms; Kafka takes that of the transaction
TURN_BYTES = 64 * 1024
COLUMNS_FROM_BYTES = 4 << 20
"""From so many bytes on that are still to be read, a partition is read as columns: the import of numpy takes as long as
reading them takes without."""
ROLL_BYTES = 1 << 20
"""An active segment of this size is sealed if it is at least as large as all others together. Compaction leaves active
segments alone, and with the 100 MiB of segment.bytes a start would read every commit and transaction since the last
roll. So it reads at most about this and twice what compaction keeps; without compaction segments double in size."""


class InternalTopic:
    """One such topic on this broker. `new_loader` makes the loader of a partition; `attach` gives it the store. An
    append waits for `append_ms` for other replicas."""

    def __init__(
        self,
        settings: TopicSettings,
        new_loader: Callable[[], PartitionLoader],
        clock: Clock,
        replicas: ReplicaManager,
        topic_admin: TopicAdmin,
        append_ms: int = _APPEND_MS,
    ) -> None:
        self.name = settings.name
        self._append_ms = append_ms
        self._settings = settings
        self._new_loader = new_loader
        self._clock = clock
        self._replicas = replicas
        self._topic_admin = topic_admin
        self._store: PartitionedStore[Any, Any] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._is_attached = False  # the store has the topic's partition count
        self._unread: dict[int, Partition] = {}  # Invariant: led here and loading, in the order of their elections
        self._loading: asyncio.Task[None] | None = None
        self._load_times: deque[tuple[int, int]] = deque(maxlen=_LOADS_REMEMBERED)  # (end, duration) in ms

    @property
    def is_ready(self) -> bool:
        """Whether the store has the topic's partitions, loaded or loading. If not, `await ensure()`.

        The existence of the topic is not sufficient: a client may have created it.
        """
        if self._creating is not None or self._store is None or not self._is_attached:
            return False
        return self._store.partition_count == self._replicas.partition_count(self.name)

    def partition_for(self, identity: str) -> int:
        """The partition that keeps this id, also on a broker that leads none: another may have created the topic, with
        another number of partitions than this one would."""
        return partition_for_id(identity, self._replicas.partition_count(self.name) or self._settings.partition_count)

    def partition_counts(self) -> dict[str, int]:
        """The partitions led here by state: loading, active, and failed for those whose disk is offline."""
        store = self._store
        owned, loading = (store.owned, store.loading) if store is not None else (set(), set())
        led = (self._replicas.partition(self.name, index) for index in loading)
        failed = sum(each is not None and each.is_offline for each in led)
        return {"loading": len(loading) - failed, "active": len(owned), "failed": failed}

    def recent_load_times_ms(self) -> list[int]:
        """How long each load took that has ended in the last 30 seconds."""
        since_ms = self._clock.monotonic_ms() - _RECENT_MS
        return [took_ms for ended_ms, took_ms in self._load_times if ended_ms >= since_ms]

    def leader_epoch(self, index: int) -> int:
        """The epoch under which this broker leads partition `index`; -1 if it does not."""
        partition = self._replicas.partition(self.name, index)
        return partition.leader_epoch if partition is not None else -1

    def end_offset(self, index: int) -> int:
        """The offset that the next append to partition `index` gets; -1 if it is not led here."""
        partition = self._replicas.partition(self.name, index)
        return partition.log.end_offset if partition is not None else -1

    def delete_before(self, index: int, offset: int) -> None:
        """Delete the committed records of partition `index` before the offset."""
        partition = self._replicas.partition(self.name, index)
        if partition is None or partition.log.start_offset >= min(offset, partition.high_watermark):
            return
        with _errors_logged("pruned", f"{self.name}-{index}"):
            partition.delete_records_before(min(offset, partition.high_watermark))

    def attach(self, store: PartitionedStore[Any, Any]) -> None:
        self._store = store

    async def ensure(self) -> None:
        """Create the topic if it does not exist, and load its partitions.

        Concurrent callers share one creation and one load: a second load would lose changes since the first.
        """
        if self.is_ready:
            return
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create())
        creating = self._creating
        try:
            await asyncio.shield(creating)
        finally:
            if creating.done() and self._creating is creating:
                self._creating = None

    async def _create(self) -> None:
        wanted, admin = self._settings, self._topic_admin
        factor = admin.possible_factor(wanted.replication_factor, is_explicit=wanted.factor_setting in wanted.explicit)
        if self.name not in self._replicas.by_name and factor < wanted.replication_factor:
            self._warn_of_fewer_replicas(factor)
        await admin.ensure(self.name, wanted.partition_count, wanted.with_replicas(factor), factor)
        topic, store = self._replicas.by_name[self.name], self._store
        assert store is not None
        known = store.owned | store.loading
        await self._load(topic, [each for index, each in topic.partitions.items() if index not in known])

    def _warn_of_fewer_replicas(self, factor: int) -> None:
        """Not on a broker by itself, which can have no other."""
        if not self._replicas.hosted.role.replicates:
            return
        logger.warning(
            "%s is created with %d of %d replicas, for there are no more brokers now: set %s, or start all brokers "
            "before the first client; kafka-reassign-partitions adds replicas later",
            *(self.name, factor, self._settings.replication_factor, self._settings.factor_setting),
        )

    async def load(self) -> None:
        """Load every partition led here. Requests for them get COORDINATOR_LOAD_IN_PROGRESS meanwhile."""
        topic = self._replicas.by_name.get(self.name)
        if topic is not None and self._store is not None:
            await self._load(topic, list(topic.partitions.values()))

    async def _load(self, topic: Topic, partitions: list[Partition]) -> None:
        for partition in partitions:
            self.on_election(partition)
        self._update_partition_count()
        loading = self._loading
        if loading is not None:
            try:
                await asyncio.shield(loading)
            except asyncio.CancelledError:
                loading.cancel()
                raise
        if "cleanup.policy" not in topic.overrides:
            with _errors_logged("given its cleanup.policy", topic.name):
                await self._set_cleanup_policy(topic)

    def on_election(self, partition: Partition) -> None:
        """This broker was elected leader of `partition`: load it if it belongs to this topic."""
        store = self._store
        if partition.topic != self.name or store is None:
            return
        self._update_partition_count()
        store.add_loading_partition(partition.index)
        if partition.is_offline:  # stays "loading" without end: better than answering clients that there is nothing
            logger.error("%s-%d is offline, and its state with it", partition.topic, partition.index)
            return
        self._unread[partition.index] = partition
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load_unread())

    def on_resignation(self, partition: Partition) -> None:
        """This broker no longer leads `partition`: another one was elected, or the topic was deleted."""
        if partition.topic == self.name and self._store is not None:
            self._unread.pop(partition.index, None)
            self._store.unload(partition.index)

    async def close(self) -> None:
        """Stop loading."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})

    def _update_partition_count(self) -> None:
        """Sets the count that maps ids to partitions: all partitions of the topic, including those led elsewhere."""
        count = self._replicas.partition_count(self.name)
        if count and self._store is not None:
            self._store.partition_count = count
            self._is_attached = True

    async def _load_unread(self) -> None:
        """Loads the unread partitions one after another, some of it per turn of the loop, so that other requests are
        served meanwhile."""
        try:
            while self._unread:
                unread_bytes = sum(each.log.size_bytes for each in self._unread.values())
                partition = self._unread.pop(next(iter(self._unread)))
                if unread_bytes >= COLUMNS_FROM_BYTES:
                    with _without_collections():
                        await self._load_partition(partition, in_columns=True)
                else:
                    await self._load_partition(partition, in_columns=False)
        finally:
            self._loading = None

    async def _load_partition(self, partition: Partition, *, in_columns: bool) -> None:
        """Loads one partition. After an error the next step continues with an incomplete result: an old state is
        better than none."""
        assert self._store is not None
        name = f"{self.name}-{partition.index}"
        begun_ms = self._clock.monotonic_ms()
        loader = self._new_loader()
        with _errors_logged("read to its end", name):
            await (_read_in_columns if in_columns else _read)(partition, loader)
        with _errors_logged("decoded", name):
            for _ in loader.finish():
                await asyncio.sleep(0)
            for _ in self._store.build(partition.index, loader):
                await asyncio.sleep(0)
        if self._replicas.partition(self.name, partition.index) is not partition:
            return  # not led any more, or elected again and then loaded again
        with _errors_logged("loaded", name):
            self._store.load(partition.index, loader)
            now_ms = self._clock.monotonic_ms()
            self._load_times.append((now_ms, now_ms - begun_ms))

    async def _set_cleanup_policy(self, topic: Topic) -> None:
        """A client created the topic without it; retention would delete the state."""
        policy = {name: self._settings.overrides[name] for name in _OF_CLEANUP if name in self._settings.overrides}
        await self._topic_admin.change_overrides(topic.name, lambda overrides: {**policy, **overrides})
        logger.warning("topic %s was created without a cleanup.policy: it has %s from now on", topic.name, policy)

    def append(
        self,
        index: int,
        records: Records,
        done: AppendDone,
        *,
        producer: ProducerIdAndEpoch | None = None,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Write one batch of (key, value) to partition `index` as with acks=-1; calls `done` with the error.

        With `producer` the batch belongs to its transaction, which `guard` has verified. The base sequence is 0, as
        Kafka's: the broker appends such a batch once, so there are no duplicates to detect.
        """
        partition = self._replicas.partition(self.name, index)
        if partition is None:
            done(self._replicas.missing_partition_error(self.name, index))
            return

        def on_append(error: KafkaError | None) -> None:
            if error is not None and error.code not in _PRODUCERS_FAULTS:
                level = logging.DEBUG if error.code in _WITHOUT_REPLICAS else logging.ERROR
                logger.log(level, "%s-%d accepts no records: %s", self.name, index, error)
            done(ErrorCode.NONE if error is None else error.code)

        now_ms = self._clock.wall_ms()
        if producer is None:
            batch = build_batch_at(now_ms, records)
        else:
            batch = build_batch_at(now_ms, records, **producer._asdict(), base_sequence=0, transactional=True)
        try:
            partition.check_in_sync()
            result = partition.append(memoryview(batch), now_ms, _INTERNAL_PRODUCE_VERSION, trusted=True, guard=guard)
        except KafkaError as error:
            on_append(error)
            return
        if partition.log.segments[-1].size_bytes >= ROLL_BYTES:
            _seal_for_compaction(partition.log, now_ms)
        if result.last_offset < partition.high_watermark:
            done(ErrorCode.NONE)
        elif isinstance(partition, ReplicatedPartition):
            timeout = _Timeout(self._clock, self._append_ms, on_append)
            partition.when_committed(result.last_offset, timeout.complete)
        else:  # the disk answers in any case
            partition.when_committed(result.last_offset, on_append)


class _Timeout:
    """Reports the outcome of an append once: REQUEST_TIMED_OUT if it is late. Then it stays open, as in Kafka."""

    __slots__ = ("_done", "_timer")

    def __init__(self, clock: Clock, after_ms: int, done: Callable[[KafkaError | None], None]) -> None:
        self._done: Callable[[KafkaError | None], None] | None = done
        self._timer = clock.call_later(after_ms, self._time_out)

    def complete(self, error: KafkaError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done(error)

    def _time_out(self) -> None:
        self.complete(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not all in-sync replicas have the records in time"))


def _seal_for_compaction(log: PartitionLog, now_ms: int) -> None:
    if 2 * log.segments[-1].size_bytes >= log.size_bytes and "compact" in log.config.cleanup_policy:
        with suppress(KafkaError):  # the next append meets the error
            log.roll(now_ms)


async def _read(partition: Partition, loader: PartitionLoader) -> None:
    for piece in _pieces(partition, TURN_BYTES):
        loader.read(piece[start:end] for start, end in pairwise(find_bounds(piece)[0]))
        await asyncio.sleep(0)


async def _read_in_columns(partition: Partition, loader: PartitionLoader) -> None:
    # imported by another thread: numpy takes 0.2 s of CPU the first time
    await asyncio.to_thread(import_module, "kafkalite.coordinator.runtime.column_loading")
    from kafkalite.coordinator.runtime.column_loading import load_piece

    for piece in _pieces(partition, PIECE_BYTES):
        for _ in load_piece(loader, piece):
            await asyncio.sleep(0)


def _pieces(partition: Partition, piece_bytes: int) -> Iterator[memoryview]:
    log = partition.log
    return log.segment_list.pieces(log.start_offset, log.end_offset, piece_bytes)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Loaded objects live as long as the process: 18 full collections took 4.5 of 16 s with 5 million offsets, up to
    0.6 s each. Where the start has frozen its objects (`kafkalite serve`), these are frozen as well."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count():
            gc.freeze()
        if is_enabled:
            gc.enable()


@contextmanager
def _errors_logged(deed: str, name: str) -> Iterator[None]:
    """Logs and swallows errors."""
    try:
        yield
    except KafkaError as error:
        logger.error("%s cannot be %s: %s", name, deed, error)
    except Exception:
        logger.exception("%s cannot be %s", name, deed)
