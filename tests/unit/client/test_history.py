"""The history of groups: lags that grow, and groups that rebalance again and again."""

from __future__ import annotations

from typing import Any

from kafkalite.client.history import History


class Story:
    """A history, sampled each 15 s."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.history = History(lambda: self.now_ms)

    def sample(self, generations: dict[str, int], **lags: int) -> None:
        self.now_ms += 15_000
        rows: list[dict[str, Any]] = [{"group_id": name, "lag": lag, "lag_records": lag} for name, lag in lags.items()]
        self.history.add_lags(rows)
        self.history.add_generations(generations)


def test_a_group_with_a_new_generation_every_few_seconds_is_unstable() -> None:
    story = Story()
    for at in range(5):
        story.sample({"restless": 5 * at, "still": 7, "once": int(at > 2)})
    assert story.history.unstable_groups() == {"restless": (20, 60_000)}
    for _ in range(5):
        story.sample({"restless": 20, "still": 7})
    assert story.history.unstable_groups() == {}


def test_a_lag_counts_when_it_grows_by_more_than_some_records() -> None:
    story = Story()
    for at in range(5):
        story.sample({}, few=at, many=480 + 70 * at, wavering=1000 * (at % 2))
    assert story.history.growing_lags() == {"many": (480, 760)}
