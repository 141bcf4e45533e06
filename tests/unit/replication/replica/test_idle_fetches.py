"""A leader is not told of fetches that can have no effects, until something changes: of two leaders, one is told of
every fetch, and they decide alike in every step."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog
from kafkalite.replication.replica.leader_replica import LeaderReplica, ReplicaFetch

EPOCH, LAG_MS = 5, 1_000
LIVE = {1: 11, 2: 21, 3: 31}


class Epochs:
    def epoch_at(self, offset: int) -> int:
        return EPOCH

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        return EpochEndOffset(EPOCH, end_offset)


class Twin:
    def __init__(self, *, is_idle_told: bool) -> None:
        self._is_idle_told = is_idle_told
        self._idle: dict[int, float] = {}  # the time of the latest fetch
        self.now_ms = 0.0
        self.end = 0
        self.idle_count = 0
        self._sent: dict[int, int] = {}  # the offset that each follower fetched last
        self._pending: list[WriteIsr] = []
        state = IsrState(1, EPOCH, frozenset({1, 2, 3}), frozenset(), 0)
        self.leader = LeaderReplica(
            1, [1, 2, 3], state, self.log(), LIVE, 0.0, min_insync_replicas=2, lag_time_max_ms=LAG_MS
        )

    def log(self) -> ReplicaLog:
        return ReplicaLog(0, self.end, self.end, self.leader.high_watermark if self.end else 0, Epochs())

    def _note(self, effects: list[Any]) -> list[Any]:
        self._pending += [effect for effect in effects if isinstance(effect, WriteIsr)]
        return effects

    def _end_idle(self) -> None:
        for broker, fetched_ms in self._idle.items():
            self.leader.on_idle_fetch(broker, fetched_ms)
        self._idle = {}

    def step(self, kind: str, broker: int, number: int) -> list[Any]:
        if kind == "append":
            self.end += 1
            self._end_idle()
            return self._note(self.leader.on_append(self.end, self.end, self.now_ms))
        if kind == "wait":
            self.now_ms += 150 * number
            return []
        if kind == "shrink":
            return self._note(self.leader.shrink(self.now_ms))
        if kind == "write":
            if not self._pending:
                return []
            self._end_idle()
            outcome = (WriteOutcome.WRITTEN, WriteOutcome.REFUSED)[number % 2]
            return self._note(self.leader.on_write(self._pending.pop(0), outcome, self.now_ms))
        offset = self._sent.get(broker, 0) if kind == "same" else self.end
        registration = LIVE[broker]
        is_same = self._sent.get(broker) == offset
        self._sent[broker] = offset
        if not self._is_idle_told and is_same and self.leader.is_idle(broker, registration, offset):
            self._idle[broker] = self.now_ms
            self.idle_count += 1
            return []
        self._idle.pop(broker, None)
        fetch = ReplicaFetch(broker, registration, EPOCH, offset, -1, 0)
        return self._note(self.leader.on_fetch(fetch, self.log(), self.now_ms).effects)

    def state(self) -> Any:
        followers = {
            broker: (each.log_end_offset, each.is_caught_up(self.end, self.now_ms, LAG_MS))
            for broker, each in self.leader.followers.items()
        }
        return self.leader.high_watermark, self.leader.in_sync.committed, self.leader.in_sync.pending, followers


STEPS = st.tuples(
    st.sampled_from(["append", "wait", "shrink", "write", "same", "same", "all"]),
    st.sampled_from([2, 3]),
    st.integers(0, 9),
)


@given(st.lists(STEPS, max_size=60))
def test_a_leader_that_is_not_told_of_idle_fetches_decides_alike(steps: list[tuple[str, int, int]]) -> None:
    short, full = Twin(is_idle_told=False), Twin(is_idle_told=True)
    for step in steps:
        assert short.step(*step) == full.step(*step)
        assert short.state() == full.state()


def test_idle_fetches_are_not_told() -> None:
    twin = Twin(is_idle_told=False)
    for step in (("all", 2, 0), ("same", 2, 0), ("append", 2, 0), ("same", 2, 0), ("all", 2, 0), ("same", 2, 0)):
        twin.step(*step)
    assert twin.idle_count == 2
