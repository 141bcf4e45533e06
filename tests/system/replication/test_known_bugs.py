"""Losses and divergences of Kafka's own history, each as a story, and as the same story with its rule taken out.

With the rules a story ends well under every order of messages that is tried; without its rule it must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata import partition_state
from kafkalite.metadata.partition_state import WriteOutcome
from kafkalite.replication.replica import follower_replica, in_sync_replicas, leader_replica
from kafkalite.replication.replica.epoch_divergence import NO_OFFSET, TruncationPoint
from kafkalite.replication.replica.follower_replica import Fetch
from kafkalite.replication.replica.in_sync_replicas import PENDING_SHRINK, InSyncReplicas
from kafkalite.replication.replica.leader_replica import LeaderReplica
from kafkalite.zk.controller import election
from tests.support.replication.simulated_broker import SimulatedBroker
from tests.support.replication.simulated_cluster import SimulatedCluster, Violation
from tests.support.replication.simulated_leader import LAG_TIME_MAX_MS, SimulatedLeader

SEEDS = range(8)
FOR_EVER_MS = 1e6


def require(is_so: object, what: str) -> None:
    if not is_so:
        raise Violation(what)


class Story(SimulatedCluster):
    """Three brokers; 0 leads, and every record is everywhere."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.start()
        self.run_for(100)  # brokers that came one after another have left and joined the ISR
        self.elect(0)
        self.acknowledge(3)

    def elect(self, broker_id: int) -> None:
        """Elect the broker, without a loss for the others."""
        while self.state.leader != broker_id:
            if broker_id == 0:
                self.prefer()
            else:
                leader = self.brokers[self.state.leader]
                leader.kill()
                require(self.run_until(lambda: self.leader is not None), "no leader")
                leader.start()
        require(self.run_until(self.is_whole), "not whole")

    def prefer(self) -> None:
        """Broker 0 is the preferred leader."""
        for broker in self.brokers.values():
            broker.control(prefer=True)
        self.run_for(10)

    def acknowledge(self, count: int = 1) -> None:
        values = self.produce(count)
        require(self.run_until(lambda: self.is_acknowledged(values)), "not acknowledged")

    def wait_for_isr(self, *isr: int) -> None:
        require(self.run_until(lambda: self.state.isr == set(isr)), f"the ISR is {self.state}")

    def drop(self, broker_id: int) -> None:
        """A broker that is cut off from the others leaves the ISR, once it misses a record."""
        self.isolate(broker_id)
        self.produce(1, acks_all=False)
        self.wait_for_isr(*(self.state.isr - {broker_id}))
        self.run_for(10)

    def lead_alone(self, broker_id: int, wait_ms: float = 400) -> None:
        """All others are killed: leads the broker then? They return later."""
        for other in self.brokers.values():
            if other.id != broker_id and other.is_up:
                other.kill()
        self.run_until(lambda: self.leader is self.brokers[broker_id], wait_ms)

    def end(self) -> None:
        self.heal()
        self.check_healed()


# --- the stories


def a_follower_of_a_new_epoch_has_not_learnt_the_high_watermark(seed: int) -> None:
    """KAFKA-1211, KIP-101."""
    story = Story(seed)
    story.acknowledge()
    story.isolate(2)
    story.run_for(10)
    story.brokers[2].log.high_watermark -= 1
    story.brokers[0].kill()
    require(story.run_until(lambda: story.leader is story.brokers[1]), "not elected")
    story.run_for(20)
    story.lead_alone(2)
    story.end()


def an_old_leader_returns_with_records_of_its_own(seed: int) -> None:
    """KIP-101: the same offsets, other records."""
    story = Story(seed)
    story.isolate(0)
    story.produce(3, acks_all=False)
    story.run_for(5)
    story.brokers[0].kill()
    require(story.run_until(lambda: story.leader is not None and story.state.leader != 0), "no leader")
    story.acknowledge(3)
    story.end()


def two_fast_elections(seed: int) -> None:
    """KAFKA-6361, KIP-279: epochs of 1, 0 and 1 again, each with records that nobody copied."""
    story = Story(seed, replicas=2, min_insync_replicas=1)
    story.elect(1)
    story.isolate(0)
    story.produce(3, acks_all=False, to=1)
    story.produce(3, acks_all=False, to=1)
    while not story.brokers[0].leads:
        story.prefer()
    story.produce(2, acks_all=False, to=0)
    story.run_for(5)
    story.brokers[0].kill()
    require(story.run_until(lambda: story.brokers[1].leads), "not elected again")
    story.end()


