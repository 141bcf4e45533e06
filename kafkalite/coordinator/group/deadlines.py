"""The deadlines of a group's members, behind one timer of the group.

Every heartbeat moves a deadline. A timer for each would double the cost of a heartbeat, so the group has one, set to a
time that is not later than any deadline; when it fires, it is set to the then earliest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.runtime.effects import SetTimer

NEVER_MS = 1 << 62
RETRY_MS = 500  # after the log refused the removal of a member, or while another group has the group's place
_WAITING_PART, _WAITING_MIN_MS = 10, 20


def waiting_interval_ms(interval_ms: int, no_news_ms: int = 0) -> int:
    """The heartbeat interval of a member that waits for what only a heartbeat tells it: partitions that others have to
    give up, a target that is still to come. A tenth of the group's, so that partitions without an owner get one soon,
    but 20 ms at least if that is no longer: heartbeats of 50 members every 5 ms took more CPU and no less time. It is
    longer if there can be nothing new for `no_news_ms`. Kafka leaves such a member its whole interval."""
    return min(interval_ms, max(_WAITING_MIN_MS, interval_ms // _WAITING_PART, no_news_ms))


def remaining_ms(since_ms: int, interval_ms: int, wall_ms: int) -> int:
    """How much of an interval is left that a record began at `since_ms`, by the clock of the coordinator of that time;
    0 when it is over. A time to come is that of another clock, and does not count: in Kafka a group waits until then
    for its next target, half an hour if that clock was half an hour ahead.
    Source: GroupMetadataManager.canComputeNextTargetAssignment (4.3).
    """
    return since_ms + interval_ms - wall_ms if since_ms <= wall_ms < since_ms + interval_ms else 0


class Wait(Enum):
    """Reasons for a deadline of a member. JOIN and SYNC are for members that speak the classic protocol."""

    SESSION = "a sign of life"
    REVOCATION = "partitions to be given up"
    JOIN = "a JoinGroup"
    SYNC = "a SyncGroup"

    __hash__ = object.__hash__  # 0.2 us of a heartbeat less than Enum's, which hashes the name


class Deadline(NamedTuple):
    """A deadline of a member, on the monotonic clock."""

    wait: Wait
    member_id: str
    time_ms: int


class MemberDeadlines:
    """Times of the monotonic clock, by kind and member id. `TIMER` is the key of the group's timer.

    Invariant: the timer is set to `timer_ms` (not set at NEVER_MS), which is not later than any deadline.
    """

    __slots__ = ("_by_wait", "timer_ms")
    TIMER = "the deadlines of members"

    def __init__(self) -> None:
        self.timer_ms = NEVER_MS
        self._by_wait: dict[Wait, dict[str, int]] = {wait: {} for wait in Wait}

    def set(self, wait: Wait, member_id: str, deadline_ms: int) -> Sequence[SetTimer]:
        """Set or move a deadline."""
        self._by_wait[wait][member_id] = deadline_ms
        if deadline_ms >= self.timer_ms:
            return ()
        self.timer_ms = deadline_ms
        return (SetTimer(self.TIMER, deadline_ms),)

    def get(self, wait: Wait, member_id: str) -> int | None:
        return self._by_wait[wait].get(member_id)

    def cancel(self, wait: Wait, member_id: str) -> list[Deadline]:
        """Returns the deadline, if there was one, for `restore`. The timer stays: it finds nothing due."""
        deadline_ms = self._by_wait[wait].pop(member_id, None)
        return [] if deadline_ms is None else [Deadline(wait, member_id, deadline_ms)]

    def forget(self, member_id: str) -> list[Deadline]:
        """The member is being removed. Returns its deadlines, for `restore`."""
        return [each for wait in self._by_wait for each in self.cancel(wait, member_id)]

    def restore(self, forgotten: Iterable[Deadline], now_ms: int) -> list[SetTimer]:
        """The log refused the change with which these were forgotten: a member that has left by its own word gives no
        other sign of life. Deadlines that have passed do so again after `RETRY_MS`; newer ones of a member stay."""
        return [
            effect
            for wait, member_id, time_ms in forgotten
            if member_id not in self._by_wait[wait]
            for effect in self.set(wait, member_id, max(time_ms, now_ms + RETRY_MS))
        ]

    def take_due(self, now_ms: int) -> list[Deadline]:
        """The timer fired: the deadlines that have passed, which are forgotten."""
        self.timer_ms = NEVER_MS
        due = [
            Deadline(wait, member_id, deadline_ms)
            for wait, deadlines in self._by_wait.items()
            for member_id, deadline_ms in deadlines.items()
            if deadline_ms <= now_ms
        ]
        for wait, member_id, _ in due:
            del self._by_wait[wait][member_id]
        return due

    def watch_earliest(self) -> Sequence[SetTimer]:
        """Set the timer again after `take_due`."""
        earliest_ms = min(
            (each for deadlines in self._by_wait.values() for each in deadlines.values()), default=NEVER_MS
        )
        if earliest_ms >= self.timer_ms:
            return ()
        self.timer_ms = earliest_ms
        return (SetTimer(self.TIMER, earliest_ms),)
