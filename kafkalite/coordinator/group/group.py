"""One group: the classic rebalance protocol as decisions.

Each method takes what happened and the time, changes the group, and returns the effects of that. Nothing here waits,
writes or reads a clock. A rebalance is: `join` until all are there (`_prepare`, `_complete_join`), then `sync`, whose
leader brings the assignment that is stored before anyone hears of it (`appended`).

Deadlines are the monotonic clock's, which is what `now_ms` says; the wall clock only dates the group's state. Setting
it neither expels a member nor keeps a dead one.

Session deadlines are written on each sign of life, and one timer per group looks at them when the earliest of them was
due: a heartbeat sets no timer of its own, which would double its 0.9 us.
Source: kafka.coordinator.group.{GroupCoordinator, GroupMetadata, DelayedJoin} (3.9); KIP-62, 134, 345, 394, 814.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.effects import (
    AnswerJoin,
    AnswerSync,
    Append,
    AssignmentStored,
    CancelTimer,
    Effect,
    EmptyGroupStored,
    GroupTimer,
    ReplacementStored,
    SetTimer,
)
from kafkalite.coordinator.group.group_state import (
    COMMIT_ANSWER,
    COMPLETING,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    HEARTBEAT_ANSWER,
    PREPARING,
    STABLE,
    SYNC_ANSWER,
    GroupState,
)
from kafkalite.coordinator.group.join_results import JoinResult, JoinWaiter, SyncResult, SyncWaiter
from kafkalite.coordinator.group.members import NEVER_MS, Member, Members, Protocols
from kafkalite.coordinator.group.offset_store import ExpiryRule, OffsetStore
from kafkalite.coordinator.group.record_codec import group_key, group_value
from kafkalite.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kafkalite.protocol.records.group_records import NO_TIMESTAMP, GroupMetadataValue

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # a new member cannot heartbeat while its first join is parked
GENERATION_MAX = (1 << 31) - 1
MEMBER_ID_PREFIX_LENGTH_MAX = 8_000  # a member id must fit a string of 32767 bytes whatever the client calls itself


class GroupSettings(NamedTuple):
    """What a group needs of the broker's configuration."""

    initial_rebalance_delay_ms: int
    max_size: int


