"""Questions about transactions: repeated while a coordinator moves or loads, and asked in portions if large."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.client.transaction_admin import TransactionAdmin
from kafkalite.common.errors import ErrorCode, Unanswered
from tests.support.transaction_cluster import TransactionCluster

LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


class Admin(TransactionAdmin):
    """An administrator for whom a pause lasts a second."""

    def __init__(self, cluster: TransactionCluster) -> None:
        self.now_s = 0.0
        super().__init__(cast("Any", cluster), 2.0, monotonic_s=lambda: self.now_s, sleep=self.pause)

    def pause(self, _: float) -> None:
        self.now_s += 1


def test_a_coordinator_that_loads_is_asked_again() -> None:
    cluster = TransactionCluster()
    cluster.add(1, "a", 7)
    cluster.faults = [ErrorCode.COORDINATOR_NOT_AVAILABLE, LOADING]
    found = Admin(cluster).describe("a")
    assert found is not None
    assert (found[0], found[1].producer_id) == (1, 7)
    cluster.faults = [LOADING]
    assert [each.transactional_id for each in Admin(cluster).list_transactions()] == ["a"]


def test_it_is_not_asked_for_ever() -> None:
    cluster = TransactionCluster()
    cluster.faults = [MOVED] * 9
    with pytest.raises(Unanswered, match="a cannot be described: NOT_COORDINATOR"):
        Admin(cluster).describe("a")
    with pytest.raises(Unanswered, match="broker 1 does not list transactions: NOT_COORDINATOR"):
        Admin(cluster).list_transactions()


def test_an_unknown_id_is_asked_for_once() -> None:
    cluster = TransactionCluster()
    assert Admin(cluster).describe("x") is None
    assert len(cluster.asked) == 2  # the coordinator, and then the state


def test_many_partitions_are_asked_for_in_portions() -> None:
    cluster = TransactionCluster()
    cluster.places = {("big", index): PartitionPlace(1, (1,)) for index in range(1_001)}
    for index in (0, 1_000):
        cluster.begin(("big", index), 7, index, 5)
    admin = Admin(cluster)
    found = admin.open_transactions(admin.partitions(None, None, None), None)
    assert [(each.partition, each.start_offset) for each in found] == [(0, 0), (1_000, 1_000)]
    sizes = [len(request.topics[0].partition_indexes) for _, request, _ in cluster.asked]
    assert sizes == [500, 500, 1]


def test_without_open_transactions_no_coordinator_is_asked() -> None:
    cluster = TransactionCluster()
    assert Admin(cluster).hanging([]) == []
    assert cluster.asked == []
