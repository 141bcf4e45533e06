"""The values that the leader of a partition and the share coordinator exchange."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalite.common.named_tuple import NamedTuple

UNKNOWN_OFFSET = -1
NO_EPOCH = -1


class SharePartitionKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: UUID
    partition: int


class StateRange(NamedTuple):
    """Consecutive records in one durable state; `last` is inclusive."""

    first: int
    last: int
    state: int
    delivery_count: int


class StoredState(NamedTuple):
    """The state that a leader reads when it begins."""

    state_epoch: int
    start_offset: int  # -1: by the share.auto.offset.reset of the group
    ranges: Sequence[StateRange]


class StateWrite(NamedTuple):
    """The change that a leader writes."""

    state_epoch: int  # -1: any
    leader_epoch: int  # -1: any
    start_offset: int  # -1: as before
    delivery_complete_count: int
    ranges: Sequence[StateRange]
