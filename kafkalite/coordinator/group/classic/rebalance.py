"""The rebalances of one classic group: its state, its generation, and the join and sync phases that lead to the next.

In the join phase the members join until the join barrier is complete; they form the next generation. In the sync phase
the leader sends the assignment, which is stored before any member gets it. `ClassicGroup` decides which requests start
or advance a rebalance.

A rebalance of an empty group waits for group.initial.rebalance.delay.ms. If a member was added meanwhile, it waits for
another such delay, up to the rebalance timeout in total. Any other rebalance waits until all members have joined and
all pending member ids are used, but no longer than the rebalance timeout.
Source: kafka.coordinator.group.{GroupCoordinator, GroupMetadata, DelayedJoin, InitialDelayedJoin, DelayedSync,
DelayedHeartbeat} (3.9); KIP-134, KIP-345, KIP-394 (pending ids), KIP-814.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.classic.group_state import (
    COMMIT_ERROR,
    COMPLETING,
    EMPTY,
    ENTERED_FROM,
    HEARTBEAT_ERROR,
    PREPARING,
    STABLE,
    EmptyGroupStored,
    GroupState,
    GroupTimer,
    Stored,
)
from kafkalite.coordinator.group.classic.members import NEVER_MS, Member, Members
from kafkalite.coordinator.group.group import JOIN, REPORT_AFTER_MS, SYNC, JoinResult, SyncResult, Waiting
from kafkalite.coordinator.group.record_codec import group_key, group_value
from kafkalite.coordinator.runtime.effects import Answer, Append, CancelTimer, Effect, Records, SetTimer, Waiter
from kafkalite.protocol.records import CONSUMER_PROTOCOL_TYPE, NO_TIMESTAMP, GroupMetadataValue, subscribed_topics

logger = logging.getLogger(__name__)

GENERATION_MAX = (1 << 31) - 1
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # a new member cannot heartbeat while its first join is pending


class JoinBarrier:
    """The waiters of the members that have joined, and the deadline of the rebalance timer."""

    __slots__ = ("_delay_ms", "_initial_delay_ms", "_remaining_ms", "new_member_added", "waiters")

    def __init__(self, initial_delay_ms: int) -> None:
        self.waiters: dict[str, Waiter[JoinResult]] = {}  # Invariant: the keys are ids of members
        self.new_member_added = False  # during the initial delay, so that another delay follows
        self._initial_delay_ms = initial_delay_ms
        self._delay_ms = 0  # the delay that the timer was last set to
        self._remaining_ms: int | None = None  # of the rebalance timeout, during the initial delay; else None

    def begin(self, members: Members, *, was_empty: bool, now_ms: int) -> int | None:
        """Starts a rebalance: returns the deadline of its timer, or None if the barrier is complete already."""
        timeout_ms = members.rebalance_timeout_ms
        if not was_empty:
            return None if self.is_complete(members) else now_ms + timeout_ms
        self._delay_ms = self._initial_delay_ms
        self._remaining_ms = max(timeout_ms - self._delay_ms, 0)
        return now_ms + self._delay_ms if self._delay_ms > 0 else None

    def extend(self, now_ms: int) -> int | None:
        """The timer fired: returns its next deadline, or None if the wait is over."""
        remaining_ms = self._remaining_ms
        if not remaining_ms or not self.new_member_added:
            return None
        self.new_member_added = False
        self._remaining_ms = max(remaining_ms - self._delay_ms, 0)
        self._delay_ms = min(self._initial_delay_ms, remaining_ms)
        return now_ms + self._delay_ms

    def is_complete(self, members: Members) -> bool:
        """Whether all members have joined and no id is pending. False during the initial delay."""
        return self._remaining_ms is None and len(self.waiters) == len(members) and not members.pending

    def end(self, members: Members) -> list[Member]:
        """Ends the join phase: returns the dynamic members that have not joined and are removed.

        Static members stay until their sessions end, even if they have not joined.
        """
        self._remaining_ms = None
        return [each for each in members if each.instance_id is None and each.member_id not in self.waiters]


class SessionDeadlines:
    """The session timer of one group. Deadlines are in `Member.session_deadline_ms` and `Members.pending`; any request
    of a member moves its deadline. The timer is set to the earliest one; when it fires, it is set to the then earliest.
    A timer per heartbeat would double its cost of 0.9 us.

    Invariant: the timer is set to `timer_ms` (not set at NEVER_MS), which is not later than any deadline.
    """

    __slots__ = ("timer_ms",)

    def __init__(self) -> None:
        self.timer_ms = NEVER_MS

    def renew(self, member: Member, now_ms: int) -> Sequence[SetTimer]:
        """The member gave a sign of life: its session begins again."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session_deadline_ms = now_ms + timeout_ms
        return self.watch(member.session_deadline_ms)

    def watch(self, deadline_ms: int) -> Sequence[SetTimer]:
        """Set the timer to `deadline_ms` if it would fire later."""
        if deadline_ms >= self.timer_ms:
            return ()
        self.timer_ms = deadline_ms
        return (SetTimer(GroupTimer.SESSION, deadline_ms),)

    def expired(self, members: Members, now_ms: int) -> Iterator[str]:
        """The timer fired: the pending ids, then the members, whose deadlines have passed.

        The caller may remove members on the way; `watch_earliest` sets the timer again at the end.
        """
        self.timer_ms = NEVER_MS
        yield from [member_id for member_id, deadline_ms in members.pending.items() if deadline_ms <= now_ms]
        for member in members:
            if member.session_deadline_ms <= now_ms and members.by_id.get(member.member_id) is member:
                yield member.member_id

    def close(self) -> None:
        """The group is dead: no timer is set any more."""
        self.timer_ms = 0

    def watch_earliest(self, members: Members) -> Sequence[SetTimer]:
        deadlines = [member.session_deadline_ms for member in members]
        return self.watch(min([*deadlines, *members.pending.values()], default=NEVER_MS))


