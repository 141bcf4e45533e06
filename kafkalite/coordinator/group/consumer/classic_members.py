"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Such a member is told to join again whenever there is something new for it; its JoinGroup is its heartbeat, its member
epoch is its generation, and SyncGroup brings its assignment. Nobody is leader, for the coordinator assigns.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (classicGroupJoinToConsumerGroup,
classicGroupSyncToConsumerGroup, classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup; 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.coordinator.group.changes import HeldAnswer
from kafkalite.coordinator.group.consumer.group_change import DowngradeGroup
from kafkalite.coordinator.group.consumer.member import ClassicMember, ConsumerMember, MemberState, Subscription
from kafkalite.coordinator.group.consumer.regex_refresh import RegexChange
from kafkalite.coordinator.group.deadlines import Wait
from kafkalite.coordinator.group.group import JoinRequest, JoinResult, SyncRequest, SyncResult
from kafkalite.coordinator.group.partition_sets import FREE
from kafkalite.coordinator.runtime.effects import Answer, Waiter
from kafkalite.protocol import records

if TYPE_CHECKING:
    from kafkalite.coordinator.group.consumer.group_change import GroupChange
    from kafkalite.coordinator.group.consumer.group_members import GroupMembers
    from kafkalite.coordinator.group.topics import Topics


class ClassicMembers:
    """The members of one group that speak the classic protocol."""

    __slots__ = ("_group",)

    def __init__(self, group: GroupMembers) -> None:
        self._group = group

    # --- JoinGroup

    def join(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> Sequence[Any]:
        """The answer waits for the log. The coordinator made `request.new_uuid` for a member without an id."""
        group = self._group
        member_id = request.member_id or request.new_uuid
        change = group.new_change()
        try:
            group.check_room(member_id, group.config.max_size)
            if not self._supports(request):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if request.requires_known_member_id and not request.member_id and request.instance_id is None:
                return (Answer(waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)),)
            return self._join(request, member_id, waiter, change, now)
        except KafkaError as error:
            change.undo()
            return (Answer(waiter, JoinResult(error.code, request.member_id)),)

    def _supports(self, request: JoinRequest) -> bool:
        """Whether all members of the classic protocol support one of these protocols."""
        tables = self._group.tables
        names = [name for name, _ in request.protocols]
        is_consumer = request.protocol_type == records.CONSUMER_PROTOCOL_TYPE
        return is_consumer and any(tables.protocol_counts[name] == tables.classic_count for name in names)

    def _join(
        self, request: JoinRequest, member_id: str, waiter: Waiter[JoinResult], change: GroupChange, now: Moment
    ) -> Sequence[Any]:
        group = self._group
        tables, config = group.tables, group.config
        epoch_before = tables.group_epoch
        is_downgrade = self._replaces_last(request.instance_id)
        member = self._member_for(request, member_id, change)
        try:
            embedded = records.read_subscription(request.protocols[0][1])
        except Malformed as fault:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(fault)) from fault
        subscription = _overlaid(member.subscription, request, embedded)
        is_renamed = subscription.topic_names != member.subscription.topic_names
        regex_change, _ = group.update_subscription(change, member, subscription)
        is_resubscribed = is_renamed or regex_change is not RegexChange.NONE
        if is_resubscribed or group.refresh.is_due(group.tables):
            group.update_metadata(change, is_resubscribed=is_resubscribed)
        is_outdated = is_downgrade and tables.target_epoch < tables.group_epoch
        if not is_downgrade:
            change.update_target(config, now.wall_ms)
        current = tables.members[member_id].current
        if not is_outdated:
            owned = owned_by_id(embedded, group.environment.topics)
            current = group.reconcile(change, member_id, owned, now, is_resubscribed=is_resubscribed)
        protocol_name = request.protocols[0][0]
        result = JoinResult(ErrorCode.NONE, member_id, current.epoch, records.CONSUMER_PROTOCOL_TYPE, protocol_name)
        answer = HeldAnswer(waiter, result, partial(JoinResult, member_id=member_id))
        if is_downgrade:
            reason = "it is classic again, and its assignment is outdated" if is_outdated else None
            return (DowngradeGroup(frozenset(), epoch_before, reason, change, (answer,)),)
        change.forgotten += group.deadlines.cancel(Wait.JOIN, member_id)
        change.effects += group.deadlines.set(Wait.SESSION, member_id, now.monotonic_ms + request.session_timeout_ms)
        change.effects += group.deadlines.set(Wait.SYNC, member_id, now.monotonic_ms + request.rebalance_timeout_ms)
        return group.store(change, [answer])

    def _member_for(self, request: JoinRequest, member_id: str, change: GroupChange) -> ConsumerMember:
        group = self._group
        if request.instance_id is None:
            return group.get_member(member_id, may_be_new=True)
        if not request.member_id:
            return group.join_as_static(member_id, request.instance_id, change, is_classic=True)
        return group.static_member(member_id, request.instance_id)

    def _replaces_last(self, instance_id: str | None) -> bool:
        """Whether a classic static member takes the place of the last member of the consumer protocol, so that the
        group becomes classic."""
        tables = self._group.tables
        holder = tables.members.get(tables.instances.get(instance_id or "", ""))
        if holder is None or holder.is_classic or tables.classic_count != len(tables.members) - 1:
            return False
        return self._group.may_downgrade(len(tables.members))

    # --- SyncGroup, Heartbeat

    def sync(self, request: SyncRequest, waiter: Waiter[SyncResult], now_ms: int) -> Sequence[Any]:
        """The assignment of the member as it is now."""
        group = self._group
        try:
            member, classic = self._validated(request.member_id, request.instance_id, request.generation_id)
        except KafkaError as error:
            return (Answer(waiter, SyncResult(error.code)),)
        protocol_name, metadata = classic.protocols[0]
        is_other_type = request.protocol_type not in (None, records.CONSUMER_PROTOCOL_TYPE)
        if is_other_type or request.protocol_name not in (None, protocol_name):
            return (Answer(waiter, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)),)
        current = member.current
        if group.tables.target_epoch > current.epoch and current.state is not MemberState.UNREVOKED:
            refusal = Answer(waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return (*self._await_join(member, now_ms), refusal)
        topics = group.environment.topics
        named = ((topics.name_of(topic_id), sorted(epochs)) for topic_id, epochs in current.assigned.items())
        assignment = records.encode_assignment(
            [(name, indexes) for name, indexes in named if name is not None], records.subscription_version(metadata)
        )
        change = group.new_change()
        change.forgotten += group.deadlines.cancel(Wait.SYNC, member.member_id)
        change.effects += group.deadlines.set(Wait.SESSION, member.member_id, now_ms + classic.session_timeout_ms)
        result = SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)
        return group.store(change, [HeldAnswer(waiter, result, SyncResult)])

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        """REBALANCE_IN_PROGRESS if a JoinGroup would bring something new."""
        group = self._group
        try:
            member, classic = self._validated(member_id, instance_id, generation_id)
        except KafkaError as error:
            return error.code, ()
        effects = group.deadlines.set(Wait.SESSION, member.member_id, now_ms + classic.session_timeout_ms)
        current = member.current
        if (
            current.epoch < group.tables.target_epoch
            or current.state is MemberState.UNREVOKED
            or (current.state is MemberState.UNRELEASED and not self._waits_for_others(member))
        ):
            return ErrorCode.REBALANCE_IN_PROGRESS, [*effects, *self._await_join(member, now_ms)]
        return ErrorCode.NONE, effects

    def _await_join(self, member: ConsumerMember, now_ms: int) -> Sequence[Any]:
        deadlines = self._group.deadlines
        if deadlines.get(Wait.JOIN, member.member_id) is not None:
            return ()
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        return deadlines.set(Wait.JOIN, member.member_id, now_ms + timeout_ms)

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        tables, assigned = self._group.tables, member.current.assigned
        return any(
            index not in assigned.get(topic_id, {}) and tables.partition_epochs.get(topic_id, index) != FREE
            for topic_id, indexes in tables.targets.get(member.member_id).items()
            for index in indexes
        )

    def _validated(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerMember, ClassicMember]:
        group = self._group
        member = group.get_member(member_id) if instance_id is None else group.static_member(member_id, instance_id)
        classic = member.subscription.classic
        if classic is None:
            message = f"Member {member_id} does not use the classic protocol."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if member.current.epoch != generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, classic

    # --- LeaveGroup

    def leave(self, identities: Iterable[tuple[str, str | None]], waiter: Waiter[Sequence[ErrorCode]]) -> Sequence[Any]:
        """One code per (member id, instance id). An instance id alone is an administrator's removal."""
        group = self._group
        codes: list[ErrorCode] = []
        leaving: dict[str, ConsumerMember] = {}
        for member_id, instance_id in identities:
            try:
                if instance_id is None:
                    member = group.get_member(member_id)
                else:
                    holder_id = group.tables.instances.get(instance_id, "")
                    member = group.static_member(member_id or holder_id, instance_id)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.NONE)
                leaving[member.member_id] = member
        count = len(codes)
        answer = HeldAnswer(waiter, codes, lambda error: [error] * count)
        return group.fence(list(leaving.values()), [answer], "left")


def owned_by_id(embedded: records.ConsumerProtocolSubscription, topics: Topics) -> dict[UUID, list[int]]:
    """The partitions that a subscription says its member owns, of topics that exist."""
    ids = ((topics.id_of(each.topic), each.partitions) for each in embedded.owned_partitions)
    return {topic_id: indexes for topic_id, indexes in ids if topic_id is not None}


def _overlaid(
    before: Subscription, request: JoinRequest, embedded: records.ConsumerProtocolSubscription
) -> Subscription:
    return Subscription(
        before.instance_id if request.instance_id is None else request.instance_id,
        embedded.rack_id or before.rack_id,
        request.client_id,
        request.client_host,
        frozenset(embedded.topics),
        "",
        request.rebalance_timeout_ms,
        before.server_assignor,
        ClassicMember(request.session_timeout_ms, request.protocols),
    )
