"""Offsets of consumer groups, translated to the copies: a checkpoint for each, and committed where no consumer reads.

A group without members at the target gets the translated offsets, so that its consumers continue there where they
stopped. They are moved forwards; backwards only if the group went back at the source and no consumer has moved them at
the target since.
Source: org.apache.kafka.connect.mirror.MirrorCheckpointTask; KIP-545.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import CLASSIC, CONSUMER, ListedGroup
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.client.mirror.naming import Filter
from kafkalite.client.mirror.state_records import Checkpoint
from kafkalite.common.names import TopicPartition

_CONSUMER_PROTOCOL = "consumer"
_EMPTY = ("Empty", "Dead")


class GroupFollower:
    """The groups of a source whose names the filter has. Raises Unanswered."""

    def __init__(self, source: ClusterClient, target: ClusterClient, groups: Filter, timeout_s: float) -> None:
        self._source = GroupAdmin(source, timeout_s)
        self._target = GroupAdmin(target, timeout_s)
        self._groups = groups
        self._last: dict[tuple[str, TopicPartition], Checkpoint] = {}

    def follow(
        self,
        partitions: Mapping[TopicPartition, CopiedPartition],
        write: Callable[[list[Checkpoint]], None],
    ) -> list[str]:
        """Writes the checkpoints that are new, and commits. Returns a sentence for each offset that the target
        refuses."""
        refusals: list[str] = []
        states = {one.group_id: one.state for one in self._target.list_groups()}
        for group in self._source.list_groups():
            if not self._is_followed(group):
                continue
            offsets = self._source.offsets(group.group_id)
            checkpoints = _translated(group.group_id, offsets, partitions)
            new = [one for one in checkpoints if self._last.get((one.group, one.partition)) != one]
            if new:
                write(new)
                if states.get(group.group_id, _EMPTY[0]) in _EMPTY:
                    refusals += self._commit(group.group_id, new, exists=group.group_id in states)
                self._last |= {(one.group, one.partition): one for one in new}
        return refusals

    def _is_followed(self, group: ListedGroup) -> bool:
        is_of_consumers = group.group_type in (None, CLASSIC, CONSUMER)
        return is_of_consumers and group.protocol_type in (None, _CONSUMER_PROTOCOL) and group.group_id in self._groups

    def _commit(self, group_id: str, checkpoints: list[Checkpoint], *, exists: bool) -> list[str]:
        present = self._target.offsets(group_id) if exists else {}
        moved = {one.partition: one.target for one in checkpoints if self._moves(one, present.get(one.partition))}
        return self._target.commit(group_id, moved) if moved else []

    def _moves(self, one: Checkpoint, present: int | None) -> bool:
        if present is None or one.target > present:
            return True
        last = self._last.get((one.group, one.partition))
        return last is not None and last.target == present and one.source < last.source


def _translated(
    group_id: str, offsets: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, CopiedPartition]
) -> list[Checkpoint]:
    found = []
    for key, offset in offsets.items():
        copied = partitions.get(key)
        target = None if copied is None else copied.offsets.translate(offset)
        if copied is not None and target is not None:
            found.append(Checkpoint(group_id, copied.target, offset, target))
    return found
