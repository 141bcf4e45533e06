"""Random histories of whole clusters under stock clients: nothing acknowledged is lost, and nothing is stuck."""

from __future__ import annotations

import pytest

from tests.support.replication.live_history import LiveHistory


@pytest.mark.parametrize("seed", range(2))
def test_with_one_replica_what_was_acknowledged_comes_back(seed):
    LiveHistory(seed, replicas=1).run()


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 105))])
def test_with_three_replicas_nothing_acknowledged_is_lost(seed):
    LiveHistory(seed).run()
