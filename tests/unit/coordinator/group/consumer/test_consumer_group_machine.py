"""A consumer group under any order of heartbeats, crashes and failures: never two owners, and it converges.

Members of both protocols come and go, change their topics and regular expressions, lose answers, and turn to the other
protocol; the log is slow or refuses, matching fails, topics come, grow and go. After every step the log is read into
another coordinator, which must know the same.
"""

from __future__ import annotations

import uuid

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

from kafkalite.common.errors import ErrorCode, KafkaError
from tests.support.consumer_group_world import SESSION_MS, Topics, World
from tests.support.group_clients import COOPERATIVE, EAGER, ClassicClient, ConsumerClient
from tests.support.manual_clock import ManualClock

NAMES = ["foo", "bar", "baz"]
REGEXES = ["", "ba.", "foo|baz", ".*"]
SLOTS = ["m1", "m2", "m3", "m4"]
STATIC = "m4"
ROUNDS = 120  # of 1.5 s each, until a group has converged: two sessions and a rebalance at most
slots = st.sampled_from(SLOTS)


class ConsumerGroupMachine(RuleBasedStateMachine):
    with_regexes = True
    with_classic = True

    @initialize(
        interval=st.sampled_from([0, 1_000]),
        protocol=st.sampled_from([EAGER, COOPERATIVE]),
        classic=st.sets(slots),
    )
    def begin(self, interval, protocol, classic):
        self.world = World(Topics(foo=3, bar=2), assignment_interval_ms=interval).load()
        self.protocol = protocol  # of all classic clients, which must have one in common
        self.count = 0
        self.clients = {slot: self.new_client(slot, is_classic=slot in classic) for slot in SLOTS}
        self.given_away = {}
        self.ids_may_differ = False
        self.seen = None
        self.last_read = None

    def new_client(self, slot, topics=("foo",), regex="", *, is_classic):
        self.count += 1
        instance_id = "i" if slot == STATIC else None
        if is_classic and self.with_classic:
            return ClassicClient(self.world, self.protocol, instance_id, topics)
        return ConsumerClient(self.world, f"{slot}-{self.count}", instance_id, topics, regex)

    # --- what clients do

    def heartbeat(self, client, *, is_lost=False, says_owned=False):
        client.hear(is_lost=is_lost)
        before = self.world.group()
        client.step(says_owned=says_owned)
        self.upgrade_gives_away(before, self.world.group())
        client.hear(is_lost=is_lost)
        self.group_epoch_only_rises()

    def upgrade_gives_away(self, before, after):
        """A cooperative client reads on while its group is between two assignments. Kafka 4.3 forgets that when the
        group becomes one of the consumer protocol just then, and may give such partitions to others at once
        (`migration_amid_a_rebalance` of the differential suite). So these have two readers until the client hears."""
        if before is None or after is None or (before.kind, after.kind) != ("classic", "consumer"):
            return
        for client in self.clients.values():
            if isinstance(client, ClassicClient):
                member = after.tables.members.get(client.member_id)
                known = member.current.assigned if member is not None else {}
                kept = {(topic, index) for topic, some in known.items() for index in some}
                self.given_away.setdefault(client, set()).update(client.owned - kept)

    @rule(slot=slots, is_lost=st.booleans(), says_owned=st.booleans())
    def beat(self, slot, is_lost, says_owned):
        self.heartbeat(self.clients[slot], is_lost=is_lost, says_owned=says_owned)

    @rule(times=st.integers(1, 4))
    def all_beat(self, times):
        for client in list(self.clients.values()) * times:
            self.heartbeat(client, says_owned=True)

    @rule(slot=slots, topics=st.sets(st.sampled_from(NAMES)).map(sorted), regex=st.sampled_from(REGEXES))
    def resubscribe(self, slot, topics, regex):
        client = self.clients[slot]
        client.resubscribe(topics, regex if self.with_regexes and isinstance(client, ConsumerClient) else "")
        self.heartbeat(client)

    @rule(slot=slots)
    def revoke(self, slot):
        self.clients[slot].revoke()
        self.heartbeat(self.clients[slot], says_owned=True)

    @rule(slot=slots, returns=st.booleans())
    def leave(self, slot, returns):
        self.clients[slot].leave(returns=returns)
        self.group_epoch_only_rises()

    @rule(slot=slots, leaves=st.booleans(), is_classic=st.booleans())
    def restart(self, slot, leaves, is_classic):
        """The client dies, and another one comes, perhaps of the other protocol."""
        old = self.clients[slot]
        if leaves:
            old.leave(returns=True)
            self.group_epoch_only_rises()
        self.clients[slot] = self.new_client(slot, old.topics, old.regex, is_classic=is_classic)

    # --- what happens around them

    @rule(ms=st.sampled_from([100, 1_000, 10_000, 20_000, SESSION_MS]))
    def time_passes(self, ms):
        self.world.clock.advance(ms)
        self.group_epoch_only_rises()
        known = _member_ids(self.world.group())
        for client in self.clients.values():
            if client.member_id not in known:
                client.owned.clear()  # a client that was not heard for so long stops reading by itself

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def topic_grows(self, name, more):
        topics = self.world.topics
        if name not in topics.topics:
            topics.create(name, more, uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{topics.changes}"))
        elif len(topics.topics[name].partitions) < 8:
            topics.grow(name, len(topics.topics[name].partitions) + more)

    @rule(name=st.sampled_from(NAMES))
    def topic_goes(self, name):
        if name in self.world.topics.topics:
            self.world.topics.delete(name)

    @precondition(lambda self: self.world.resolving)
    @rule(fails=st.booleans())
    def resolve(self, fails):
        self.world.resolve(fails=fails)

    @rule(compacted=st.booleans())
    def crash(self, compacted):
        self.world.restart(compacted=compacted)
        self.ids_may_differ = False

    @rule(slot=slots, error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS]))
    def fail(self, slot, error):
        """The log refuses what this heartbeat would write."""
        group, client = self.world.group(), self.clients[slot]
        before = _state(group)
        self.world.refuses = error
        self.heartbeat(client)
        self.world.refuses = ErrorCode.NONE
        is_classic = group is None or group.kind == "classic" or not group.has_members
        if isinstance(client, ConsumerClient) or not is_classic:
            assert _state(self.world.group()) == before

    @rule()
    def the_log_dawdles(self):
        self.world.dawdles = True

    @precondition(lambda self: self.world.dawdles)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]))
    def the_log_answers(self, error):
        """As in Kafka, a classic group whose log does not answer in time takes the new id of a static member back,
        which the log has nevertheless."""
        group = self.world.group()
        self.ids_may_differ |= error != ErrorCode.NONE and group is not None and group.kind == "classic"
        self.world.dawdles = False
        self.world.catch_up(error)

    # --- what holds

    def group_epoch_only_rises(self):
        group = self.world.group()
        if group is None or group.kind != "consumer":
            self.seen = None
            return
        if self.seen is not None:
            assert group.tables.group_epoch >= self.seen
        self.seen = group.tables.group_epoch
        assert group.tables.target_epoch <= group.tables.group_epoch

    @invariant()
    def no_partition_has_two_owners(self):
        if not hasattr(self, "world"):
            return
        group = self.world.group()
        for members in [group.tables.members.values()] if group is not None and group.kind == "consumer" else []:
            held = [
                (topic, index, member.current.epoch)
                for member in members
                for part in (member.current.assigned, member.current.pending_revocation)
                for topic, some in part.items()
                for index in some
            ]
            assert len(held) == len({each[:2] for each in held})
            for topic, index, epoch in held:
                assert group.tables.partition_epochs.get(topic, index) == epoch
        for client, some in self.given_away.items():
            some &= client.owned
        read = [each for client in self.clients.values() for each in client.owned - self.given_away.get(client, set())]
        assert len(read) == len(set(read)), "two clients read one partition"

    @invariant()
    def the_log_tells_the_same(self):
        if not hasattr(self, "world"):
            return
        group = self.world.group()
        if group is not None and group.kind == "classic" and group.state_name != "Stable":
            return  # a classic group stores only what a rebalance has come to
        stored = self.read(len(self.world.log)).group()
        assert _state(stored, self.ids_may_differ) == _state(group, self.ids_may_differ)

    def read(self, count):
        """Another world, whose log is the beginning of this one's. It has a clock of its own, and is the same as long
        as nothing was written and no time has passed."""
        begin = self.world.log[:count], self.world.clock.wall_ms()
        if self.last_read is not None and self.last_read[0] == begin:
            return self.last_read[1]
        other = World.__new__(World)
        other.__dict__ |= self.world.__dict__
        other.log, other.held, other.resolving = list(begin[0]), [], []
        other.clock = ManualClock(begin[1])
        other._start()
        self.last_read = begin, other.load()
        other.stop_resolving()
        return other

    @invariant()
    def descriptions_tell_what_is_stored(self):
        if not hasattr(self, "world"):
            return
        stored = self.read(len(self.world.log) - self.world.held_count)
        described = _described(self.world)
        if described[0] != "classic":  # such a group stores only what a rebalance has come to
            assert described == _described(stored)

    def teardown(self):
        if hasattr(self, "world"):
            try:
                self.converge()
            finally:
                self.world.stop_resolving()

    def converge(self):
        """When all heartbeat, each partition of a subscribed topic gets its one reader. A static member that died is
        let in again when its session has ended."""
        world, clients = self.world, self.clients.values()
        world.dawdles = False
        world.catch_up()
        for number in range(ROUNDS):
            if number in (0, ROUNDS // 2):
                for client in clients:  # the leader of a classic group notices by itself that topics have changed, but
                    client.resubscribe(client.topics, client.regex)  # a static one that returns only what comes then
            self.time_passes(1_500)
            world.resolve()
            for client in clients:
                client.revoke()
                self.heartbeat(client, says_owned=True)
                self.no_partition_has_two_owners()
            wanted = set().union(*(client.wanted() for client in clients))
            read = {each for client in clients for each in client.owned}
            if all(client.is_settled for client in clients) and read == wanted and world.group().state_name == "Stable":
                return
        raise AssertionError(f"{world.group().state_name}: {read ^ wanted}")


class ConsumersOnlyMachine(ConsumerGroupMachine):
    """Clients of the consumer protocol that name their topics."""

    with_regexes = with_classic = False


def _member_ids(group):
    if group is None:
        return set()
    return set(group.tables.members) if group.kind == "consumer" else {each.member_id for each in group.members}


def _described(world):
    groups = world.coordinator
    _, listed = groups.list_groups(())
    group, _ = groups.describe("g")
    try:
        described = groups.consumer_groups.describe("g")
        described = described._replace(members=sorted(described.members))
    except KafkaError as error:
        described = error.message
    return group and group.kind, listed, described


def _state(group, by_instance=False):
    """`by_instance` without the ids of static members of a classic group."""
    if group is None:
        return None
    if group.kind == "classic":
        described = group.describe()
        names = [(by_instance and each.instance_id) or each.member_id for each in described.members]
        members = {
            name: (each.instance_id, each.assignment) for name, each in zip(names, described.members, strict=True)
        }
        return described.state, described.epoch, members
    tables = group.tables
    counts = (tables.name_counts, tables.regex_counts, tables.assignor_counts, tables.protocol_counts)
    return (
        dict(tables.members), tables.group_epoch, tables.metadata_hash, tables.target_epoch, tables.target_timestamp_ms,
        dict(tables.targets.by_member), {each: dict(some) for each, some in tables.targets.member_of.items()},
        {each: dict(some) for each, some in tables.partition_epochs._epochs.items()}, dict(tables.instances),
        tuple(map(dict, counts)), tables.classic_count, dict(tables.regexes), dict(tables.regex_topic_counts),
    )  # fmt: skip


def run(machine, examples, steps):
    checks = list(HealthCheck)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
        ),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("machine", [ConsumersOnlyMachine, ConsumerGroupMachine])
def test_groups_converge_without_two_owners(machine) -> None:
    run(machine, 50, 30)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("machine", [ConsumersOnlyMachine, ConsumerGroupMachine])
def test_twenty_thousand_histories(machine) -> None:
    run(machine, 20_000, 40)
