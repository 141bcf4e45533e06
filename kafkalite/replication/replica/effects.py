"""The effects of a replica's decisions, as values: tests compare lists, the broker performs them in order.

Of a leader: `WriteIsr`, whose outcome is reported to `on_write`, and `AssignEpoch` to `RaiseLowWatermark`. Of a
follower: `TruncateTo` to `Fail`.
"""

from __future__ import annotations

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.partition_state import WriteIsr


class AssignEpoch(NamedTuple):
    """Write the epoch to the log's epoch file before anything is appended or served (KIP-101, KIP-279)."""

    leader_epoch: int
    start_offset: int


class ReadIsr(NamedTuple):
    """Read the state node after `failed` has been answered, however often it takes, and report to `on_read`."""

    failed: WriteIsr


class IsrChanged(NamedTuple):
    """The committed ISR is another one: answer producers that wait, notify the controller, count it."""

    isr: frozenset[int]


class AdvanceHighWatermark(NamedTuple):
    """Everything below is committed: answer producers, wake fetches of consumers and of followers (which learn it)."""

    offset: int


class RaiseLowWatermark(NamedTuple):
    """No live replica keeps records below: answer DeleteRecords."""

    offset: int


LeaderEffect = AssignEpoch | WriteIsr | ReadIsr | IsrChanged | AdvanceHighWatermark | RaiseLowWatermark


class TruncateTo(NamedTuple):
    """Drop everything at or past the offset, also leader epochs without records. May be past the end of the log."""

    offset: int


class TruncateFullyAndStartAt(NamedTuple):
    """Drop all segments, epochs and producers; the log is empty and starts at the offset."""

    offset: int


class Append(NamedTuple):
    """Append the fetched batches as they are, then call `on_append` with these offsets of the leader.

    A batch of an epoch above the replica's own cannot come from its leader, and is corrupt.
    """

    high_watermark: int
    log_start_offset: int


class SetHighWatermark(NamedTuple):
    """The high watermark of a follower; it may go down."""

    offset: int


class RaiseLogStart(NamedTuple):
    """The leader has deleted the records below. It may lie above the high watermark, which rises with it."""

    offset: int


class Fail(NamedTuple):
    """The replica is not fetched any more until it gets a new leader epoch (FailedPartitionsCount)."""

    why: str


FollowerEffect = TruncateTo | TruncateFullyAndStartAt | Append | SetHighWatermark | RaiseLogStart | Fail