class Joining(NamedTuple):
    """A JoinGroup request in values."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_uuid: str  # for the member id, should it need one
    needs_known_id: bool  # v4+: a new member is first given its id
    can_skip_assignment: bool  # v9+


class Group:
    """State and members of one group; its committed offsets are in `offsets`."""

    __slots__ = (
        "_commit_answer",
        "_effects",
        "_heartbeat_answer",
        "_initial_delay_ms",
        "_initial_remaining_ms",
        "_member_added",
        "_pending_sync",
        "_session_timer_ms",
        "_settings",
        "_subscription",
        "generation_id",
        "group_id",
        "members",
        "offsets",
        "partition",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
    )

    def __init__(self, group_id: str, partition: int, settings: GroupSettings, wall_ms: int) -> None:
        self.group_id = group_id
        self.partition = partition  # of __consumer_offsets
        self.generation_id = 0
        self.protocol_type: str | None = None  # None: nobody ever joined, the group only keeps offsets
        self.protocol_name: str | None = None
        self.state: GroupState = EMPTY
        self.members = Members()
        self.offsets = OffsetStore()
        self.state_since_ms: int | None = wall_ms
        self._settings = settings
        self._pending_sync: set[str] = set()  # members of this generation that have not sent SyncGroup yet
        self._initial_delay_ms = 0
        self._initial_remaining_ms: int | None = None  # not None: the first members of an empty group are gathering
        self._member_added = False  # somebody came during the initial delay: wait once more
        self._subscription: frozenset[str] | None = None  # the topics that this generation reads; None: nobody knows
        self._session_timer_ms = NEVER_MS  # when the session timer will fire
        self._effects: list[Effect] = []
        self._set_state(EMPTY)

    @classmethod
    def stored(
        cls, group_id: str, partition: int, value: GroupMetadataValue, settings: GroupSettings, wall_ms: int
    ) -> Group:
        """The group as `value` has it: stable if it has members, empty if not. `loaded` then sets it going."""
        group = cls(group_id, partition, settings, wall_ms)
        group.generation_id = max(0, value.generation)
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        known_since = value.current_state_timestamp != NO_TIMESTAMP
        group.state_since_ms = value.current_state_timestamp if known_since else None
        group.members.restore(value)
        if group.members:
            group.protocol_name = value.protocol or ""
            group._set_state(STABLE)
        group._note_subscription()
        return group

    @property
    def leader_id(self) -> str:
        return self.members.leader_id or ""

    # --- what members ask for

    def join(self, joining: Joining, waiter: JoinWaiter, now: Moment) -> list[Effect]:
        """JoinGroup: `waiter` is answered at once or when the next generation is complete."""
        member_id = joining.member_id
        if not self._has_room_for(member_id):
            self._forget(member_id)
            self._refuse_join(waiter, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif self.state is DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(joining.protocol_type, joining.protocols):
            self._refuse_join(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not member_id:
            self._join_as_new(joining, waiter, now)
        elif member_id in self.members.pending and joining.instance_id is None:
            self._add(joining, member_id, waiter, now)
        elif fault := self.members.fault(member_id, joining.instance_id):
            self._refuse_join(waiter, member_id, fault)
        else:
            self._rejoin(self.members.by_id[member_id], joining, waiter, now)
        if self.state is PREPARING:
            self._try_complete_join(now)
        return self._take_effects()

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
        waiter: SyncWaiter,
        now_ms: int,
    ) -> list[Effect]:
        """SyncGroup: answered at once when stable, else when the leader's `assignments` are stored."""
        fault = self._member_fault(member_id, instance_id, generation_id)
        if not fault and protocol_type is not None and protocol_type != self.protocol_type:
            fault = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not fault and protocol_name is not None and protocol_name != self.protocol_name:
            fault = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        fault = fault or SYNC_ANSWER[self.state]
        if fault:
            self._effects.append(AnswerSync(waiter, SyncResult(fault)))
            return self._take_effects()
        member = self.members.by_id[member_id]
        self._sync_received(member_id)
        if self.state is STABLE:
            self._effects.append(AnswerSync(waiter, self._sync_result(member)))
            self._sign_of_life(member, now_ms)
            return self._take_effects()
        self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # an older request of the same member
        member.sync_waiter = waiter
        if member_id == self.members.leader_id:
            complete = {each.member_id: assignments.get(each.member_id, b"") for each in self.members}
            self._effects.append(self._store(complete, AssignmentStored(self.generation_id, complete)))
        return self._take_effects()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        """Heartbeat: REBALANCE_IN_PROGRESS tells the member to join again. Almost never has effects."""
        member = self.members.by_id.get(member_id)
        if member is None or instance_id is not None or generation_id != self.generation_id or self.state is DEAD:
            fault = self._member_fault(member_id, instance_id, generation_id)
            if fault:
                return fault, ()
            member = self.members.by_id[member_id]
        # the same as _sign_of_life, in line: this is what a group does all day
        member.session_deadline_ms = deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < self._session_timer_ms:
            self._watch_session(deadline_ms)
            return self._heartbeat_answer, self._take_effects()
        return self._heartbeat_answer, ()

    def check_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        """Whether these may commit offsets; that they do is a sign of life. Almost never has effects."""
        if self.state is EMPTY and generation_id < 0:
            return ErrorCode.NONE, ()  # an administrator, or a consumer that assigns its partitions itself
        if generation_id < 0 and not member_id and instance_id is None and self.state is not DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID, ()
        fault = self._member_fault(member_id, instance_id, generation_id) or self._commit_answer
        if fault:
            return fault, ()
        self._sign_of_life(self.members.by_id[member_id], now_ms)
        return ErrorCode.NONE, self._take_effects() if self._effects else ()

    def leave(
        self, identities: Sequence[tuple[str, str | None]], now: Moment
    ) -> tuple[list[ErrorCode], Sequence[Effect]]:
        """LeaveGroup: one code per (member id, instance id). An instance id alone is an administrator's removal."""
        codes = []
        for given_id, instance_id in identities:
            member_id = given_id or self.members.id_of_instance(instance_id)
            if member_id in self.members.pending:
                self._forget(member_id)
                self._try_complete_join(now)
                codes.append(ErrorCode.NONE)
                continue
            fault = self.members.fault(member_id, instance_id) if member_id else ErrorCode.UNKNOWN_MEMBER_ID
            if not fault and member_id:
                self._remove(self.members.by_id[member_id], now, "left")
            codes.append(fault)
        return codes, self._take_effects()

    def expiry_rule(self) -> ExpiryRule | None:
        """From when on the group's offsets grow old; None while they do not."""
        if self.protocol_type is None:
            return ExpiryRule(None)
        if self.state is EMPTY:
            return ExpiryRule(self.state_since_ms)
        if self.state is STABLE and self._subscription is not None:
            return ExpiryRule(None, self._subscription)
        return None

    def check_offset_deletion(self) -> ErrorCode:
        """OffsetDelete: a group with members must be one of consumers, who tell what they read."""
        is_told = self.state is EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ErrorCode.NONE if is_told else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read it, or may. What a rebalance under way will change does not count yet."""
        return self.state is not EMPTY and (self._subscription is None or topic in self._subscription)

    # --- what time and disk bring

    def expire(self, timer: GroupTimer, now: Moment) -> list[Effect]:
        """The timer that was last set fired."""
        if self.state is DEAD:
            return []
        if timer is GroupTimer.SESSION:
            self._expire_sessions(now)
        elif timer is GroupTimer.SYNC:
            self._expire_sync(now)
        elif self.state is PREPARING:
            self._expire_join(now)
        return self._take_effects()

    def appended(
        self, then: AssignmentStored | EmptyGroupStored | ReplacementStored, error: ErrorCode, now: Moment
    ) -> list[Effect]:
        """An append is done; `error` is already what clients are to hear. The group may have moved on meanwhile."""
        if isinstance(then, EmptyGroupStored):
            if error:
                logger.warning("could not store that group %s is empty: %s", self.group_id, error.name)
        elif isinstance(then, AssignmentStored):
            if self.state is COMPLETING and self.generation_id == then.generation_id:
                self._assignments_stored(then.assignments, error, now)
        elif self.state is STABLE and self.generation_id == then.generation_id:
            self._replacement_stored(then, error, now.monotonic_ms)
        return self._take_effects()

    def loaded(self, now: Moment) -> list[Effect]:
        """The group was just read from disk: every member's session starts afresh."""
        if len(self.members) > self._settings.max_size:
            self._prepare(now, f"it has more than {self._settings.max_size} members")
        for member in self.members:
            self._sign_of_life(member, now.monotonic_ms)
        return self._take_effects()

    def close(self, error: ErrorCode) -> list[Effect]:
        """The group is deleted or led elsewhere from now on: everybody who waits hears `error`."""
        for member in self.members:
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        self._set_state(DEAD)
        return [*self._take_effects(), *(CancelTimer(timer) for timer in GroupTimer)]

    # --- joining

    def _join_as_new(self, joining: Joining, waiter: JoinWaiter, now: Moment) -> None:
        prefix = joining.client_id if joining.instance_id is None else joining.instance_id
        member_id = f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{joining.new_uuid}"
        replaced_id = self.members.id_of_instance(joining.instance_id)
        if replaced_id is not None:
            self._replace(self.members.by_id[replaced_id], member_id, joining, waiter, now)
        elif joining.instance_id is None and joining.needs_known_id:
            deadline_ms = now.monotonic_ms + joining.session_timeout_ms
            self.members.pending[member_id] = deadline_ms
            self._watch_session(deadline_ms)
            self._refuse_join(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(joining, member_id, waiter, now)

    def _add(self, joining: Joining, member_id: str, waiter: JoinWaiter, now: Moment) -> None:
        member = Member(
            member_id,
            joining.instance_id,
            joining.client_id,
            joining.client_host,
            joining.rebalance_timeout_ms,
            joining.session_timeout_ms,
            joining.protocols,
        )
        member.is_new = True
        if self.state is PREPARING and self.generation_id == 0:
            self._member_added = True
        if not self.members:
            self.protocol_type = joining.protocol_type
        self.members.add(member)
        self.members.park_join(member, waiter)
        self._sign_of_life(member, now.monotonic_ms)
        self._maybe_prepare(now, f"{member_id} joins")

    def _rejoin(self, member: Member, joining: Joining, waiter: JoinWaiter, now: Moment) -> None:
        unchanged = member.protocols == joining.protocols
        leads = member.member_id == self.members.leader_id
        # a follower asking twice lost our answer; a stable group's leader asking again wants a new assignment
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self._effects.append(AnswerJoin(waiter, self._join_result(member)))
            return
        self.members.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        self._park(member, waiter)
        self._maybe_prepare(now, f"{member.member_id} joins again")

    def _replace(self, member: Member, member_id: str, joining: Joining, waiter: JoinWaiter, now: Moment) -> None:
        """A static member is back under a new id. Its predecessor, if it still waits somewhere, is fenced off."""
        before, leader_id = copy(member), self.leader_id
        self._answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, before.member_id))
        self._answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(member, member_id)
        self.members.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        self._park(member, waiter)
        self._sign_of_life(member, now.monotonic_ms)
        if self.state is COMPLETING:  # the leader is assigning partitions to the old id
            self._prepare(now, f"static member {joining.instance_id} came back while partitions are assigned")
        elif self.state is STABLE and self.members.vote() != self.protocol_name:
            self._prepare(now, f"static member {joining.instance_id} came back with another protocol")
        elif self.state is STABLE:
            then = ReplacementStored(self.generation_id, before, member_id, leader_id, joining.can_skip_assignment)
            self._effects.append(self._store({each.member_id: each.assignment for each in self.members}, then))

    def _replacement_stored(self, then: ReplacementStored, error: ErrorCode, now_ms: int) -> None:
        member = self.members.by_id.get(then.member_id)
        if member is None:
            return
        if error:
            before = then.before
            refusal = JoinResult(error, "", self.generation_id, self.protocol_type, self.protocol_name, then.leader_id)
            self._answer_join(member, refusal)
            self._rename(member, before.member_id)
            self.members.update(member, before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
            self._sign_of_life(member, now_ms)
        elif then.can_skip_assignment:
            leads = member.member_id == self.members.leader_id
            self._answer_join(member, self._join_result(member)._replace(skip_assignment=leads))
        else:  # told the old leader's id, an old client does not take itself for the leader, and assigns nothing
            self._answer_join(member, self._join_result(member)._replace(leader_id=then.leader_id, members=()))

    def _prepare(self, now: Moment, reason: str) -> None:
        """Begin a rebalance: whoever waits for an assignment must join again."""
        if self.state is COMPLETING:
            self._refuse_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now.monotonic_ms)
        self._no_sync_missing()
        was_empty = self.state is EMPTY
        self._set_state(PREPARING, now.wall_ms)
        logger.info("group %s rebalances after generation %d: %s", self.group_id, self.generation_id, reason)
        if not was_empty:
            if not self._try_complete_join(now):
                self._effects.append(SetTimer(GroupTimer.JOIN, now.monotonic_ms + self.members.rebalance_timeout_ms))
            return
        delay_ms = self._settings.initial_rebalance_delay_ms
        remaining_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
        self._initial_delay_ms, self._initial_remaining_ms = delay_ms, remaining_ms
        if delay_ms > 0:
            self._effects.append(SetTimer(GroupTimer.JOIN, now.monotonic_ms + delay_ms))
        else:
            self._complete_join(now)

    def _maybe_prepare(self, now: Moment, reason: str) -> None:
        if self.state in ENTERED_FROM[PREPARING]:
            self._prepare(now, reason)

    def _try_complete_join(self, now: Moment) -> bool:
        """Complete if there is nobody left to wait for. The initial delay is waited out regardless."""
        if self.state is not PREPARING or self._initial_remaining_ms is not None or not self.members.all_joined:
            return False
        self._complete_join(now)
        return True

    def _expire_join(self, now: Moment) -> None:
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._member_added:
            self._member_added = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._initial_remaining_ms = max(remaining_ms - self._initial_delay_ms, 0)
            self._initial_delay_ms = delay_ms
            self._effects.append(SetTimer(GroupTimer.JOIN, now.monotonic_ms + delay_ms))
        else:
            self._complete_join(now)

    def _complete_join(self, now: Moment) -> None:
        """Whoever has joined is the next generation; static members stay even if they have not."""
        self._initial_remaining_ms = None
        for member in self.members:
            if member.join_waiter is None and member.instance_id is None:
                logger.info("group %s drops %s: it did not join in time", self.group_id, member.member_id)
                self._forget(member.member_id)
        if self.members and not self.members.elect_leader():
            # only static members, and none is here: their sessions decide
            self._effects.append(SetTimer(GroupTimer.JOIN, now.monotonic_ms + self.members.rebalance_timeout_ms))
            return
        self._effects.append(CancelTimer(GroupTimer.JOIN))
        self._pending_sync.clear()
        self.generation_id = self.generation_id + 1 if self.generation_id < GENERATION_MAX else 1
        if not self.members:
            self.protocol_name = None
            self._note_subscription()
            self._set_state(EMPTY, now.wall_ms)
            logger.info("group %s is empty in generation %d", self.group_id, self.generation_id)
            self._effects.append(self._store({}, EmptyGroupStored(self.generation_id)))
            return
        self.protocol_name = self.members.vote()
        self._note_subscription()
        self._set_state(COMPLETING, now.wall_ms)
        logger.info("group %s: generation %d, %d members", self.group_id, self.generation_id, len(self.members))
        for member in self.members:
            member.is_new = False
            self._answer_join(member, self._join_result(member))
            self._sign_of_life(member, now.monotonic_ms)
            self._pending_sync.add(member.member_id)
        self._effects.append(SetTimer(GroupTimer.SYNC, now.monotonic_ms + self.members.rebalance_timeout_ms))

    # --- syncing

    def _assignments_stored(self, assignments: Mapping[str, bytes], error: ErrorCode, now: Moment) -> None:
        if error:
            self._refuse_assignments(error, now.monotonic_ms)
            self._maybe_prepare(now, f"its assignment could not be stored: {error.name}")
            return
        self._set_state(STABLE, now.wall_ms)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                self._answer_sync(member, self._sync_result(member))
                self._sign_of_life(member, now.monotonic_ms)

    def _refuse_assignments(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            member.assignment = b""
            if member.sync_waiter is not None:
                self._answer_sync(member, SyncResult(error))
                self._sign_of_life(member, now_ms)

    def _sync_received(self, member_id: str) -> None:
        if member_id in self._pending_sync:
            self._pending_sync.discard(member_id)
            if not self._pending_sync:
                self._effects.append(CancelTimer(GroupTimer.SYNC))

    def _no_sync_missing(self) -> None:
        if self._pending_sync:
            self._pending_sync.clear()
            self._effects.append(CancelTimer(GroupTimer.SYNC))

    def _expire_sync(self, now: Moment) -> None:
        if self.state not in (COMPLETING, STABLE) or not self._pending_sync:
            return
        silent = sorted(self._pending_sync)
        for member_id in silent:
            self._forget(member_id)
        self._prepare(now, f"{len(silent)} members did not ask for their assignment in time")

    # --- sessions

    def _sign_of_life(self, member: Member, now_ms: int) -> None:
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session_deadline_ms = now_ms + timeout_ms
        self._watch_session(member.session_deadline_ms)

    def _watch_session(self, deadline_ms: int) -> None:
        if deadline_ms < self._session_timer_ms:
            self._session_timer_ms = deadline_ms
            self._effects.append(SetTimer(GroupTimer.SESSION, deadline_ms))

    def _expire_sessions(self, now: Moment) -> None:
        self._session_timer_ms = NEVER_MS
        for member_id, deadline_ms in list(self.members.pending.items()):
            if deadline_ms <= now.monotonic_ms:
                self._forget(member_id)
                self._try_complete_join(now)
        for member in self.members:
            if member.session_deadline_ms > now.monotonic_ms or self.members.by_id.get(member.member_id) is not member:
                continue
            if member.is_waiting and not member.is_new:
                member.session_deadline_ms = NEVER_MS  # it waits for us; its session starts with our answer
            else:
                self._remove(member, now, "showed no sign of life in time")
        deadlines = [member.session_deadline_ms for member in self.members]
        self._watch_session(min([*deadlines, *self.members.pending.values()], default=NEVER_MS))

    # --- leaving

    def _remove(self, member: Member, now: Moment, reason: str) -> None:
        logger.info("group %s loses %s: it %s", self.group_id, member.member_id, reason)
        self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))  # it may join afresh
        self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._forget(member.member_id)
        if self.state is PREPARING:
            self._try_complete_join(now)
        else:
            self._maybe_prepare(now, f"{member.member_id} {reason}")

    def _forget(self, member_id: str) -> None:
        self.members.remove(member_id)
        self._pending_sync.discard(member_id)

    # --- small things

    def _note_subscription(self) -> None:
        """A generation begins: what its members said when they joined."""
        self._subscription = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self._subscription = subscribed_topics(member.metadata(self.protocol_name) for member in self.members)

    def _set_state(self, state: GroupState, wall_ms: int | None = None) -> None:
        if wall_ms is not None:
            assert self.state in ENTERED_FROM[state], f"{self.group_id}: {self.state} -> {state}"
            self.state_since_ms = wall_ms
        self.state = state
        self._heartbeat_answer = HEARTBEAT_ANSWER[state]
        self._commit_answer = COMMIT_ANSWER[state]

    def _has_room_for(self, member_id: str) -> bool:
        """Whether group.max.size admits it. While preparing, those who have joined count: the last to come must go."""
        if self.state in (EMPTY, DEAD):
            return True
        member = self.members.by_id.get(member_id)
        if self.state is PREPARING:
            if member is not None and member.join_waiter is not None:
                return True
            return self.members.awaiting_join_count < self._settings.max_size
        return member is not None or len(self.members) < self._settings.max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.members.share_one_of(protocols)

    def _member_fault(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault = self.members.fault(member_id, instance_id)
        if not fault and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return fault

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id in self._pending_sync:
            self._pending_sync.discard(member.member_id)
            self._pending_sync.add(member_id)
        self.members.rename(member, member_id)

    def _park(self, member: Member, waiter: JoinWaiter) -> None:
        displaced = self.members.park_join(member, waiter)
        if displaced is not None:  # the member gave up waiting there; Kafka would never answer it
            self._refuse_join(displaced, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _refuse_join(self, waiter: JoinWaiter, member_id: str, error: ErrorCode) -> None:
        self._effects.append(AnswerJoin(waiter, JoinResult(error, member_id)))

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        waiter = self.members.take_join(member)
        if waiter is not None:
            self._effects.append(AnswerJoin(waiter, result))

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is not None:
            self._effects.append(AnswerSync(waiter, result))

    def _join_result(self, member: Member) -> JoinResult:
        """The current generation as `member` sees it: only the leader learns who else is in it."""
        leads = member.member_id == self.members.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id,
            False,
            self.members.described_to_leader(self.protocol_name) if leads else (),
        )

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _store(
        self, assignments: Mapping[str, bytes], then: AssignmentStored | EmptyGroupStored | ReplacementStored
    ) -> Append:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader_id,
            current_state_timestamp=NO_TIMESTAMP if self.state_since_ms is None else self.state_since_ms,
            members=self.members.as_records(self.protocol_name, assignments),
        )
        return Append([(group_key(self.group_id), group_value(value))], then)

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
