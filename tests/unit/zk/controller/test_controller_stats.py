"""The numbers of elections: what was refused does not count."""

from __future__ import annotations

import pytest

from kafkalite.zk.client.operations import SetData
from kafkalite.zk.controller.controller_store import Step
from kafkalite.zk.controller.election import LeaderAndIsr
from kafkalite.zk.controller.pending_changes import ControllerStats, StateChange
from kafkalite.zk.znodes import znode_paths


def change(number: int, *, elects: bool = True, is_unclean: bool = False) -> StateChange:
    step = Step((SetData(znode_paths.state("orders", number), b"{}", 3),))
    return StateChange("orders", number, LeaderAndIsr(2, 8, (2,)), step, elects, is_unclean)


def test_only_what_was_written_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    stats = ControllerStats()
    unclean, shrinks = change(0, is_unclean=True), change(1, elects=False)
    stats.count([unclean, shrinks, change(2)], [])
    assert (stats.elections, stats.unclean_elections) == (2, 1)
    assert "orders-0 is led by broker 2, which was not in sync" in caplog.text
    stats.count([change(3), change(4, is_unclean=True)], [change(4, is_unclean=True).step])
    assert (stats.elections, stats.unclean_elections) == (3, 1)


def test_refusals_of_a_whole_cluster_are_told_apart_at_once() -> None:
    """Compared one by one, these would take minutes."""
    changes = [change(number) for number in range(40_000)]
    stats = ControllerStats()
    stats.count(changes, [each.step for each in changes[100:]])
    assert stats.elections == 100
