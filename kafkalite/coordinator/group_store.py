"""The groups of the partitions of `__consumer_offsets` that this broker leads, in memory and on disk.

A group belongs to the partition that its id hashes to, and is served while that partition is `owned`. While the
partition is `loading`, requests for its groups get COORDINATOR_LOAD_IN_PROGRESS. Changes are appended first and become
visible when the append is done. The modules of a group are imported with the first one, when the broker is ready.
Source: kafka.coordinator.group.GroupMetadataManager (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition, fits_string, partition_for_id
from kafkalite.coordinator.effect_performer import AppendRecords, EffectPerformer, Records
from kafkalite.coordinator.group.group_state import EMPTY
from kafkalite.coordinator.group.record_codec import group_key, offset_key
from kafkalite.coordinator.group_loader import GroupLoader

if TYPE_CHECKING:
    from kafkalite.common.clock import Moment
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.coordinator.group.group import Group
    from kafkalite.protocol.records.group_records import GroupMetadataValue

logger = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH_MAX = 1_000


class GroupStore:
    """Groups by id. Invariant: the partition of each group is in `owned`, and no partition is owned and loading."""

    def __init__(self, config: BrokerConfig, append: AppendRecords, performer: EffectPerformer) -> None:
        # the topic's actual count, which may differ from the configuration
        self.partition_count = config.offsets_topic_num_partitions
        self.groups: dict[str, Group] = {}
        self.owned: set[int] = set()
        self.loading: set[int] = set()
        self.is_closed = False
        self.append = append
        self.perform = performer.perform
        # by partition and producer id: the groups with commits in an open transaction
        self._in_transaction: dict[tuple[int, int], set[Group]] = {}
        self._ended_while_loading: dict[int, list[tuple[int, bool]]] = {}  # by partition: (producer id, is committed)
        self._config = config
        self._now = performer.now

    def __iter__(self) -> Iterator[Group]:
        """Over a copy: groups may be removed during the iteration."""
        return iter(list(self.groups.values()))

    # --- partitions

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""
        return partition_for_id(group_id, self.partition_count)

    def add_loading_partition(self, partition: int) -> None:
        """Requests for the partition's groups get COORDINATOR_LOAD_IN_PROGRESS until it is loaded, instead of
        NOT_COORDINATOR."""
        if not self.is_closed:
            self.loading.add(partition)

    def load(self, partition: int, loader: GroupLoader) -> None:
        """Own the partition with the groups and offsets that `loader` has read. Restarts every member's session."""
        if self.is_closed:
            return
        if partition in self.owned:
            self.unload(partition)
        self.loading.discard(partition)
        self.owned.add(partition)
        now = self._now()
        with_offsets = [group_id for group_id, offsets in loader.offsets.items() if not offsets.is_empty]
        for group_id in dict.fromkeys([*loader.groups, *with_offsets]):
            group = self._make_group(group_id, partition, now, loader.groups.get(group_id))
            group.offsets = loader.offsets.get(group_id, group.offsets)
            self.groups[group_id] = group
            for producer_id in group.offsets.transactions:
                self.add_to_transaction(group, producer_id)
        for producer_id, is_committed in self._ended_while_loading.pop(partition, ()):
            self.end_transaction(partition, producer_id, is_committed=is_committed)
        for group in self._groups_of(partition):
            self.perform(group, group.on_loaded(now))

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition: drops its groups; waiting requests get NOT_COORDINATOR."""
        self.owned.discard(partition)
        self.loading.discard(partition)
        self._ended_while_loading.pop(partition, None)
        for each in [each for each in self._in_transaction if each[0] == partition]:
            del self._in_transaction[each]
        for group in self._groups_of(partition):
            self._drop(group, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """All waiting and later requests get COORDINATOR_NOT_AVAILABLE. Cancels all timers.

        The groups of partitions that are still loading are discarded. A second call has no effect.
        """
        self.is_closed = True
        for group in self:
            self._drop(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.owned.clear()
        self.loading.clear()
        self._in_transaction.clear()
        self._ended_while_loading.clear()

    # --- groups

    def find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[Group | None, ErrorCode]:
        """The group; or None and an error, which is NONE if the group simply does not exist.

        `may_be_empty`: the empty group id is valid, as for groups that only store offsets.
        """
        group = self.groups.get(group_id)
        if group is not None and (group_id or may_be_empty):
            return group, ErrorCode.NONE
        return None, self.unknown_group_error(group_id, may_be_empty=may_be_empty)

    def unknown_group_error(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """The error for a group that is not in `groups`: NONE if this broker owns the group's partition, so that the
        group simply does not exist."""
        if not (group_id or may_be_empty) or not fits_string(group_id):
            return ErrorCode.INVALID_GROUP_ID
        if self.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_for(group_id)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.owned else ErrorCode.NOT_COORDINATOR

    def new_group(self, group_id: str) -> Group:
        """A group without members and offsets. The caller adds it to `groups` with its first member or offset."""
        return self._make_group(group_id, self.partition_for(group_id), self._now())

    def remove_offsets(self, group: Group, partitions: Sequence[TopicPartition]) -> None:
        """Remove these offsets, and the group if it has no members and no offsets left."""
        group.offsets.remove(partitions)
        tombstones: Records = [(offset_key(group.group_id, topic, index), None) for topic, index in partitions]
        if group.state is EMPTY and group.offsets.is_empty and not group.members.pending:
            logger.info("group %s is removed in generation %d", group.group_id, group.generation_id)
            self._drop(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if group.generation_id > 0:  # otherwise it only stored offsets, and has no group record
                tombstones.append((group_key(group.group_id), None))
        # no request waits for these; the next expiration writes lost ones again
        for start in range(0, len(tombstones), TOMBSTONES_PER_BATCH_MAX):
            batch = tombstones[start : start + TOMBSTONES_PER_BATCH_MAX]
            self.append(group.partition, batch, partial(_log_lost_tombstones, group.group_id))

    def add_to_transaction(self, group: Group, producer_id: int) -> None:
        """The group has commits in the producer's open transaction."""
        self._in_transaction.setdefault((group.partition, producer_id), set()).add(group)

    def end_transaction(self, partition: int, producer_id: int, *, is_committed: bool) -> None:
        """The marker of the producer's transaction is in the log of `partition`: ends it in each of its groups.

        A loading partition may have been read without the marker, so the transaction ends again once it is loaded.
        Until then none of the producer's commits is accepted.
        """
        if partition in self.loading:
            self._ended_while_loading.setdefault(partition, []).append((producer_id, is_committed))
        for group in self._in_transaction.pop((partition, producer_id), ()):
            group.offsets.end_transaction(producer_id, is_committed=is_committed)

    def _make_group(self, group_id: str, partition: int, now: Moment, value: GroupMetadataValue | None = None) -> Group:
        from kafkalite.coordinator.group.group import Group

        if value is None:
            return Group(group_id, partition, self._config, now.wall_ms)
        return Group.from_record(group_id, partition, value, self._config, now.wall_ms)

    def _groups_of(self, partition: int) -> list[Group]:
        return [group for group in self.groups.values() if group.partition == partition]

    def _drop(self, group: Group, error: ErrorCode) -> None:
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        self.perform(group, group.close(error))


def _log_lost_tombstones(group_id: str, error: ErrorCode) -> None:
    if error:
        logger.warning("could not store that offsets of group %s are removed: %s", group_id, error.name)