def a_fetch_of_an_earlier_epoch_comes_late(seed: int) -> None:
    """KAFKA-7440, KIP-320: it tells of records that its sender has cut off since. Leaders before Kafka 2.7."""
    story = Story(seed, truncates_on_fetch=False)
    late = Fetch(story.state.leader_epoch, 4, 0, 0)
    story.elect(1)
    story.elect(0)
    for follower in (1, 2):
        story.isolate(follower)
    require(story.brokers[0].log.end_offset == 3, "not the offset of the next record")
    story.produce(1)
    story.run_for(5)
    for follower in (1, 2):
        registration = story.brokers[follower].registration
        story.brokers[0].on_request(late, follower, registration, lambda answer: None)
    story.lead_alone(1)
    story.end()


def the_latest_offset_is_asked_right_after_an_election(seed: int) -> None:
    """KIP-207."""
    story = Story(seed)
    for broker in story.brokers.values():
        broker.log.checkpointed = 0
    story.acknowledge()
    story.ask_latest(0)
    for each in (0, 1, 2):
        story.brokers[each].kill()
    for each in (1, 2):
        story.brokers[each].start()
    require(story.run_until(lambda: story.leader is not None), "no leader")
    story.ask_latest(story.state.leader)
    story.end()


def a_replica_joins_a_leader_whose_high_watermark_lags(seed: int) -> None:
    """The record above it is committed."""
    story = Story(seed)
    story.drop(2)
    story.acknowledge()
    story.brokers[0].kill()
    story.brokers[1].kill()
    story.brokers[1].log.checkpointed = 0
    story.brokers[1].start()
    require(story.run_until(lambda: story.leader is story.brokers[1]), "not elected")
    story.cut_links.clear()
    story.cut_one_way(1, 2)  # its fetches arrive, the answers do not
    story.run_for(150)
    story.lead_alone(2)
    story.end()


def a_shrink_that_is_not_written_yet(seed: int) -> None:
    """KIP-497; the zombie leader: cut off from ZooKeeper and from the others."""
    story = Story(seed)
    story.brokers[0].holds_isr_writes_ms = FOR_EVER_MS
    story.isolate(2)
    story.produce(1)
    story.run_for(2 * LAG_TIME_MAX_MS)
    story.produce(1)
    story.run_for(100)
    story.lead_alone(2)
    story.end()


def an_expansion_whose_answer_is_lost(seed: int) -> None:
    """KIP-497, and the lost answer of a conditional write: the new member counts."""
    story = Story(seed)
    story.drop(2)
    leader = story.brokers[0]
    leader.loses_zk_answers, leader.view_delay = 1.0, FOR_EVER_MS
    story.cut_links.clear()
    story.wait_for_isr(0, 1, 2)
    story.isolate(2)
    story.run_for(60)
    story.produce(1)
    story.run_for(2 * LAG_TIME_MAX_MS)
    story.lead_alone(2)
    story.end()


def a_leader_with_an_old_version_of_the_state(seed: int) -> None:
    """KAFKA-2729: another one has written the state, and the leader hears nothing of it."""
    story = Story(seed)
    story.brokers[0].view_delay = FOR_EVER_MS
    while (story.zookeeper.controller or (0, 0))[0] == 0:  # the leader is not the controller
        story.zookeeper.controller = None
        for each in (1, 2):
            story.brokers[each].control()
        story.zookeeper.notify()
        story.run_for(20)
    gone = 3 - (story.zookeeper.controller or (0, 0))[0]
    story.brokers[gone].kill()
    story.wait_for_isr(*{0, 1, 2} - {gone})
    story.isolate(0)
    story.produce(1, acks_all=False)
    require(story.run_until(lambda: story.state.isr == {0}, 1_000), f"the ISR is frozen: {story.state}")
    story.end()


def a_replica_stops_while_its_expansion_is_on_its_way(seed: int) -> None:
    """KAFKA-13916, KIP-841."""
    story = Story(seed)
    story.drop(2)
    story.brokers[0].holds_isr_writes_ms = 150
    story.cut_links.clear()
    story.run_for(75)
    written = len(story.zookeeper.written)
    story.brokers[2].begin_stop()
    require(story.run_until(lambda: not story.brokers[2].is_up), "it does not stop")
    story.run_for(120)
    require(all(2 not in state.isr for state in story.zookeeper.written[written:]), "a broker that has gone is in sync")
    story.end()


def a_replica_returns_empty_while_its_expansion_is_on_its_way(seed: int) -> None:
    """KAFKA-14617, KIP-903."""
    story = Story(seed)
    story.drop(2)
    story.acknowledge()
    story.brokers[0].holds_isr_writes_ms = 200
    story.cut_links.clear()
    story.run_for(75)
    story.brokers[2].lose_disk()
    story.isolate(2)
    story.brokers[2].start()
    story.run_for(200)
    story.lead_alone(2)
    story.end()


