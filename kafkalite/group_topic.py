"""The topic behind the group coordinator: made when first needed, loaded at start, appended to by the coordinator.

Source: kafka.coordinator.group.GroupMetadataManager (storing and loading), GroupCoordinator.offsetsTopicConfigs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalite.clock import Clock
from kafkalite.config import BrokerConfig
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_loading import StoredGroups
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.log.batch import NewRecord, build_batch
from kafkalite.names import GROUP_METADATA_TOPIC
from kafkalite.partition import Partition
from kafkalite.topics import Topic, Topics

logger = logging.getLogger(__name__)

_INTERNAL_PRODUCE_VERSION = 9
_CLEANUP_POLICY = {"cleanup.policy": "compact"}
TURN_BYTES = 64 * 1024


class GroupTopic:
    """`__consumer_offsets` on this broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, topics: Topics) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._coordinator: GroupCoordinator | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_handed_over = False  # the coordinator knows of the topic's partitions

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator has the topic's partitions, at least to be loaded. If not, `await ensure()`.

        That there is a topic of the name does not say so: a client may have created it.
        """
        return self._making is None and self._is_handed_over

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
        await self._topics.ensure(
            GROUP_METADATA_TOPIC,
            self._config.offsets_topic_num_partitions,
            {
                **_CLEANUP_POLICY,
                "compression.type": "producer",
                "segment.bytes": str(self._config.offsets_topic_segment_bytes),
            },
        )
        await self.load()

    async def load(self) -> None:
        """Read every partition into the coordinator, which answers 'loading' for a partition until it is read.

        About `TURN_BYTES` at a time, so that others are served meanwhile.
        """
        topic = self._topics.by_name.get(GROUP_METADATA_TOPIC)
        coordinator = self._coordinator
        if topic is None or coordinator is None:
            return
        self._is_handed_over = True
        coordinator.partition_count = len(topic.partitions)
        for index in topic.partitions:
            coordinator.start_loading(index)
        for partition in list(topic.partitions.values()):
            if partition.is_offline:  # nobody is told that its groups have no offsets: they are loading, for good
                logger.error("%s-%d is offline, and its groups with it", topic.name, partition.index)
                continue
            # each step goes on with what the one before managed: better old groups than none until the next restart
            name = f"{GROUP_METADATA_TOPIC}-{partition.index}"
            stored = StoredGroups()
            with _reported("read to its end", name):
                await _read(partition, stored)
            with _reported("decoded", name):
                for _ in stored.finish_in_turns():
                    await asyncio.sleep(0)
            with _reported("taken over", name):
                coordinator.install(partition.index, stored)
        if "cleanup.policy" not in topic.overrides:
            with _reported("made compact", topic.name):
                await self._make_compact(topic)

    async def _make_compact(self, topic: Topic) -> None:
        """Whoever created the topic by hand has not thought of this, and retention would delete groups."""
        await self._topics.change_overrides(topic.name, lambda overrides: {**_CLEANUP_POLICY, **overrides})
        logger.warning("topic %s was created without a cleanup.policy: it is compact from now on", topic.name)

    def append(self, index: int, records: list[tuple[bytes, bytes | None]], done: Callable[[ErrorCode], None]) -> None:
        """Write one batch of (key, value) to partition `index`; `done` learns how it went."""
        partition = self._topics.partition(GROUP_METADATA_TOPIC, index)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
