"""Faults of brokers, links and ZooKeeper: acknowledged records stay, those that were read stay, all replicas end
equal, and nobody is stuck.

Five hundred random histories each time, 100,000 in the long form (`./dev replication`). A history that fails can be
played again by its number: `History(seed).run()`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from kafkalite.common.names import NO_LEADER
from tests.support.replication.histories import History


def play(seeds: range) -> Counter[str]:
    """Returns how often something happened that histories are to be about."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            cluster = History(seed).run()
        except Exception as error:
            raise AssertionError(f"history {seed}: {error}") from error
        written = cluster.zookeeper.written
        counts["acknowledged"] += len(cluster.checker.acknowledged)
        counts["elections"] += cluster.state.leader_epoch
        counts["without a leader"] += sum(state.leader == NO_LEADER for state in written)
        counts["with eligible replicas besides the ISR"] += sum(bool(state.elr) for state in written)
        counts["led by one of them"] += sum(state.leader in before.elr for before, state in pairwise(written))
    return counts


@pytest.mark.parametrize("part", range(5))
def test_some_histories(part: int) -> None:
    counts = play(range(part * 100, (part + 1) * 100))
    least = {
        "acknowledged": 1000,
        "elections": 100,
        "without a leader": 10,
        "with eligible replicas besides the ISR": 20,
        "led by one of them": 3,
    }
    assert all(counts[name] >= count for name, count in least.items()), counts


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(40))
def test_a_hundred_thousand_histories(part: int) -> None:
    play(range(500 + part * 2500, 500 + (part + 1) * 2500))