def a_broker_loses_its_tail_and_is_back_within_its_session(seed: int) -> None:
    """KAFKA-7235, KIP-380: nobody else is there who could notice."""
    story = Story(seed)
    story.acknowledge()
    story.lead_alone(2)
    story.brokers[2].log.synced_offset = 0
    story.brokers[2].lose_power()
    story.brokers[2].start()
    story.run_for(100)
    story.end()


def the_last_replica_standing(seed: int, *, flushes: bool = False) -> None:
    """KIP-966: the only member of the ISR loses the end of its log."""
    story = Story(seed, flushes=flushes)
    story.acknowledge()
    story.isolate(0)
    story.produce(1, acks_all=False)
    story.wait_for_isr(0)
    if not flushes:
        story.brokers[0].log.synced_offset = 0
    story.brokers[0].lose_power()
    story.brokers[0].start()
    story.end()


def a_leader_without_the_others_shows_no_more(seed: int) -> None:
    """KAFKA-15583: below min.insync.replicas the high watermark stands still."""
    story = Story(seed)
    story.isolate(0)
    story.produce(1, acks_all=False)
    story.wait_for_isr(0)
    story.produce(3, acks_all=False)
    story.run_for(LAG_TIME_MAX_MS)
    story.lead_alone(1, 0)
    story.brokers[2].start()
    story.brokers[0].log.synced_offset = 0
    story.brokers[0].lose_power()
    story.end()


def a_leader_restarts_with_a_write_on_its_way(seed: int) -> None:
    """Under its old epoch it would not know the change that its former life has asked for."""
    story = Story(seed)
    story.drop(2)
    leader = story.brokers[0]
    leader.holds_isr_writes_ms = 60
    story.cut_links.clear()
    story.run_until(
        lambda: isinstance(leader.role, SimulatedLeader) and leader.role.replica.in_sync.pending is not None
    )
    leader.kill()
    leader.start()
    story.isolate(2)
    story.run_until(lambda: leader.leads, 40)
    leader.view_delay = FOR_EVER_MS
    story.run_for(100)
    story.produce(1, to=0)
    story.run_for(60)
    story.lead_alone(2)
    story.end()


def a_leader_returns_without_the_records_that_others_have_copied(seed: int) -> None:
    """They were not acknowledged yet. Found by the simulation: a write of its former life came after its registration,
    so the state looked as if it had been elected since."""
    story = Story(seed, flushes=True)
    story.drop(1)
    leader = story.brokers[0]
    leader.holds_isr_writes_ms = 30
    story.cut_links.clear()
    story.run_until(
        lambda: isinstance(leader.role, SimulatedLeader) and leader.role.replica.in_sync.pending is not None
    )
    story.produce(3, acks_all=False)
    story.run_until(lambda: story.brokers[2].log.end_offset == leader.log.end_offset, 20)
    leader.log.synced_offset = 4
    leader.lose_power()
    leader.start()
    for _ in range(10):
        story.run_for(10)
        story.produce(2, to=0)
    story.end()


# --- the rules, taken out


def begin_at_the_high_watermark(self: Any, log: Any) -> list[Any]:
    if self.phase is follower_replica.TRUNCATING:
        self._enter(follower_replica.FETCHING)
    return [follower_replica.TruncateTo(log.high_watermark)]


def only_in_range(fetch_offset: int, last_fetched_epoch: int, log: Any) -> ErrorCode:
    is_in_range = log.start_offset <= fetch_offset <= log.end_offset
    return ErrorCode.NONE if is_in_range else ErrorCode.OFFSET_OUT_OF_RANGE


def nearest_end(of_leader: Any, log: Any) -> TruncationPoint:
    end = log.high_watermark if of_leader.end_offset == NO_OFFSET else min(of_leader.end_offset, log.end_offset)
    return TruncationPoint(end, True)


_may_join, _on_write, _advance = LeaderReplica._may_join, InSyncReplicas.on_write, LeaderReplica._advance
_take_role, _init = SimulatedBroker._take_role, SimulatedCluster.__init__


def may_join_at_the_high_watermark(self: Any, broker_id: int, follower: Any) -> bool:
    with patch.object(self, "epoch_start_offset", 0):
        return _may_join(self, broker_id, follower)


def shrunk_when_sent(self: Any) -> Any:
    pending = self.pending
    if pending is None:
        return self.isr
    return pending.isr if self.phase is PENDING_SHRINK else self.isr | pending.isr


def unknown_is_refused(self: Any, sent: Any, outcome: WriteOutcome) -> Any:
    return _on_write(self, sent, WriteOutcome.REFUSED if outcome is WriteOutcome.UNKNOWN else outcome)


def retried_with_the_old_version(self: Any, sent: Any, outcome: WriteOutcome) -> Any:
    return [sent] if outcome is WriteOutcome.BAD_VERSION else _on_write(self, sent, outcome)


