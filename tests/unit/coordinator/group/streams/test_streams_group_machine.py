"""A group of Kafka Streams under any order of heartbeats, crashes and failures: no task is active twice, it converges.

Members of two processes come and go, lose answers and give up tasks in their own time; the log is slow or refuses,
topics come, grow and go, the number of standby copies changes. After every step the log is read into another
coordinator, which must know the same.
"""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.streams.topology import InternalTopic, Subtopology, Topology
from tests.support.consumer_group_world import Topics
from tests.support.streams_group_world import SESSION_MS, StreamsWorld

SLOTS = {"m1": "p1", "m2": "p1", "m3": "p2", "m4": "p3"}  # the process of each member
TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("foo",)),
        Subtopology("1", ("bar",), changelog_topics=(InternalTopic("bar-changelog"),)),
    ),
)
REBALANCE_MS = 20_000
ROUNDS = 120  # of 1.5 s each, until a group has converged
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
RETRIED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
TASK_GONE = "Number of tasks for this subtopology"  # its topic came back with less partitions, which ends a client
slots = st.sampled_from(sorted(SLOTS))


class Client:
    """A member as Kafka Streams behaves: it has what it was assigned, and gives up tasks in its own time."""

    def __init__(self, world, member_id, process_id):
        self.world = world
        self.member_id = member_id
        self.process_id = process_id
        self.waiter = None
        self.lose()

    def lose(self):
        """It is fenced, or dies: it has no task."""
        self.epoch = 0
        self.owned = _tasks()
        self.assigned = _tasks()
        self.is_ready = False  # a member that has said and heard all
        self.is_heard = True  # nothing was lost since its last answer

    def step(self, *, says_owned):
        if self.waiter is not None:
            return
        fields = {}
        if self.epoch == 0:
            fields = self.world.joining(self.member_id)
            fields |= {"process_id": self.process_id, "rebalance_timeout_ms": REBALANCE_MS}
        elif says_owned or not self.is_heard:
            fields = {"owns": tuple(_rows(some) for some in self.owned)}
        self.waiter = self.world.send(self.member_id, self.epoch, **fields)

    def hear(self, *, is_lost):
        if self.waiter is None or self.waiter.result is None:
            return
        answer, self.waiter = self.waiter.result, None
        if is_lost or answer.error in RETRIED:
            self.is_ready = self.is_heard = False
        elif answer.error in FENCED or TASK_GONE in (answer.message or ""):
            self.lose()
        else:
            assert answer.error == ErrorCode.NONE, answer
            assert answer.member_epoch >= self.epoch
            self.is_ready = answer.member_epoch == self.epoch
            self.epoch, self.is_heard = answer.member_epoch, True
            if answer.tasks is not None:
                kinds = answer.tasks.active, answer.tasks.standby, answer.tasks.warmup
                self.assigned = tuple({(key, each) for key, some in kind.items() for each in some} for kind in kinds)
            if all(mine <= its for mine, its in zip(self.owned, self.assigned, strict=True)):
                self.owned = tuple(map(set, self.assigned))

    def revoke(self):
        """Its tasks are closed that it was told to give up."""
        self.owned = tuple(mine & its for mine, its in zip(self.owned, self.assigned, strict=True))

    def leave(self):
        if self.epoch > 0:
            self.world.send(self.member_id, -1)
        self.lose()
        self.waiter = None


