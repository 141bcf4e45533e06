"""The topic behind the group coordinator: made when first needed, loaded at start, appended to by the coordinator.

Source: kafka.coordinator.group.GroupMetadataManager (storing and loading), GroupCoordinator.offsetsTopicConfigs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.config import BrokerConfig
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_loading import StoredGroups
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.log.batch import NewRecord, build_batch
from kafkalite.names import GROUP_METADATA_TOPIC
from kafkalite.partition import Partition
from kafkalite.topics import Topics

logger = logging.getLogger(__name__)

_INTERNAL_PRODUCE_VERSION = 9
TURN_BYTES = 64 * 1024


class GroupTopic:
    """`__consumer_offsets` on this broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, topics: Topics) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._coordinator: GroupCoordinator | None = None
        self._making: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the topic is there, at least to be loaded. If not, `await ensure()`."""
        return self._making is None and GROUP_METADATA_TOPIC in self._topics.by_name

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
                "cleanup.policy": "compact",
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
        coordinator.partition_count = len(topic.partitions)
        for index in topic.partitions:
            coordinator.start_loading(index)
        for partition in topic.partitions.values():
            try:
                coordinator.install(partition.index, await _stored(partition))
            except KafkaError as error:
                logger.error("groups of %s-%d cannot be loaded: %s", GROUP_METADATA_TOPIC, partition.index, error)

    def append(self, index: int, records: list[tuple[bytes, bytes | None]], done: Callable[[ErrorCode], None]) -> None:
        """Write one batch of (key, value) to partition `index`; `done` learns how it went."""
        partition = self._topics.partition(GROUP_METADATA_TOPIC, index)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        now_ms = self._clock.wall_ms()
        batch = build_batch([NewRecord(key, value, timestamp=now_ms) for key, value in records])
        try:
            partition.append(memoryview(batch), now_ms, _INTERNAL_PRODUCE_VERSION, trusted=True)
        except KafkaError as error:
            logger.error("%s-%d takes no records: %s", GROUP_METADATA_TOPIC, index, error)
            done(error.code)
            return
        done(ErrorCode.NONE)


async def _stored(partition: Partition) -> StoredGroups:
    stored = StoredGroups()
    turn: list[memoryview] = []
    turn_bytes = 0
    for batch in partition.log.batches(partition.log.start_offset):
        turn.append(batch)
        turn_bytes += len(batch)
        if turn_bytes >= TURN_BYTES:
            stored.read(turn)
            turn, turn_bytes = [], 0
            await asyncio.sleep(0)
    stored.read(turn)
    return stored
