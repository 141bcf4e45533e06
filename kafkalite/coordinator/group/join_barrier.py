"""The join phase of a rebalance: which members have joined, and how long the group waits for the others.

A rebalance of an empty group waits for group.initial.rebalance.delay.ms, and again for that long as often as a member
was added meanwhile, until the rebalance timeout is used up. Every other rebalance waits until all members have joined
and all pending member ids are used, for the rebalance timeout at most.
Source: kafka.coordinator.group.{DelayedJoin, InitialDelayedJoin} (3.9); KIP-134.
"""

from __future__ import annotations

from kafkalite.coordinator.group.members import Member, Members
from kafkalite.coordinator.group.membership import JoinWaiter


class JoinBarrier:
    """The waiters of the members that have joined, and the deadline of the rebalance timer."""

    __slots__ = ("_delay_ms", "_initial_delay_ms", "_remaining_ms", "new_member_added", "waiters")

    def __init__(self, initial_delay_ms: int) -> None:
        self.waiters: dict[str, JoinWaiter] = {}  # Invariant: the keys are ids of members
        self.new_member_added = False  # during the initial delay: one more delay follows
        self._initial_delay_ms = initial_delay_ms
        self._delay_ms = 0  # that the timer was last set to
        self._remaining_ms: int | None = None  # of the rebalance timeout, during the initial delay; else None

    def begin(self, members: Members, *, was_empty: bool, now_ms: int) -> int | None:
        """A rebalance begins: returns the deadline of its timer, or None if the barrier is complete already."""
        timeout_ms = members.rebalance_timeout_ms
        if not was_empty:
            return None if self.is_complete(members) else now_ms + timeout_ms
        self._delay_ms = self._initial_delay_ms
        self._remaining_ms = max(timeout_ms - self._delay_ms, 0)
        return now_ms + self._delay_ms if self._delay_ms > 0 else None

    def extend(self, now_ms: int) -> int | None:
        """The timer fired: returns its next deadline, or None if the group waits no longer."""
        remaining_ms = self._remaining_ms
        if not remaining_ms or not self.new_member_added:
            return None
        self.new_member_added = False
        self._remaining_ms = max(remaining_ms - self._delay_ms, 0)
        self._delay_ms = min(self._initial_delay_ms, remaining_ms)
        return now_ms + self._delay_ms

    def is_complete(self, members: Members) -> bool:
        """Whether all members have joined and no id is pending. The initial delay is waited out regardless."""
        return self._remaining_ms is None and len(self.waiters) == len(members) and not members.pending

    def end(self, members: Members) -> list[Member]:
        """The group waits no longer: returns the members that are dropped because they have not joined.

        Static members stay, joined or not, until their sessions end.
        """
        self._remaining_ms = None
        return [each for each in members if each.instance_id is None and each.member_id not in self.waiters]
