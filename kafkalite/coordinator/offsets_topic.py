"""The topic behind the group coordinator: made when first needed, read when it is led, appended to by the coordinator.

The coordinator owns exactly the partitions that this broker leads: a partition is read when this broker is elected its
leader (`on_election`), and its groups are dropped when it resigns (`on_resignation`).

Source: kafka.coordinator.group.GroupMetadataManager (storing and loading), GroupCoordinator.offsetsTopicConfigs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_loading import StoredGroups
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager, Topic
from kafkalite.replication.topic_admin import TopicAdmin

logger = logging.getLogger(__name__)

_INTERNAL_PRODUCE_VERSION = 9
_CLEANUP_POLICY = {"cleanup.policy": "compact"}
TURN_BYTES = 64 * 1024


class OffsetsTopic:
    """`__consumer_offsets` on this broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, replicas: ReplicaManager, topic_admin: TopicAdmin) -> None:
        self._config = config
        self._clock = clock
        self._replicas = replicas
        self._topic_admin = topic_admin
        self._coordinator: GroupCoordinator | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_handed_over = False  # the coordinator knows of the topic's partitions
        self._unread: dict[int, Partition] = {}  # that are led, in the order in which they came to be
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator has the topic's partitions, at least to be loaded. If not, `await ensure()`.

        That there is a topic of the name does not say so: a client may have created it.
        """
        coordinator = self._coordinator
        if self._making is not None or coordinator is None or not self._is_handed_over:
            return False
        return coordinator.partition_count == self._replicas.partition_count(GROUP_METADATA_TOPIC)

    def attach(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def ensure(self) -> None:
        """Make the topic if it is not there, and let the coordinator own its partitions.

        However many ask at once, it is made and loaded once: loading again would forget who joined meanwhile.
        """
        if self.is_ready:
            return
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
        making = self._making
        try:
            await asyncio.shield(making)
        finally:
            if making.done() and self._making is making:
                self._making = None

    async def _make(self) -> None:
        await self._topic_admin.ensure(
            GROUP_METADATA_TOPIC,
            self._config.offsets_topic_num_partitions,
            {
                **_CLEANUP_POLICY,
                "compression.type": "producer",
                "segment.bytes": str(self._config.offsets_topic_segment_bytes),
            },
        )
        topic, coordinator = self._replicas.by_name[GROUP_METADATA_TOPIC], self._coordinator
        assert coordinator is not None
        known = coordinator.owned | coordinator.loading
        await self._load(topic, [one for index, one in topic.partitions.items() if index not in known])

    async def load(self) -> None:
        """Read every partition that is led here into the coordinator, which answers 'loading' for it meanwhile."""
        topic = self._replicas.by_name.get(GROUP_METADATA_TOPIC)
        if topic is not None and self._coordinator is not None:
            await self._load(topic, list(topic.partitions.values()))

    async def _load(self, topic: Topic, partitions: list[Partition]) -> None:
        for partition in partitions:
            self.on_election(partition)
        self._know_count()
        if self._reading is not None:
            try:
                await asyncio.shield(self._reading)
            except asyncio.CancelledError:
                self._reading.cancel()
                raise
        if "cleanup.policy" not in topic.overrides:
            with _reported("made compact", topic.name):
                await self._make_compact(topic)

    def on_election(self, partition: Partition) -> None:
        """A partition that this broker leads from now on: its groups are here as soon as it is read."""
        coordinator = self._coordinator
        if partition.topic != GROUP_METADATA_TOPIC or coordinator is None:
            return
        self._know_count()
        coordinator.start_loading(partition.index)
        if partition.is_offline:  # nobody is told that its groups have no offsets: they are loading, for good
            logger.error("%s-%d is offline, and its groups with it", partition.topic, partition.index)
            return
        self._unread[partition.index] = partition
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_all())

    def on_resignation(self, partition: Partition) -> None:
        """A partition that this broker leads no longer: its groups are another's, or the topic is gone."""
        if partition.topic == GROUP_METADATA_TOPIC and self._coordinator is not None:
            self._unread.pop(partition.index, None)
            self._coordinator.unload(partition.index)

    async def close(self) -> None:
        """Read no further."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def _know_count(self) -> None:
        """By the number of all partitions, wherever they are led, a group finds its own."""
        count = self._replicas.partition_count(GROUP_METADATA_TOPIC)
        if count and self._coordinator is not None:
            self._coordinator.partition_count = count
            self._is_handed_over = True

    async def _read_all(self) -> None:
        """About `TURN_BYTES` at a time, so that others are served meanwhile."""
        try:
            while self._unread:
                partition = self._unread.pop(next(iter(self._unread)))
                await self._read_one(partition)
        finally:
            self._reading = None

    async def _read_one(self, partition: Partition) -> None:
        """Each step goes on with what the one before managed: better old groups than none until the next restart."""
        assert self._coordinator is not None
        name = f"{GROUP_METADATA_TOPIC}-{partition.index}"
        stored = StoredGroups()
        with _reported("read to its end", name):
            await _read(partition, stored)
        with _reported("decoded", name):
            for _ in stored.finish_in_turns():
                await asyncio.sleep(0)
        if self._replicas.partition(GROUP_METADATA_TOPIC, partition.index) is not partition:
            return  # led no longer, or anew: then it is read anew
        with _reported("taken over", name):
            self._coordinator.install(partition.index, stored)

    async def _make_compact(self, topic: Topic) -> None:
        """Whoever created the topic by hand has not thought of this, and retention would delete groups."""
        await self._topic_admin.change_overrides(topic.name, lambda overrides: {**_CLEANUP_POLICY, **overrides})
        logger.warning("topic %s was created without a cleanup.policy: it is compact from now on", topic.name)

    def append(self, index: int, records: list[tuple[bytes, bytes | None]], done: Callable[[ErrorCode], None]) -> None:
        """Write one batch of (key, value) to partition `index`; `done` learns how it went."""
        partition = self._replicas.partition(GROUP_METADATA_TOPIC, index)
        if partition is None:
            done(self._replicas.missing_partition_error(GROUP_METADATA_TOPIC, index))
            return

        def appended(error: KafkaError | None) -> None:
            if error is not None:
                logger.error("%s-%d takes no records: %s", GROUP_METADATA_TOPIC, index, error)
            done(ErrorCode.NONE if error is None else error.code)

        now_ms = self._clock.wall_ms()
        batch = build_batch([NewRecord(key, value, timestamp=now_ms) for key, value in records])
        try:
            result = partition.append(memoryview(batch), now_ms, _INTERNAL_PRODUCE_VERSION, trusted=True)
        except KafkaError as error:
            appended(error)
            return
        if result.last_offset < partition.high_watermark:
            done(ErrorCode.NONE)
        else:
            partition.when_committed(result.last_offset, appended)


async def _read(partition: Partition, stored: StoredGroups) -> None:
    turn: list[memoryview] = []
    turn_bytes = 0
    try:
        for batch in partition.log.batches(partition.log.start_offset):
            turn.append(batch)
            turn_bytes += len(batch)
            if turn_bytes >= TURN_BYTES:
                stored.read(turn)
                turn, turn_bytes = [], 0
                await asyncio.sleep(0)
    finally:
        stored.read(turn)  # also what lies before a damage


@contextmanager
def _reported(deed: str, name: str) -> Iterator[None]:
    """Whatever goes wrong in here is written down, and that is all."""
    try:
        yield
    except KafkaError as error:
        logger.error("%s cannot be %s: %s", name, deed, error)
    except Exception:
        logger.exception("%s cannot be %s", name, deed)
