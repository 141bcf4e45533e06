"""Random histories of whole clusters under stock clients: nothing acknowledged is lost, and nothing is stuck."""

from __future__ import annotations

import pytest

from tests.support.replication.live_history import LiveHistory


@pytest.mark.parametrize("seed", range(2))
def test_with_one_replica_what_was_acknowledged_comes_back(seed):
    LiveHistory(seed, replicas=1).run()
