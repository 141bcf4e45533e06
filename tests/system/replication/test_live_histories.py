"""Random histories of whole clusters under stock clients: nothing acknowledged is lost, and nothing is stuck."""

from __future__ import annotations

import pytest

from tests.support.replication.live_history import LiveHistory


@pytest.mark.parametrize("seed", range(2))
def test_with_one_replica_what_was_acknowledged_comes_back(seed):
    LiveHistory(seed, replicas=1, min_insync=1).run()


LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 105)]


@pytest.mark.parametrize("seed", [*range(5), *LONG])
def test_with_three_replicas_nothing_acknowledged_is_lost(seed):
    LiveHistory(seed).run()


@pytest.mark.parametrize("seed", [*range(2), *LONG])
def test_transactions_are_there_whole_and_once_or_not_at_all(seed):
    LiveHistory(seed, has_transactions=True).run()


@pytest.mark.parametrize("seed", [*range(3), *LONG])
def test_each_record_is_committed_by_one_member_of_a_group(seed):
    LiveHistory(seed, has_group=True).run()


@pytest.mark.parametrize("seed", [*range(2), *LONG])
def test_each_record_is_accepted_by_one_member_of_a_share_group(seed):
    LiveHistory(seed, has_share_group=True).run()


@pytest.mark.parametrize("seed", [*range(2), *LONG])
def test_one_of_three_replicas_at_a_time_may_lose_its_directory(seed):
    LiveHistory(seed, loses_disks=True, has_group=seed % 2 == 1).run()


@pytest.mark.parametrize("seed", [*range(2), *LONG])
def test_one_in_sync_replica_is_enough_while_logs_are_kept(seed):
    LiveHistory(seed, min_insync=1, has_group=seed % 2 == 1).run()


@pytest.mark.parametrize("seed", [*range(2), *LONG])
def test_a_broker_that_begins_is_often_the_only_one(seed):
    only = ("kill", "stop", "cut off", "mend", "slow down")
    LiveHistory(seed, min_insync=1 + seed % 2, only=only, has_group=seed % 4 > 1).run()
