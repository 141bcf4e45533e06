"""One group of the classic rebalance protocol: its requests and events.

Each method takes an event and the time, changes the group, and returns the effects. Nothing here waits, writes or reads
a clock. `Rebalance` has the state and the transitions between generations.

Deadlines and `now_ms` are times of the monotonic clock; the wall clock only dates the group's state. So a change of the
wall clock neither expels a member nor keeps a dead one.
Source: kafka.coordinator.group.{GroupCoordinator, GroupMetadata} (3.9); KIP-62, 345, 394, 814.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group.classic.group_state import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    SYNC_ERROR,
    AssignmentStored,
    EmptyGroupStored,
    GroupTimer,
    Stored,
)
from kafkalite.coordinator.group.classic.members import NEVER_MS, Member
from kafkalite.coordinator.group.classic.rebalance import Rebalance
from kafkalite.coordinator.group.classic.static_members import on_replacement_stored, replace
from kafkalite.coordinator.group.group import (
    CLASSIC,
    Group,
    GroupDescription,
    Identity,
    JoinRequest,
    JoinResult,
    Protocols,
    SyncRequest,
    SyncResult,
    Waiting,
)
from kafkalite.coordinator.group.offset_store import ExpirationCondition
from kafkalite.coordinator.group.record_codec import group_key
from kafkalite.coordinator.runtime.effects import GROUP_APPEND_ERROR, Answer, CancelTimer, Effect, Records, Waiter
from kafkalite.protocol.records import CONSUMER_PROTOCOL_TYPE, GroupMetadataValue

logger = logging.getLogger(__name__)

MEMBER_ID_PREFIX_LENGTH_MAX = 8_000  # so that a member id fits a string of 32767 bytes


class ClassicGroup(Group):
    """State and members of one group. `former_tombstones` are those of a group of another kind whose place it took, as
    long as the log may lack them."""

    __slots__ = ("_effects", "_max_size", "_rebalance", "former_tombstones", "members")
    kind = CLASSIC

    def __init__(self, group_id: str, partition: int, config: BrokerConfig, wall_ms: int) -> None:
        super().__init__(group_id, partition)
        self._max_size = config.group_max_size
        self._effects: list[Effect] = []
        self._rebalance = Rebalance(group_id, config.group_initial_rebalance_delay_ms, self._effects, wall_ms)
        self.members = self._rebalance.members
        self.former_tombstones: Records = []

    @classmethod
    def from_record(
        cls, group_id: str, partition: int, value: GroupMetadataValue, config: BrokerConfig, wall_ms: int
    ) -> ClassicGroup:
        """The group from its record: STABLE with members, EMPTY without. `on_loaded` starts the sessions."""
        group = cls(group_id, partition, config, wall_ms)
        group._rebalance.restore(value)
        return group

    @classmethod
    def from_members(
        cls,
        group_id: str,
        partition: int,
        members: Iterable[Member],
        generation_id: int,
        config: BrokerConfig,
        now: Moment,
    ) -> ClassicGroup:
        """A STABLE group of consumers with these members and their assignments, as if all had synced in this
        generation. `on_loaded` starts the sessions."""
        group = cls(group_id, partition, config, now.wall_ms)
        group._rebalance.begin_stable(members, generation_id)
        return group

    def records(self) -> Records:
        """The record of the group as it is."""
        return self._rebalance.records({each.member_id: each.assignment for each in self.members})

    def refuse_syncs(self, now: Moment) -> list[Effect]:
        """A consumer group takes the place of this one: no member gets an assignment whose record is still being
        stored, for the consumer group does not have it."""
        self._rebalance.refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now.monotonic_ms)
        return self._take_effects()

    def rebalance(self, reason: str, now: Moment) -> list[Effect]:
        """Begins a rebalance: all members have to join again."""
        self._rebalance.maybe_prepare(now, reason)
        return self._take_effects()

    @property
    def state_name(self) -> str:
        return str(self._rebalance.state.value)

    @property
    def protocol_type(self) -> str | None:
        return self._rebalance.protocol_type

    @property
    def has_members(self) -> bool:
        return self._rebalance.state is not EMPTY or bool(self.members.pending)

    def describe(self) -> GroupDescription:
        name = self._rebalance.protocol_name
        members = tuple(member.describe(name) for member in self.members)
        return GroupDescription(
            self.group_id, self.kind, self.state_name, self._rebalance.generation_id, self.protocol_type, name, members
        )

    def waiting(self, now_ms: int) -> Waiting | None:
        return self._rebalance.waiting(now_ms)

    def _take_effects(self) -> list[Effect]:
        """Returns the collected effects of a decision, and forgets them."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    # --- requests of members

    def join(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> list[Effect]:
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._rebalance.forget(member_id)
            self._refuse_join(waiter, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif self._rebalance.state is DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(request.protocol_type, request.protocols):
            self._refuse_join(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not member_id:
            self._join_as_new(request, waiter, now)
        elif member_id in self.members.pending and request.instance_id is None:
            self._add(request, member_id, waiter, now)
        elif error := self.members.validate(member_id, request.instance_id):
            self._refuse_join(waiter, member_id, error)
        else:
            self._rejoin(self.members.by_id[member_id], request, waiter, now)
        self._rebalance.maybe_complete_join(now)
        return self._take_effects()

    def sync(self, request: SyncRequest, waiter: Waiter[SyncResult], now_ms: int) -> list[Effect]:
        rebalance = self._rebalance
        member_id = request.member_id
        error = self._validate_member(member_id, request.instance_id, request.generation_id)
        if not error and (
            request.protocol_type not in (None, rebalance.protocol_type)
            or request.protocol_name not in (None, rebalance.protocol_name)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        error = error or SYNC_ERROR[rebalance.state]
        if error:
            return [Answer(waiter, SyncResult(error))]
        member = self.members.by_id[member_id]
        rebalance.remove_pending_sync(member_id)
        if rebalance.state is STABLE:
            self._effects.append(Answer(waiter, rebalance.sync_result(member)))
            rebalance.renew_session(member, now_ms)
            return self._take_effects()
        rebalance.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # answers its previous SyncGroup
        member.sync_waiter = waiter
        if member_id == self.members.leader_id:
            complete = {each.member_id: request.assignments.get(each.member_id, b"") for each in self.members}
            rebalance.store(complete, AssignmentStored(rebalance.generation_id, complete))
        return self._take_effects()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        rebalance = self._rebalance
        member = self.members.by_id.get(member_id)
        if member is None or instance_id is not None or generation_id != rebalance.generation_id:
            error = self._validate_member(member_id, instance_id, generation_id)
            if error:
                return error, ()
            member = self.members.by_id[member_id]
        # SessionDeadlines.renew inlined, which saves a call: most requests of a group are heartbeats
        member.session_deadline_ms = deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < rebalance.sessions.timer_ms:
            return rebalance.heartbeat_result[0], rebalance.sessions.watch(deadline_ms)
        return rebalance.heartbeat_result

    def leave(
        self, identities: Sequence[tuple[str, str | None]], waiter: Waiter[Sequence[ErrorCode]], now: Moment
    ) -> list[Effect]:
        codes = []
        for given_id, instance_id in identities:
            member_id = given_id or self.members.id_of_instance(instance_id)
            if member_id in self.members.pending:
                self._remove_pending(member_id, now)
                codes.append(ErrorCode.NONE)
                continue
            error = self.members.validate(member_id, instance_id) if member_id else ErrorCode.UNKNOWN_MEMBER_ID
            if not error and member_id:
                self._remove(self.members.by_id[member_id], now, "left")
            codes.append(error)
        return [*self._take_effects(), Answer(waiter, codes)]

    # --- checks for offsets

    def validate_commit(
        self, identity: Identity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        member_id, instance_id, generation_id, _ = identity
        rebalance = self._rebalance
        if rebalance.state is EMPTY and generation_id < 0:
            return ErrorCode.NONE, ()  # an administrator, or a consumer that assigns its partitions itself
        if generation_id < 0 and not member_id and instance_id is None and rebalance.state is not DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID, ()
        error = self._validate_member(member_id, instance_id, generation_id) or rebalance.commit_error
        if error:
            return error, ()
        return ErrorCode.NONE, rebalance.sessions.renew(self.members.by_id[member_id], now_ms)

    def validate_transactional_commit(self, identity: Identity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        member_id, instance_id, generation_id, _ = identity
        rebalance = self._rebalance
        is_unknown = not member_id and instance_id is None
        if generation_id < 0 and (rebalance.state is EMPTY or (is_unknown and rebalance.state is not DEAD)):
            return ErrorCode.NONE
        return self._validate_member(member_id, instance_id, generation_id)

    def validate_offset_delete(self) -> ErrorCode:
        is_allowed = self._rebalance.state is EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ErrorCode.NONE if is_allowed else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Subscriptions of a rebalance in progress do not count yet."""
        subscription = self._rebalance.subscription
        return self._rebalance.state is not EMPTY and (subscription is None or topic in subscription)

    def offset_expiration_condition(self) -> ExpirationCondition | None:
        rebalance = self._rebalance
        if rebalance.protocol_type is None:
            return ExpirationCondition(None)
        if rebalance.state is EMPTY:
            return ExpirationCondition(rebalance.state_since_ms)
        if rebalance.state is STABLE and rebalance.subscription is not None:
            return ExpirationCondition(None, rebalance.subscription)
        return None

    def tombstones(self) -> Records:
        """None for a group that only stored offsets, and has no record."""
        own: Records = [(group_key(self.group_id), None)] if self._rebalance.generation_id > 0 else []
        return self.former_tombstones + own

    # --- events

    def on_timer(self, timer: GroupTimer, now: Moment) -> list[Effect]:
        if self._rebalance.state is DEAD:
            return []
        if timer is GroupTimer.SESSION:
            self._expire_sessions(now)
        elif timer is GroupTimer.SYNC:
            self._rebalance.on_sync_timer(now)
        elif timer is GroupTimer.REPORT:
            self._rebalance.report_wait(now)
        else:
            self._rebalance.on_join_timer(now)
        return self._take_effects()

    def on_append(self, then: Stored, error: ErrorCode, now: Moment) -> list[Effect]:
        error = GROUP_APPEND_ERROR.get(error, error)
        is_current = self._rebalance.generation_id == then.generation_id
        if isinstance(then, EmptyGroupStored):
            if error:
                logger.warning("could not store that group %s is empty: %s", self.group_id, error.name)
        elif isinstance(then, AssignmentStored):
            if self._rebalance.state is COMPLETING and is_current:
                self._rebalance.on_assignment_stored(then.assignments, error, now)
        elif self._rebalance.state is STABLE and is_current:
            on_replacement_stored(self._rebalance, then, error, now.monotonic_ms)
        return self._take_effects()

    def on_loaded(self, now: Moment) -> list[Effect]:
        if len(self.members) > self._max_size:
            self._rebalance.maybe_prepare(now, f"it has more than {self._max_size} members")
        for member in self.members:
            self._rebalance.renew_session(member, now.monotonic_ms)
        return self._take_effects()

    def prepare_deletion(self) -> ErrorCode:
        if self._rebalance.state is not EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self.members.pending.clear()
        return ErrorCode.NONE

    def close(self, error: ErrorCode) -> list[Effect]:
        for member in self.members:
            self._rebalance.answer_join(member, JoinResult(error, member.member_id))
            self._rebalance.answer_sync(member, SyncResult(error))
        self._rebalance.set_state(DEAD)
        self._rebalance.sessions.close()
        self._effects += (CancelTimer(timer) for timer in GroupTimer)
        return self._take_effects()

    # --- joining

    def _join_as_new(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{request.new_uuid}"
        replaced_id = self.members.id_of_instance(request.instance_id)
        if replaced_id is not None:
            replace(self._rebalance, self.members.by_id[replaced_id], member_id, request, waiter, now)
        elif request.instance_id is None and request.requires_known_member_id:
            deadline_ms = now.monotonic_ms + request.session_timeout_ms
            self.members.pending[member_id] = deadline_ms
            self._effects += self._rebalance.sessions.watch(deadline_ms)
            self._refuse_join(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(request, member_id, waiter, now)

    def _add(self, request: JoinRequest, member_id: str, waiter: Waiter[JoinResult], now: Moment) -> None:
        rebalance = self._rebalance
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if rebalance.state is PREPARING and rebalance.generation_id == 0:
            rebalance.barrier.new_member_added = True
        if not self.members:
            rebalance.protocol_type = request.protocol_type
        self.members.add(member)
        rebalance.barrier.waiters[member_id] = waiter
        rebalance.renew_session(member, now.monotonic_ms)
        rebalance.maybe_prepare(now, f"{member_id} joins")

    def _rejoin(self, member: Member, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> None:
        unchanged = member.protocols == request.protocols
        leads = member.member_id == self.members.leader_id
        # a follower that joins again has lost the answer; the leader of a stable group asks for a new assignment so
        if unchanged and (self._rebalance.state is COMPLETING or (self._rebalance.state is STABLE and not leads)):
            self._effects.append(Answer(waiter, self._rebalance.join_result(member)))
            return
        self.members.update(member, request)
        self._await_join(member, waiter)
        self._rebalance.maybe_prepare(now, f"{member.member_id} joins again")

    def _await_join(self, member: Member, waiter: Waiter[JoinResult]) -> None:
        # a second JoinGroup of the member replaces the first one, which Kafka would never answer
        self._rebalance.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._rebalance.barrier.waiters[member.member_id] = waiter

    def _refuse_join(self, waiter: Waiter[JoinResult], member_id: str, error: ErrorCode) -> None:
        self._effects.append(Answer(waiter, JoinResult(error, member_id)))

    # --- leaving

    def _expire_sessions(self, now: Moment) -> None:
        rebalance = self._rebalance
        for member_id in rebalance.sessions.expired(self.members, now.monotonic_ms):
            member = self.members.by_id.get(member_id)
            if member is None:
                self._remove_pending(member_id, now)
            elif not member.is_new and (member.sync_waiter is not None or member_id in rebalance.barrier.waiters):
                member.session_deadline_ms = NEVER_MS  # it waits for a response, which starts a new session
            else:
                self._remove(member, now, "showed no sign of life in time")
        self._effects += rebalance.sessions.watch_earliest(self.members)

    def _remove_pending(self, member_id: str, now: Moment) -> None:
        self._rebalance.forget(member_id)
        self._rebalance.maybe_complete_join(now)

    def _remove(self, member: Member, now: Moment, reason: str) -> None:
        rebalance = self._rebalance
        logger.info("group %s loses %s: it %s", self.group_id, member.member_id, reason)
        rebalance.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))  # no id: it joins as a new member
        rebalance.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        rebalance.forget(member.member_id)
        if rebalance.state is PREPARING:
            rebalance.maybe_complete_join(now)
        else:
            rebalance.maybe_prepare(now, f"{member.member_id} {reason}")

    # --- checks

    def _has_room_for(self, member_id: str) -> bool:
        """Whether group.max.size admits the member. While preparing, only members that have joined count."""
        if self._rebalance.state in (EMPTY, DEAD):
            return True
        if self._rebalance.state is PREPARING:
            waiters = self._rebalance.barrier.waiters
            return member_id in waiters or len(waiters) < self._max_size
        return member_id in self.members or len(self.members) < self._max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self._rebalance.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.members.support_one_of(protocols)

    def _validate_member(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if self._rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.validate(member_id, instance_id)
        if not error and generation_id != self._rebalance.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error
