"""Session deadlines of a group's members and pending ids, watched by one timer.

A heartbeat, and any other request of the member, moves its deadline. The timer is set to the earliest deadline; when it
fires, it is re-armed for the then earliest deadline. A timer per heartbeat would double its cost of 0.9 us.
Source: kafka.coordinator.group.{DelayedHeartbeat, GroupCoordinator} (3.9); KIP-394 (pending ids).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkalite.coordinator.group.effects import GroupTimer, SetTimer
from kafkalite.coordinator.group.members import NEVER_MS, Member, Members

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # a new member cannot heartbeat while its first join is pending


class SessionDeadlines:
    """The session timer of one group. Deadlines are in `Member.session_deadline_ms` and `Members.pending`.

    Invariant: the timer is set to `timer_ms` (not set at NEVER_MS), which is not later than any deadline.
    """

    __slots__ = ("timer_ms",)

    def __init__(self) -> None:
        self.timer_ms = NEVER_MS

    def renew(self, member: Member, now_ms: int) -> Sequence[SetTimer]:
        """The member gave a sign of life: its session begins anew."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session_deadline_ms = now_ms + timeout_ms
        return self.watch(member.session_deadline_ms)

    def watch(self, deadline_ms: int) -> Sequence[SetTimer]:
        """Set the timer to `deadline_ms` if it would fire later."""
        if deadline_ms >= self.timer_ms:
            return ()
        self.timer_ms = deadline_ms
        return (SetTimer(GroupTimer.SESSION, deadline_ms),)

    def expired(self, members: Members, now_ms: int) -> Iterator[str]:
        """The timer fired: the pending ids, then the members, whose deadlines have passed.

        The caller may remove members on the way; `watch_earliest` sets the timer again at the end.
        """
        self.timer_ms = NEVER_MS
        yield from [member_id for member_id, deadline_ms in members.pending.items() if deadline_ms <= now_ms]
        for member in members:
            if member.session_deadline_ms <= now_ms and members.by_id.get(member.member_id) is member:
                yield member.member_id

    def close(self) -> None:
        """The group is dead: no timer is set any more."""
        self.timer_ms = 0

    def watch_earliest(self, members: Members) -> Sequence[SetTimer]:
        deadlines = [member.session_deadline_ms for member in members]
        return self.watch(min([*deadlines, *members.pending.values()], default=NEVER_MS))
