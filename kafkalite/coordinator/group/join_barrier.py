"""The join phase of a rebalance: the members that have joined, and the time that the group waits for the others.

A rebalance of an empty group waits for group.initial.rebalance.delay.ms. If a member was added meanwhile, it waits for
another such delay, up to the rebalance timeout in total. Any other rebalance waits until all members have joined and
all pending member ids are used, but no longer than the rebalance timeout.
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
        self.new_member_added = False  # during the initial delay, so that another delay follows
        self._initial_delay_ms = initial_delay_ms
        self._delay_ms = 0  # the delay that the timer was last set to
        self._remaining_ms: int | None = None  # of the rebalance timeout, during the initial delay; else None

    def begin(self, members: Members, *, was_empty: bool, now_ms: int) -> int | None:
        """Starts a rebalance: returns the deadline of its timer, or None if the barrier is complete already."""
        timeout_ms = members.rebalance_timeout_ms
        if not was_empty:
            return None if self.is_complete(members) else now_ms + timeout_ms
        self._delay_ms = self._initial_delay_ms
        self._remaining_ms = max(timeout_ms - self._delay_ms, 0)
        return now_ms + self._delay_ms if self._delay_ms > 0 else None

    def extend(self, now_ms: int) -> int | None:
        """The timer fired: returns its next deadline, or None if the wait is over."""
        remaining_ms = self._remaining_ms
        if not remaining_ms or not self.new_member_added:
            return None
        self.new_member_added = False
        self._remaining_ms = max(remaining_ms - self._delay_ms, 0)
        self._delay_ms = min(self._initial_delay_ms, remaining_ms)
        return now_ms + self._delay_ms

    def is_complete(self, members: Members) -> bool:
        """Whether all members have joined and no id is pending. False during the initial delay."""
        return self._remaining_ms is None and len(self.waiters) == len(members) and not members.pending

    def end(self, members: Members) -> list[Member]:
        """Ends the join phase: returns the dynamic members that have not joined and are removed.

        Static members stay until their sessions end, even if they have not joined.
        """
        self._remaining_ms = None
        return [each for each in members if each.instance_id is None and each.member_id not in self.waiters]