class StreamsGroupMachine(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0, 1_000]), delay=st.sampled_from([0, 3_000]), copies=st.integers(0, 2))
    def begin(self, interval, delay, copies):
        self.world = StreamsWorld(
            Topics(foo=3, bar=2),
            TOPOLOGY,
            assignment_interval_ms=interval,
            initial_rebalance_delay_ms=delay,
            num_standby_replicas=copies,
        ).load()
        self.count = 0
        self.clients = {slot: self.new_client(slot) for slot in SLOTS}
        self.seen = None

    def new_client(self, slot):
        self.count += 1
        return Client(self.world, f"{slot}-{self.count}", SLOTS[slot])

    # --- what clients do

    def heartbeat(self, client, *, is_lost=False, says_owned=False):
        client.hear(is_lost=is_lost)
        client.step(says_owned=says_owned)
        client.hear(is_lost=is_lost)
        self.epochs_only_rise()

    @rule(slot=slots, is_lost=st.booleans(), says_owned=st.booleans())
    def beat(self, slot, is_lost, says_owned):
        self.heartbeat(self.clients[slot], is_lost=is_lost, says_owned=says_owned)

    @rule(times=st.integers(1, 4))
    def all_beat(self, times):
        for client in list(self.clients.values()) * times:
            self.heartbeat(client, says_owned=True)

    @rule(slot=slots)
    def revoke(self, slot):
        self.clients[slot].revoke()
        self.heartbeat(self.clients[slot], says_owned=True)

    @rule(slot=slots)
    def leave(self, slot):
        self.clients[slot].leave()

    @rule(slot=slots, leaves=st.booleans())
    def restart(self, slot, leaves):
        """The client dies, and another one comes."""
        if leaves:
            self.clients[slot].leave()
        self.clients[slot] = self.new_client(slot)

    # --- what happens around them

    @rule(ms=st.sampled_from([100, 1_000, 3_000, 10_000, 20_000, SESSION_MS]))
    def time_passes(self, ms):
        self.world.clock.advance(ms)
        self.epochs_only_rise()
        group = self.world.group()
        known = group.tables.members if group is not None else {}
        for client in self.clients.values():
            if client.member_id not in known:
                client.owned = _tasks()  # a client that was not heard for so long stops by itself

    @rule(name=st.sampled_from(["foo", "bar", "bar-changelog"]))
    def topic_comes_or_grows(self, name):
        topics = self.world.topics
        count = len(topics.topics["bar"].partitions) if name == "bar-changelog" and "bar" in topics.topics else 2
        if name not in topics.topics:
            topics.create(name, count, uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{topics.changes}"))
        elif len(topics.topics[name].partitions) < 5:
            topics.grow(name, len(topics.topics[name].partitions) + 1)

    @rule(name=st.sampled_from(["foo", "bar", "bar-changelog"]))
    def topic_goes(self, name):
        if name in self.world.topics.topics:
            self.world.topics.delete(name)

    @rule(copies=st.integers(0, 2))
    def copies_change(self, copies):
        self.world.streams_config = self.world.streams_config._replace(num_standby_replicas=copies)

    @rule(compacted=st.booleans())
    def crash(self, compacted):
        self.world.restart(compacted=compacted)

    @rule(slot=slots)
    def fail(self, slot):
        """The log refuses what this heartbeat would write."""
        before = _state(self.world.group())
        self.world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        self.heartbeat(self.clients[slot])
        self.world.refuses = ErrorCode.NONE
        assert _state(self.world.group()) == before

    @rule()
    def the_log_dawdles(self):
        self.world.dawdles = True

    @precondition(lambda self: self.world.dawdles)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]))
    def the_log_answers(self, error):
        self.world.dawdles = False
        self.world.catch_up(error)

    # --- what holds

    def epochs_only_rise(self):
        group = self.world.group()
        if group is None:
            self.seen = None
            return
        tables = group.tables
        if self.seen is not None:
            assert tables.group_epoch >= self.seen
        self.seen = tables.group_epoch
        assert tables.target_epoch <= tables.group_epoch
        assert all(member.current.epoch <= tables.target_epoch for member in tables.members.values())

    @invariant()
    def no_task_is_active_twice(self):
        if not hasattr(self, "world"):
            return
        group = self.world.group()
        active, copies = Counter(), Counter()
        for member in group.tables.members.values() if group is not None else ():
            process = member.metadata.process_id
            for tasks in (member.current.assigned, member.current.pending_revocation):
                active.update((key, each) for key, some in tasks.active.items() for each in some)
                for kind in (tasks.active, tasks.standby, tasks.warmup):
                    copies.update((process, key, each) for key, some in kind.items() for each in some)
        assert not active or max(active.values()) == 1, active
        assert not copies or max(copies.values()) == 1, copies
        running = Counter(task for client in self.clients.values() for task in client.owned[0])
        assert not running or max(running.values()) == 1, "two clients run one task"

    @invariant()
    def the_log_tells_the_same(self):
        if not hasattr(self, "world"):
            return
        other = StreamsWorld.__new__(StreamsWorld)
        other.__dict__ |= self.world.__dict__
        other.log, other.held = list(self.world.log), []
        other._start()
        other.load()
        assert _state(other.group()) == _state(self.world.group())

    def teardown(self):
        if hasattr(self, "world"):
            self.converge()

    def converge(self):
        """When all heartbeat and the topics fit, each task is active once."""
        world, clients = self.world, self.clients.values()
        world.dawdles = False
        world.catch_up()
        topics = world.topics
        for name in ("foo", "bar"):
            if name not in topics.topics:
                topics.create(name, 2)
        if "bar-changelog" in topics.topics:
            topics.delete("bar-changelog")
        topics.create("bar-changelog", len(topics.topics["bar"].partitions))
        wanted = {(key, each) for key, name in (("0", "foo"), ("1", "bar")) for each in topics.topics[name].partitions}
        for _ in range(ROUNDS):
            self.time_passes(1_500)
            for client in clients:
                client.revoke()
                self.heartbeat(client, says_owned=True)
                self.no_task_is_active_twice()
            running = {task for client in clients for task in client.owned[0]}
            is_stable = world.group().state_name == "Stable"  # not before a dead member without tasks has expired
            if is_stable and all(client.is_ready for client in clients) and running == wanted:
                return
        raise AssertionError(f"{world.group().state_name}: {running ^ wanted}")


def _tasks():
    return set(), set(), set()


def _rows(tasks):
    found = {}
    for key, partition in tasks:
        found.setdefault(key, set()).add(partition)
    return found


def _state(group):
    if group is None:
        return None
    tables = group.tables
    processes = tables.processes
    return (
        dict(tables.members), tables.metadata, tables.target_epoch, tables.target_timestamp_ms, dict(tables.targets),
        tables.topology, dict(processes._active), _frozen(processes._standby), _frozen(processes._warmup),
    )  # fmt: skip


def _frozen(holders):
    return {task: frozenset(some) for task, some in holders.items()}


def run(examples, steps):
    run_state_machine_as_test(
        StreamsGroupMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.thorough
def test_groups_converge_without_a_task_active_twice() -> None:
    run(50, 30)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_twenty_thousand_histories() -> None:
    run(20_000, 40)