def advance_below_min_isr(self: Any, now_ms: float) -> Any:
    committed, least = self.in_sync.committed, self.min_insync_replicas
    self.in_sync.committed, self.min_insync_replicas = committed._replace(elr=frozenset()), 0
    try:
        return _advance(self, now_ms)
    finally:
        self.in_sync.committed, self.min_insync_replicas = committed, least


def lead_under_the_old_epoch(self: Any, view: Any) -> None:
    self.former_epoch = -1
    _take_role(self, view)


def without(rule: str, *, of_zookeeper: bool = False) -> Callable[..., None]:
    def begin(self: Any, *args: Any, **settings: Any) -> None:
        _init(self, *args, **settings)
        setattr(self.zookeeper if of_zookeeper else self, rule, False)

    return begin


def nobody(*args: Any, **more: Any) -> frozenset[int]:
    return frozenset()


Change = tuple[Any, str, Any]
NO_DIVERGENCE: list[Change] = [(leader_replica, "diverging_epoch", only_in_range)]
NO_REGISTRATIONS: list[Change] = [
    (SimulatedCluster, "__init__", without("checks_registrations", of_zookeeper=True)),
]
NO_ELR: list[Change] = [(module, "target_elr", nobody) for module in (in_sync_replicas, partition_state, election)]

CASES: list[tuple[Callable[[int], None], list[Change]]] = [
    (
        a_follower_of_a_new_epoch_has_not_learnt_the_high_watermark,
        [(follower_replica.FollowerReplica, "begin", begin_at_the_high_watermark)],
    ),
    (an_old_leader_returns_with_records_of_its_own, NO_DIVERGENCE),
    (two_fast_elections, [(follower_replica, "truncation_point", nearest_end)]),
    (a_fetch_of_an_earlier_epoch_comes_late, [(leader_replica, "check_epoch", lambda *epochs: ErrorCode.NONE)]),
    (
        the_latest_offset_is_asked_right_after_an_election,
        [(LeaderReplica, "latest_offset", lambda self: self.high_watermark)],
    ),
    (
        a_replica_joins_a_leader_whose_high_watermark_lags,
        [(LeaderReplica, "_may_join", may_join_at_the_high_watermark)],
    ),
    (a_shrink_that_is_not_written_yet, [(InSyncReplicas, "maximal", property(shrunk_when_sent))]),
    (an_expansion_whose_answer_is_lost, [(InSyncReplicas, "maximal", property(lambda self: self.isr))]),
    (an_expansion_whose_answer_is_lost, [(InSyncReplicas, "on_write", unknown_is_refused)]),
    (a_leader_with_an_old_version_of_the_state, [(InSyncReplicas, "on_write", retried_with_the_old_version)]),
    (a_replica_stops_while_its_expansion_is_on_its_way, NO_REGISTRATIONS),
    (a_replica_returns_empty_while_its_expansion_is_on_its_way, NO_REGISTRATIONS),
    (
        a_broker_loses_its_tail_and_is_back_within_its_session,
        [(SimulatedCluster, "__init__", without("leaves_with_lost_tail"))],
    ),
    (the_last_replica_standing, NO_ELR),
    (a_leader_without_the_others_shows_no_more, [(LeaderReplica, "_advance", advance_below_min_isr)]),
    (
        a_leader_returns_without_the_records_that_others_have_copied,
        [(SimulatedBroker, "_take_role", lead_under_the_old_epoch)],
    ),
    (
        a_leader_restarts_with_a_write_on_its_way,
        [(SimulatedBroker, "_take_role", lead_under_the_old_epoch)],
    ),
]


@pytest.fixture(params=range(len(CASES)), ids=[f"{story.__name__}-{n}" for n, (story, _) in enumerate(CASES)])
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[int], None], list[Change]]]:
    yield CASES[request.param]


def test_it_ends_well(case: tuple[Callable[[int], None], list[Change]]) -> None:
    for seed in SEEDS:
        case[0](seed)


def test_it_does_not_without_the_rule(case: tuple[Callable[[int], None], list[Change]]) -> None:
    story, changes = case
    failures = []
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(patch.object(*change))
        for seed in SEEDS:
            try:
                story(seed)
            except Violation as violation:
                failures.append(str(violation))
    assert failures, "the story ends well without its rule: it does not tell what it should"


@pytest.mark.parametrize("seed", SEEDS)
def test_with_flushes_the_last_replica_standing_has_what_was_acknowledged(seed: int) -> None:
    """flush.messages=1: a fetch offset is on the disk, so an ISR alone is enough."""
    with ExitStack() as stack:
        for change in NO_ELR:
            stack.enter_context(patch.object(*change))
        the_last_replica_standing(seed, flushes=True)
