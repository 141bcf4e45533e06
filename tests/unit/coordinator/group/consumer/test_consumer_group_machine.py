"""A consumer group under any order of heartbeats, crashes and failures: never two owners, and it converges.

Clients behave as Java's: they own what they were assigned, revoke in their own time, lose answers, and join again when
they are fenced. Members of the classic protocol come and go among them.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kafkalite.common.errors import ErrorCode
from tests.support.consumer_group_world import SESSION_MS, Topics, World, named, topic_id

NAMES = ["foo", "bar", "baz"]
MEMBERS = ["m1", "m2", "m3", "m4"]
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
RETRIED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)


class Client:
    """One consumer. `owned` are partitions that it reads; `assigned` those that it was told to have."""

    def __init__(self, member_id, instance_id):
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = ["foo"]
        self.forget()

    def forget(self):
        self.epoch = 0
        self.owned = set()
        self.assigned = set()
        self.is_member = False
        self.is_heard = True  # nothing was lost since its last answer


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0, 1_000]))
    def begin(self, interval):
        self.world = World(Topics(foo=3, bar=2), assignment_interval_ms=interval).load()
        self.clients = {each: Client(each, "i" if each == "m4" else None) for each in MEMBERS}
        self.group_epoch = 0

    # --- what clients do

    def heartbeat(self, client, *, is_lost=False, says_owned=False, resubscribes=None):
        if client.epoch < 0:
            client.forget()
        is_join = client.epoch == 0
        fields = {"instance_id": client.instance_id}
        if resubscribes is not None:
            client.topics = resubscribes
            fields["topics"] = list(resubscribes)
        if is_join or not client.is_heard:
            fields |= {"rebalance_timeout_ms": 20_000, "topics": list(client.topics)}
            says_owned = True
        if says_owned:
            fields["owns"] = named(_by_topic(client.owned))
        answer = self.world.beat(client.member_id, client.epoch, **fields)
        self.group_epoch_only_rises()
        if is_lost:
            client.is_heard = False
            return
        if answer.error in FENCED:
            client.forget()
        elif answer.error == ErrorCode.UNRELEASED_INSTANCE_ID or answer.error in RETRIED:
            client.is_heard = False
        else:
            assert answer.error == ErrorCode.NONE, answer
            assert is_join or answer.member_epoch >= client.epoch
            client.epoch, client.is_member, client.is_heard = answer.member_epoch, True, True
            if answer.assignment is not None:
                client.assigned = {(each, index) for each, some in answer.assignment.items() for index in some}
                client.owned &= client.assigned | client.owned  # it revokes later
            if client.owned <= client.assigned:
                client.owned = set(client.assigned)

    @rule(member=st.sampled_from(MEMBERS), is_lost=st.booleans(), says_owned=st.booleans())
    def beat(self, member, is_lost, says_owned):
        self.heartbeat(self.clients[member], is_lost=is_lost, says_owned=says_owned)

    @rule(member=st.sampled_from(MEMBERS), topics=st.sets(st.sampled_from(NAMES)).map(sorted))
    def resubscribe(self, member, topics):
        self.heartbeat(self.clients[member], resubscribes=topics)

    @rule(member=st.sampled_from(MEMBERS))
    def revoke(self, member):
        """The callback of the client is done: it reads what it was told to have, and says so."""
        client = self.clients[member]
        client.owned = set(client.assigned)
        self.heartbeat(client, says_owned=True)

    @rule(member=st.sampled_from(MEMBERS), is_lost=st.booleans(), returns=st.booleans())
    def leave(self, member, is_lost, returns):
        client = self.clients[member]
        epoch = -2 if returns and client.instance_id else -1
        if client.is_member:
            client.owned.clear()  # a client that leaves reads nothing, whether it is heard or not
            self.world.leave(member, epoch, instance_id=client.instance_id)
            client.forget()

    @rule(member=st.sampled_from(MEMBERS))
    def die(self, member):
        self.clients[member].forget()

    # --- what happens around them

    @rule(ms=st.sampled_from([100, 1_000, 10_000, 20_000, SESSION_MS]))
    def time_passes(self, ms):
        self.world.clock.advance(ms)
        self.group_epoch_only_rises()
        group = self.world.group()
        known = group.tables.members if group is not None else {}
        for client in self.clients.values():
            if client.member_id not in known:
                client.owned.clear()  # a client that was not heard for so long stops reading by itself

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def topic_grows(self, name, more):
        topics = self.world.topics
        if name not in topics.topics:
            topics.create(name, more)
        elif len(topics.topics[name].partitions) < 8:
            topics.grow(name, len(topics.topics[name].partitions) + more)

    @rule(compacted=st.booleans())
    def crash(self, compacted):
        self.world.restart(compacted=compacted)

    @rule(member=st.sampled_from(MEMBERS), error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS]))
    def fail(self, member, error):
        """The log refuses what this heartbeat would write."""
        before = _state(self.world.group())
        self.world.refuses = error
        self.heartbeat(self.clients[member])
        self.world.refuses = ErrorCode.NONE
        assert _state(self.world.group()) == before

    # --- what holds

    def group_epoch_only_rises(self):
        group = self.world.group()
        if group is not None:
            assert group.tables.group_epoch >= self.group_epoch
            self.group_epoch = group.tables.group_epoch
            assert group.tables.target_epoch <= group.tables.group_epoch

    @invariant()
    def no_partition_has_two_owners(self):
        if not hasattr(self, "world"):
            return
        group = self.world.group()
        for members in [] if group is None else [group.tables.members.values()]:
            held = [
                (topic, index)
                for member in members
                for part in (member.current.assigned, member.current.pending_revocation)
                for topic, some in part.items()
                for index in some
            ]
            assert len(held) == len(set(held))
            for member in members:
                for part in (member.current.assigned, member.current.pending_revocation):
                    for topic, some in part.items():
                        for index in some:
                            assert group.tables.partition_epochs.get(topic, index) == member.current.epoch
        read = [each for client in self.clients.values() for each in client.owned]
        assert len(read) == len(set(read)), "two clients read one partition"

    @invariant()
    def the_log_tells_the_same(self):
        if not hasattr(self, "world"):
            return
        before = _state(self.world.group())
        other = World.__new__(World)
        other.__dict__ |= self.world.__dict__
        other.log, other.held, other.resolving = list(self.world.log), [], []
        other._start()
        other.load()
        assert _state(other.group()) == before

    def teardown(self):
        if hasattr(self, "world"):
            self.converge()

    def converge(self):
        """When all heartbeat, each partition of a subscribed topic gets its one reader. A static member that died is
        let in again when its session has ended."""
        world, clients = self.world, self.clients.values()
        for _ in range(50):
            world.clock.advance(1_500)
            for client in clients:
                client.owned = set(client.assigned)
                self.heartbeat(client, says_owned=True)
            if all(client.is_member for client in clients) and world.group().state_name == "Stable":
                break
        assert world.group().state_name == "Stable"
        wanted = {
            (topic_id(name), index)
            for client in clients
            for name in client.topics
            if name in world.topics.topics
            for index in world.topics.topics[name].partitions
        }
        assert {each for client in clients for each in client.assigned} == wanted


def _by_topic(partitions):
    found = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def _state(group):
    if group is None:
        return None
    tables = group.tables
    counts = (tables.name_counts, tables.regex_counts, tables.assignor_counts, tables.protocol_counts)
    return (
        dict(tables.members), tables.group_epoch, tables.metadata_hash, tables.target_epoch, tables.target_timestamp_ms,
        dict(tables.targets.by_member), {each: dict(some) for each, some in tables.targets.member_of.items()},
        {each: dict(some) for each, some in tables.partition_epochs._epochs.items()}, dict(tables.instances),
        tuple(map(dict, counts)), tables.classic_count, dict(tables.regexes), dict(tables.regex_topic_counts),
    )  # fmt: skip


@pytest.mark.thorough
def test_groups_converge_without_two_owners() -> None:
    run_state_machine_as_test(
        ConsumerGroupMachine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_twenty_thousand_histories() -> None:
    run_state_machine_as_test(
        ConsumerGroupMachine,
        settings=settings(
            max_examples=20_000, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
