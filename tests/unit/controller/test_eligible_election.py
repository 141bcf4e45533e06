"""Elections with eligible leader replicas behind the ISR."""

from __future__ import annotations

import pytest

from kafkalite.controller.eligible_election import next_state
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.isr_state import IsrState

AT = 100  # the transaction that wrote the state
REPLICAS = (1, 2, 3)


def state(leader: int, isr: set[int], elr: tuple[int, ...] = (), epoch: int = 5) -> IsrState:
    return IsrState(leader, epoch, frozenset(isr), frozenset(elr), 7)


def elected(known: IsrState, live: dict[int, int], **more: object) -> IsrState | None:
    return next_state(REPLICAS, known, AT, live, 2, **more)  # type: ignore[arg-type]


def test_a_state_that_fits_stays() -> None:
    assert elected(state(1, {1, 2}), {1: 10, 2: 20}) is None
    assert elected(state(1, {1}, (2, 3)), {1: 10}) is None
    assert elected(state(NO_LEADER, {1}, (2,)), {3: 30}) is None


def test_who_leaves_below_min_isr_stays_eligible() -> None:
    assert elected(state(1, {1, 2, 3}), {1: 10}) == state(1, {1}, (2, 3))
    assert elected(state(1, {1, 2, 3}), {1: 10, 2: 20}) == state(1, {1, 2})


def test_the_isr_comes_first() -> None:
    assert elected(state(3, {3, 2}, (1,)), {1: 10, 2: 20}) == state(2, {2}, (1, 3), epoch=6)


def test_an_eligible_replica_leads_when_the_isr_cannot() -> None:
    assert elected(state(1, {1}, (2, 3)), {3: 30}) == state(3, {3}, (1, 2), epoch=6)
    assert elected(state(NO_LEADER, {1}, (2, 3)), {2: 20, 3: 30}) == state(2, {2}, (1, 3), epoch=6)
    assert elected(state(1, {1}, (2, 3)), {2: 20, 3: 30}, stopping={2}) == state(3, {3}, (1, 2), epoch=6)


def test_it_may_have_returned_meanwhile() -> None:
    assert elected(state(1, {1}, (3,)), {3: 130}, intact={3}) == state(3, {3}, (1,), epoch=6)


def test_without_anybody_the_partition_waits() -> None:
    assert elected(state(1, {1}, (2,)), {3: 30}) == state(NO_LEADER, {1}, (2,), epoch=6)


def test_an_unclean_leader_is_the_last_resort() -> None:
    assert elected(state(1, {1}, (2,)), {2: 20, 3: 30}, unclean=True) == state(2, {2}, (1,), epoch=6)
    won = elected(state(1, {1}, (2,)), {3: 30}, unclean=True)
    assert won is not None
    assert (won.leader, won.isr) == (3, {3})


@pytest.mark.parametrize(("live", "leader"), [({1: 10, 2: 20}, 1), ({2: 20}, None)])
def test_the_preferred_replica_leads_if_it_is_in_sync(live: dict[int, int], leader: int | None) -> None:
    won = elected(state(2, {1, 2}), live, prefer=True)
    assert won is not None
    assert won.leader == (leader or 2)
