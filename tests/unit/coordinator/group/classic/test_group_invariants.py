"""Random lives of a group: whatever members, time and disk do, what everybody was told fits together."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.classic.group_state import COMPLETING, EMPTY, STABLE
from kafkalite.coordinator.group.classic.members import NEVER_MS

GROUP = "g"
INSTANCES = [None, None, None, "i1", "i2"]
PROTOCOLS = [
    [("range", b"1")],
    [("range", b"2"), ("sticky", b"2")],
    [("sticky", b"3"), ("range", b"3")],
]
LOG_FAULTS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
]


class GroupLife(RuleBasedStateMachine):
    people = Bundle("people")  # (member id, instance id) that somebody was once told

    new_world = None  # the test says how worlds are made

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 1_000]))
    def begin(self, delay_ms, max_size):
        self.world = self.new_world(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
        self.calls = []  # everything that ever had to wait
        self.told = {}  # generation -> the protocol and leader that joins of it were told
        self.given = {}  # generation -> {member id: assignment} as its leader said
        self.joined = []
        self.next_offset = 1
        self.committed = {}

    # --- what members do

    @rule(
        target=people,
        instance=st.sampled_from(INSTANCES),
        version=st.sampled_from([3, 5, 9]),
        protocols=st.sampled_from(PROTOCOLS),
        session_ms=st.sampled_from([6_000, 30_000]),
        rebalance_ms=st.sampled_from([5_000, 60_000]),
    )
    def arrives(self, instance, version, protocols, session_ms, rebalance_ms):
        known = {each.member_id for each in self.members()} | set(self.pending())
        call = self.world.join(
            instance=instance,
            version=version,
            protocols=protocols,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        self.keep(call)
        new = ({each.member_id for each in self.members()} | set(self.pending())) - known
        return (new.pop() if new else "nobody", instance)

    @rule(who=people, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 9]))
    def joins_again(self, who, protocols, version):
        self.keep(self.world.join(who[0], instance=who[1], protocols=protocols, version=version))

    @rule(who=people, behind=st.sampled_from([0, 0, 0, 1]))
    def syncs(self, who, behind):
        group = self.group()
        generation = group.describe().epoch - behind if group else 0
        assignments = {each.member_id: f"{generation}/{each.member_id}".encode() for each in self.members()}
        self.keep(self.world.sync(who[0], generation, assignments, instance=who[1]), sync_of=(generation, who[0]))

    @rule(who=people)
    def beats(self, who):
        group = self.group()
        code = self.world.heartbeat(who[0], group.describe().epoch if group else 0, instance=who[1])
        assert code in (
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )

    @rule(who=people)
    def leaves(self, who):
        answer = self.world.leave(who)
        left = answer.members[0].error_code == ErrorCode.NONE
        assert not left or who[0] not in {each.member_id for each in self.members()}

    @rule(who=people, index=st.integers(0, 2))
    def commits(self, who, index):
        group = self.group()
        offset, self.next_offset = self.next_offset, self.next_offset + 1
        generation = group.describe().epoch if group and group.members else -1
        member_id = who[0] if generation >= 0 else ""
        instance = who[1] if generation >= 0 else None
        self.keep(self.world.commits({("orders", index): offset}, member_id, generation, instance=instance))

    @rule(data=st.data())
    def gives_up(self, data):
        waiting = [call for call, _ in self.calls if call.waits]
        if waiting:
            call = data.draw(st.sampled_from(waiting))
            self.calls = [each for each in self.calls if each[0] is not call]
            call.give_up()

    # --- what time and disk do

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 5_000, 10_000, 60_000]))
    def time_passes(self, ms):
        self.world.passes(ms)

    @rule(hours=st.sampled_from([-1, 1]))
    def somebody_sets_the_wall_clock(self, hours):
        self.world.clock.step_wall(hours * 3_600_000)

    @rule(dawdles=st.booleans())
    def the_log_is_busy(self, dawdles):
        self.world.dawdles = dawdles
        while not dawdles and self.world.held:
            self.world.log_answers()

    @rule(error=st.sampled_from(LOG_FAULTS))
    def the_log_answers(self, error):
        if self.world.held:
            self.world.log_answers(error)

    @rule()
    def the_broker_dies(self):
        self.world.held.clear()  # what the log had not written is lost, and nobody was told otherwise
        before = self.world.offsets()
        stored = self.group()
        stable = self.world.describe() if stored is not None and stored.state_name == STABLE.value else None
        self.world.restart()
        self.calls, self.told = [], {}  # a generation that was not stored begins again
        assert self.world.offsets() == before
        if stable is not None:
            assert self.world.describe() == stable
        self.settle()

    # --- what must hold

    @invariant()
    def the_books_are_right(self):
        group = self.group()
        if group is None:
            return
        members = group.members
        present = list(members)
        rebalance = group._rebalance
        waiters = rebalance.barrier.waiters
        assert set(waiters) <= set(members.by_id)
        assert not any(member.member_id in waiters and member.sync_waiter is not None for member in present)
        assert not set(members.pending) & set(members.by_id)
        assert (members.leader_id in members.by_id) if present else members.leader_id is None
        assert all(key == member.member_id for key, member in members.by_id.items())
        for member in present:
            assert members.id_of_instance(member.instance_id) in (None, member.member_id)
        if group.state_name == EMPTY.value:
            assert not present
        if group.state_name in (COMPLETING.value, STABLE.value):
            assert present
            assert all(group.describe().protocol_name in dict(member.protocols) for member in present)
        if group.state_name != COMPLETING.value:
            assert not any(member.sync_waiter is not None for member in present)
        deadlines = [member.session_deadline_ms for member in present] + list(members.pending.values())
        assert rebalance.sessions.timer_ms <= min(deadlines, default=NEVER_MS)
        assert rebalance._pending_sync <= set(members.by_id)

    @invariant()
    def nobody_was_told_something_else(self):
        for call, sync_of in self.calls:
            if call.waits or sync_of is None or call.error:
                continue
            generation, member_id = sync_of
            assert call.answer.assignment in (b"", f"{generation}/{member_id}".encode()) or member_id.startswith("i")
        for call, _ in self.calls:
            answer = call.answer
            if call.waits or not hasattr(answer, "leader") or call.error:
                continue
            protocol = self.told.setdefault(answer.generation_id, answer.protocol_name)
            assert answer.protocol_name == protocol
            if answer.members:
                assert answer.leader == answer.member_id
                assert answer.member_id in {each.member_id for each in answer.members}
        self.calls = [each for each in self.calls if each[0].waits]

    @invariant()
    def offsets_never_go_back(self):
        now = self.world.offsets()
        for partition, offset in now.items():
            assert offset >= self.committed.get(partition, 0)
        assert set(now) >= set(self.committed)
        self.committed = now

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.settle()
        self.world.coordinator.close()
        assert not self.world.coordinator.timer_count
        self.world.loop.close()

    # --- helpers

    def settle(self):
        """Every waiting request is answered in the end, even without further events."""
        self.the_log_is_busy(False)
        for _ in range(30):
            self.world.passes(60_000)
        assert not any(call.waits for call, _ in self.calls)
        group = self.group()
        assert group is None or not group.members

    def keep(self, call, sync_of=None):
        self.calls.append((call, sync_of))

    def group(self):
        return self.world.store.by_id.get(GROUP)

    def members(self):
        group = self.group()
        return list(group.members) if group else []

    def pending(self):
        group = self.group()
        return list(group.members.pending) if group else []


def test_random_lives(world_class):
    class Life(GroupLife):
        new_world = world_class

    run_state_machine_as_test(Life, settings=settings(max_examples=40, stateful_step_count=40, deadline=None))
