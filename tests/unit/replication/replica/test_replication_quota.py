"""The quota of replication: its windows, and the replicas that it covers."""

from __future__ import annotations

import pytest

from kafkalite.replication.replica.replication_quota import ReplicationQuota


class Scene:
    def __init__(self, rate: int = 1000) -> None:
        self.rate = rate
        self.quota = ReplicationQuota(3, lambda: self.rate, window_count=11, window_ms=1000)


def test_nothing_has_moved_so_nothing_is_exceeded() -> None:
    scene = Scene(rate=0)
    assert not scene.quota.is_exceeded(5)
    assert scene.quota.exceeded_until_ms(5) == 5


def test_the_first_window_counts_as_if_it_were_over() -> None:
    scene = Scene()
    scene.quota.record(1000, 0)
    assert scene.quota.byte_rate(1) == 1000 and not scene.quota.is_exceeded(1)
    scene.quota.record(1, 2)
    assert scene.quota.is_exceeded(2)


def test_it_is_exceeded_until_the_bytes_are_spread_over_enough_time() -> None:
    scene = Scene()
    scene.quota.record(5000, 0)
    until = scene.quota.exceeded_until_ms(10)
    assert until == 5000
    assert scene.quota.is_exceeded(until - 1) and not scene.quota.is_exceeded(until)


def test_what_moved_before_the_oldest_window_does_not_count() -> None:
    scene = Scene()
    scene.quota.record(1_000_000, 0)
    assert scene.quota.exceeded_until_ms(10) == 11_000
    assert scene.quota.is_exceeded(10_999) and not scene.quota.is_exceeded(11_000)
    scene.quota.record(10, 11_500)
    assert scene.quota.byte_rate(11_500) == 10


def test_windows_begin_with_the_first_bytes_in_them() -> None:
    scene = Scene()
    for now_ms in (0, 999, 1500, 2600):
        scene.quota.record(100, now_ms)
    assert scene.quota.byte_rate(4000) == pytest.approx(100)
    assert scene.quota.byte_rate(11_000) == pytest.approx(200 * 1000 / (11_000 - 1500))


def test_another_rate_holds_at_once() -> None:
    scene = Scene()
    scene.quota.record(3000, 0)
    assert scene.quota.is_exceeded(100)
    scene.rate = 3000
    assert not scene.quota.is_exceeded(100)
    scene.rate = 0
    assert scene.quota.exceeded_until_ms(100) == 11_000


@pytest.mark.parametrize(
    ("replicas", "covered"), [((), set()), (("*",), {0, 1, 2}), (("0:3", "1:13", "2:3"), {0, 2}), (("0:1",), set())]
)
def test_it_covers_the_replicas_of_this_broker(replicas: tuple[str, ...], covered: set[int]) -> None:
    quota = Scene().quota
    assert {index for index in range(3) if quota.covers(replicas, index)} == covered
    assert not quota.covers(("0:4",), 0)
