"""A follower, as its leader knows it from its fetches.

Source: kafka.cluster.{Replica, ReplicaState}.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
NO_REGISTRATION = -1


class ReplicaState:
    """`log_end_offset` is the offset of its last fetch: the follower has all records below. `registration` is the one
    that its fetches name, and grows. `last_caught_up_ms`: the latest time at which it had all that the leader had.
    Times are monotonic milliseconds."""

    __slots__ = (
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_registration",
        "registration",
    )

    def __init__(self, last_caught_up_ms: float) -> None:
        self.registration = NO_REGISTRATION
        self.refused_registration = NO_REGISTRATION  # it is gone for good
        self.forget(last_caught_up_ms)

    def forget(self, last_caught_up_ms: float = float("-inf")) -> None:
        """Nothing is known of its log until it fetches again."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self._last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self._last_fetch_ms = float("-inf")

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, registration: int, leader_end_offset: int, now_ms: float
    ) -> None:
        """A fetch has arrived. A follower that keeps fetching what the leader had at its previous fetch is caught up as
        of then, though records keep coming."""
        self.registration = registration
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._last_fetch_leader_end_offset = max(leader_end_offset, self._last_fetch_leader_end_offset)
        self._last_fetch_ms = now_ms

    def on_idle_fetch(self, now_ms: float) -> None:
        """As `on_fetch` of the same offset as before, which is still the end of the leader's log."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Whether it has all that the leader has, or had it within replica.lag.time.max.ms."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms
