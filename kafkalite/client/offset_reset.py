"""The offsets of a group set elsewhere: to an end of each log, a time, an offset, or further by some.

First the new offsets are looked up, then they are committed, both whole: a partition that does not answer refuses the
reset before anything is changed.
Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand.resetOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalite.client.blocking_client import Unanswered
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition

EARLIEST, LATEST, OFFSET, TIME, SHIFT = TARGETS = ("earliest", "latest", "offset", "time", "shift")


class Target(NamedTuple):
    """One of TARGETS; `value` is an offset, milliseconds since 1970, or so many offsets further."""

    to: str
    value: int = 0


class NotReset(Unanswered):
    """The group keeps its offsets, or those of partitions that are named; the text is for the operator."""


def new_offsets(
    offsets: LogOffsets,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, int]:
    """Of all these partitions, within their logs as they are. Where no record is as late as a time, the end, as Kafka's
    tool has it. Raises Unanswered for a partition that does not answer, NotReset."""
    keys = list(partitions)
    if target.to == SHIFT and (fresh := [key for key in keys if key not in committed]):
        raise NotReset(f"the group has no offset of {fresh[0][0]}-{fresh[0][1]} to begin with")
    starts, ends = offsets.starts(keys), offsets.ends(keys)
    if target.to == EARLIEST:
        return starts
    if target.to == LATEST:
        return ends
    if target.to == TIME:
        at = offsets.at_time(keys, target.value)
        return {key: at.get(key, ends[key]) for key in keys}
    aims = {key: target.value + (committed[key] if target.to == SHIFT else 0) for key in keys}
    return {key: min(max(aims[key], starts[key]), ends[key]) for key in keys}


def reset(admin: GroupAdmin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit them for a group without members. Raises NotReset, Unanswered."""
    if members := _member_count(admin, group_id):
        raise NotReset(f"{group_id} has members ({members}), which would go on where they are; stop them first")
    if refusals := admin.commit(group_id, offsets):
        raise NotReset("; ".join(refusals))


def _member_count(admin: GroupAdmin, group_id: str) -> int:
    try:
        return len(admin.describe(group_id).members)
    except ConfigError:  # it begins with these offsets
        return 0