class Rebalance:
    """The current generation of a group and the transition to the next. Adds the effects of its decisions to
    `effects`."""

    __slots__ = (
        "_effects",
        "_group_id",
        "_is_report_due",
        "_pending_sync",
        "barrier",
        "commit_error",
        "deadline_ms",
        "generation_id",
        "heartbeat_result",
        "members",
        "protocol_name",
        "protocol_type",
        "sessions",
        "state",
        "state_since_ms",
        "subscription",
    )

    def __init__(self, group_id: str, initial_delay_ms: int, effects: list[Effect], wall_ms: int) -> None:
        self.generation_id = 0
        self.protocol_type: str | None = None  # None: the group has never had members and only keeps offsets
        self.protocol_name: str | None = None
        self.subscription: frozenset[str] | None = None  # the topics of this generation; None: unknown
        self.state: GroupState = EMPTY
        self.state_since_ms: int | None = wall_ms
        self.members = Members()
        self.barrier = JoinBarrier(initial_delay_ms)
        self.deadline_ms: int | None = None  # of the phase that it is in, while it waits
        self.sessions = SessionDeadlines()
        self._group_id = group_id
        self._pending_sync: set[str] = set()  # Invariant: ids of members that have not synced in this generation yet
        self._effects = effects
        self._is_report_due = False  # the timer of the report runs
        self.set_state(EMPTY)

    def restore(self, value: GroupMetadataValue) -> None:
        """Restore the stored generation: STABLE with members, EMPTY without."""
        self.generation_id = max(0, value.generation)
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        known_since = value.current_state_timestamp != NO_TIMESTAMP
        self.state_since_ms = value.current_state_timestamp if known_since else None
        self.members.restore(value)
        if self.members:
            self.protocol_name = value.protocol or ""
            self.set_state(STABLE)
        self._update_subscription()

    def begin_stable(self, members: Iterable[Member], generation_id: int) -> None:
        """Begin in a generation whose members have their assignments, as after a consumer group."""
        for member in members:
            self.members.add(member)
        self.generation_id = generation_id
        self.protocol_type = CONSUMER_PROTOCOL_TYPE
        self.protocol_name = self.members.select_protocol()
        self.set_state(STABLE)
        self._update_subscription()

    def set_state(self, state: GroupState, wall_ms: int | None = None) -> None:
        """Enter `state`. A transition is dated with `wall_ms`; None for the first state, or the end of the group."""
        if wall_ms is not None:
            assert self.state in ENTERED_FROM[state], f"{self._group_id}: {self.state} -> {state}"
            self.state_since_ms = wall_ms
        self.state = state
        self.heartbeat_result = HEARTBEAT_ERROR[state], ()  # made once per state: a heartbeat almost never has effects
        self.commit_error = COMMIT_ERROR[state]

    def waiting(self, now_ms: int) -> Waiting | None:
        if self.state is PREPARING:
            ids = (*(one for one in self.members.by_id if one not in self.barrier.waiters), *self.members.pending)
        elif self.state is COMPLETING:
            ids = tuple(sorted(self._pending_sync))
        else:
            return None
        names = tuple(self._name(member_id) for member_id in ids)
        left_ms = None if self.deadline_ms is None else self.deadline_ms - now_ms
        return Waiting(JOIN if self.state is PREPARING else SYNC, ids, names, left_ms, self.state_since_ms)

    def _name(self, member_id: str) -> str:
        member = self.members.by_id.get(member_id)
        if member is None or not member.client_id:
            return member_id
        return f"{member.instance_id or member.client_id} at {member.client_host.removeprefix('/')}"

    def _wait_until(self, timer: GroupTimer, deadline_ms: int, now_ms: int) -> None:
        """Set the timer of a phase. A wait for long is reported in the log, once for each rebalance."""
        self.deadline_ms = deadline_ms
        self._effects.append(SetTimer(timer, deadline_ms))
        if not self._is_report_due and deadline_ms - now_ms > REPORT_AFTER_MS:
            self._is_report_due = True
            self._effects.append(SetTimer(GroupTimer.REPORT, now_ms + REPORT_AFTER_MS))

    def report_wait(self, now: Moment) -> None:
        """Log the members that are waited for, or set the timer again if another rebalance has begun."""
        self._is_report_due = False
        waiting = self.waiting(now.monotonic_ms)
        if waiting is None or waiting.since_ms is None:
            return
        waited_ms = now.wall_ms - waiting.since_ms
        if waited_ms >= REPORT_AFTER_MS:
            logger.info("%s", waiting.sentence(self._group_id, waited_ms))
        else:
            self._is_report_due = True
            deadline_ms = now.monotonic_ms + REPORT_AFTER_MS - waited_ms
            self._effects.append(SetTimer(GroupTimer.REPORT, deadline_ms))

    # --- the join phase

    def prepare(self, now: Moment, reason: str) -> None:
        """Begin a rebalance: members waiting for an assignment must join again."""
        if self.state is COMPLETING:
            self._refuse_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now.monotonic_ms)
        if self._pending_sync:
            self._pending_sync.clear()
            self._effects.append(CancelTimer(GroupTimer.SYNC))
        was_empty = self.state is EMPTY
        self.set_state(PREPARING, now.wall_ms)
        logger.info("group %s rebalances after generation %d: %s", self._group_id, self.generation_id, reason)
        self._await_joins(self.barrier.begin(self.members, was_empty=was_empty, now_ms=now.monotonic_ms), now)

    def maybe_prepare(self, now: Moment, reason: str) -> None:
        if self.state in ENTERED_FROM[PREPARING]:
            self.prepare(now, reason)

    def maybe_complete_join(self, now: Moment) -> None:
        if self.state is PREPARING and self.barrier.is_complete(self.members):
            self._complete_join(now)

    def on_join_timer(self, now: Moment) -> None:
        if self.state is PREPARING:
            self._await_joins(self.barrier.extend(now.monotonic_ms), now)

    def _await_joins(self, deadline_ms: int | None, now: Moment) -> None:
        if deadline_ms is None:
            self._complete_join(now)
        else:
            self._wait_until(GroupTimer.JOIN, deadline_ms, now.monotonic_ms)

    def _complete_join(self, now: Moment) -> None:
        """The members that have joined are the next generation, together with the static members."""
        for member in self.barrier.end(self.members):
            logger.info("group %s drops %s: it did not join in time", self._group_id, member.member_id)
            self.forget(member.member_id)
        members = self.members
        if members and not members.elect_leader(self.barrier.waiters):
            # only static members, and none has joined: wait until one joins or their sessions end
            deadline_ms = now.monotonic_ms + members.rebalance_timeout_ms
            self._wait_until(GroupTimer.JOIN, deadline_ms, now.monotonic_ms)
            return
        self._effects.append(CancelTimer(GroupTimer.JOIN))
        self._pending_sync = set(members.by_id)
        self.generation_id = self.generation_id + 1 if self.generation_id < GENERATION_MAX else 1
        self.protocol_name = members.select_protocol() if members else None
        self._update_subscription()
        if not members:
            self.set_state(EMPTY, now.wall_ms)
            logger.info("group %s is empty in generation %d", self._group_id, self.generation_id)
            self.store({}, EmptyGroupStored(self.generation_id))
            return
        self.set_state(COMPLETING, now.wall_ms)
        logger.info("group %s: generation %d, %d members", self._group_id, self.generation_id, len(members))
        for member in members:
            member.is_new = False
            self.answer_join(member, self.join_result(member))
            self.renew_session(member, now.monotonic_ms)
        deadline_ms = now.monotonic_ms + members.rebalance_timeout_ms
        self._wait_until(GroupTimer.SYNC, deadline_ms, now.monotonic_ms)

    # --- the sync phase

    def remove_pending_sync(self, member_id: str) -> None:
        if member_id in self._pending_sync:
            self._pending_sync.discard(member_id)
            if not self._pending_sync:
                self._effects.append(CancelTimer(GroupTimer.SYNC))

    def on_assignment_stored(self, assignments: Mapping[str, bytes], error: ErrorCode, now: Moment) -> None:
        if error:
            self._refuse_assignments(error, now.monotonic_ms)
            self.maybe_prepare(now, f"its assignment could not be stored: {error.name}")
            return
        self.set_state(STABLE, now.wall_ms)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                self.answer_sync(member, self.sync_result(member))
                self.renew_session(member, now.monotonic_ms)

    def on_sync_timer(self, now: Moment) -> None:
        if self.state not in (COMPLETING, STABLE) or not self._pending_sync:
            return
        silent = sorted(self._pending_sync)
        for member_id in silent:
            if (member := self.members.by_id.get(member_id)) is not None:  # a static JoinGroup may wait for its append
                self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            self.forget(member_id)
        self.prepare(now, f"{len(silent)} members did not ask for their assignment in time")

    def _refuse_assignments(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            member.assignment = b""
        self.refuse_syncs(error, now_ms)

    def refuse_syncs(self, error: ErrorCode, now_ms: int) -> None:
        """No member that waits for its assignment gets one."""
        for member in self.members:
            if member.sync_waiter is not None:
                self.answer_sync(member, SyncResult(error))
                self.renew_session(member, now_ms)

    # --- one member

    def renew_session(self, member: Member, now_ms: int) -> None:
        self._effects += self.sessions.renew(member, now_ms)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member its new id."""
        if member.member_id in self._pending_sync:
            self._pending_sync.discard(member.member_id)
            self._pending_sync.add(member_id)
        self.members.rename(member, member_id)

    def forget(self, member_id: str) -> None:
        """Remove the member or the pending id. Does not answer the member's waiting requests."""
        self.members.remove(member_id)
        self.barrier.waiters.pop(member_id, None)
        self._pending_sync.discard(member_id)

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the member's JoinGroup if one waits."""
        waiter = self.barrier.waiters.pop(member.member_id, None)
        if waiter is not None:
            self._effects.append(Answer(waiter, result))

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        """Answer the member's SyncGroup if one waits."""
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is not None:
            self._effects.append(Answer(waiter, result))

    def join_result(self, member: Member) -> JoinResult:
        """The answer to a JoinGroup of `member` in this generation. Only the leader's lists the other members."""
        leads = member.member_id == self.members.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id or "",
            False,
            self.members.metadata(self.protocol_name) if leads else (),
        )

    def sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # --- storing the generation

    def store(self, assignments: Mapping[str, bytes], then: Stored) -> None:
        self._effects.append(Append(self.records(assignments), then))

    def records(self, assignments: Mapping[str, bytes]) -> Records:
        """The record of the generation with these assignments."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader_id,
            current_state_timestamp=NO_TIMESTAMP if self.state_since_ms is None else self.state_since_ms,
            members=self.members.as_records(self.protocol_name, assignments),
        )
        return [(group_key(self._group_id), group_value(value))]

    def _update_subscription(self) -> None:
        self.subscription = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.subscription = _subscribed_topics(member.metadata(self.protocol_name) for member in self.members)


def _subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one of them cannot be read.

    Source: kafka.coordinator.group.GroupMetadata.computeSubscribedTopics (3.9).
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        found = subscribed_topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)
