"""One group of the consumer protocol (KIP-848): its heartbeats, timers, and checks of offsets.

A heartbeat is answered when its records are in the log, so a client never sees an epoch that a crash could take back.
`GroupMembers` has the tables and what all requests share, `ClassicMembers` the requests of the classic protocol.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager, modern.consumer.ConsumerGroup (4.3); KIP-848, KIP-1251.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from kafkalite.common.clock import Clock, Moment
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.changes import HeldAnswer
from kafkalite.coordinator.group.consumer.classic_members import ClassicMembers
from kafkalite.coordinator.group.consumer.group_change import GroupChange, ResolveRegexes
from kafkalite.coordinator.group.consumer.group_description import state_of
from kafkalite.coordinator.group.consumer.group_environment import ConsumerGroupConfig, GroupEnvironment
from kafkalite.coordinator.group.consumer.group_members import REPORT_TIMER, GroupMembers, PendingAppend
from kafkalite.coordinator.group.consumer.group_tables import FIRST_EPOCH, SetCurrent
from kafkalite.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult, refused
from kafkalite.coordinator.group.consumer.member import (
    AWAY_EPOCH,
    JOINED_EPOCH,
    NO_TIMEOUT_MS,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from kafkalite.coordinator.group.consumer.member_records import tombstones_of_group
from kafkalite.coordinator.group.consumer.regex_refresh import LastRefresh, RegexChange, RegexRefresh
from kafkalite.coordinator.group.deadlines import Wait
from kafkalite.coordinator.group.group import (
    CONSUMER,
    Group,
    GroupDescription,
    Identity,
    JoinRequest,
    JoinResult,
    MemberDescription,
    SyncRequest,
    SyncResult,
    Waiting,
)
from kafkalite.coordinator.group.offset_store import ExpirationCondition
from kafkalite.coordinator.group.partition_sets import owns_only
from kafkalite.coordinator.runtime.effects import (
    Answer,
    Records,
    Waiter,
)
from kafkalite.protocol.records import CONSUMER_PROTOCOL_TYPE

logger = logging.getLogger(__name__)


class ConsumerGroup(Group):
    """State and members of one group."""

    __slots__ = ("classic_members", "environment", "members", "regex_refresh", "tables")
    kind: ClassVar[str] = CONSUMER

    def __init__(self, group_id: str, partition: int, environment: GroupEnvironment) -> None:
        super().__init__(group_id, partition)
        self.environment = environment
        self.members = GroupMembers(group_id, environment)
        self.tables = self.members.tables
        self.classic_members = ClassicMembers(self.members)
        self.regex_refresh = RegexRefresh()

    @property
    def state_name(self) -> str:
        return state_of(self.tables).value

    @property
    def protocol_type(self) -> str | None:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def has_members(self) -> bool:
        return bool(self.tables.members)

    @property
    def is_storing(self) -> bool:
        return self.members.is_storing

    def _changes_in_flight(self) -> Sequence[GroupChange]:
        return self.members.changes_in_flight

    @property
    def is_unborn(self) -> bool:
        tables = self.tables
        return not tables.members and tables.group_epoch == tables.target_epoch == FIRST_EPOCH

    # --- heartbeats

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, waiter: Waiter[HeartbeatResult], now: Moment
    ) -> Sequence[Any]:
        """ConsumerGroupHeartbeat: the answer waits for the log. A request that was validated."""
        change = self.members.new_change()
        try:
            if request.is_leave:
                return self._leave(request, waiter, change)
            result, regexes = self._decide_heartbeat(request, change, now)
        except KafkaError as error:
            change.undo()
            return (Answer(waiter, refused(error)),)
        timeout_ms = self.members.config.session_timeout_ms
        change.effects += self.members.renew_session(result.member_id or "", timeout_ms, now.monotonic_ms)
        if regexes is not None:
            change.effects.append(regexes)
        return self.members.store(change, [HeldAnswer(waiter, result, HeartbeatResult)])

    def keep_alive(
        self, member_id: str, member_epoch: int, instance_id: str | None, client: tuple[str, str], now: Clock
    ) -> int | None:
        """A heartbeat that says nothing: its interval, in ms, if nothing is told to the member, either. None: it has to
        be decided by `consumer_heartbeat`. `client` is its id and its host.

        Nearly all heartbeats are like this: 5.3 us from frame to frame instead of 10.6.
        """
        tables, members = self.tables, self.members
        member = tables.members.get(member_id)
        if member is None or members.is_storing:
            return None
        current, subscription = member.current, member.subscription
        if (
            member_epoch != current.epoch
            or member_epoch <= JOINED_EPOCH
            or instance_id != subscription.instance_id
            or client != (subscription.client_id, subscription.client_host)
            or subscription.classic is not None
            or tables.target_epoch < tables.group_epoch
            or not (
                current.state is MemberState.UNREVOKED
                or current.is_reconciled_to(tables.target_epoch)
                or members.waiting_members.has_no_news(member)
            )
            or members.refresh.is_due(tables)
        ):
            return None
        config = members.config
        if tables.regex_counts and self._is_refresh_due(LastRefresh.of(tables), config, now.wall_ms(), is_new=False):
            return None
        deadline_ms = now.monotonic_ms() + config.session_timeout_ms
        if deadline_ms < members.deadlines.timer_ms:
            return None
        members.deadlines.set(Wait.SESSION, member_id, deadline_ms)
        return members.waiting_members.heartbeat_interval_ms(member, config)

    def _decide_heartbeat(
        self, request: ConsumerHeartbeat, change: GroupChange, now: Moment
    ) -> tuple[HeartbeatResult, ResolveRegexes | None]:
        config = self.members.config
        self.members.check_room(request.member_id, config.max_size)
        last_refresh = LastRefresh.of(self.tables)
        member = self._member_for(request, change)
        before = member.subscription
        subscription = _overlaid(before, request)
        is_renamed = subscription.topic_names != before.topic_names
        regex_change, is_new_regex = self.members.update_subscription(change, member, subscription)
        is_resubscribed = is_renamed or regex_change is RegexChange.RESOLVED or self.members.is_upgraded
        regexes = None
        if self._is_refresh_due(last_refresh, config, now.wall_ms, is_new=is_new_regex):
            self.regex_refresh.begin(self.environment.topics.version)
            regexes = ResolveRegexes(frozenset(self.tables.regex_counts), request.may_describe)
        if is_resubscribed or self.members.refresh.is_due(self.tables):
            self.members.update_metadata(change, is_resubscribed=is_resubscribed)
        change.update_target(config, now.wall_ms)
        is_changed = is_renamed or regex_change is not RegexChange.NONE
        current = self.members.reconcile(change, member.member_id, request.owned, now, is_resubscribed=is_changed)
        assignment = None
        if request.member_epoch == JOINED_EPOCH or request.is_full or current.assigned != member.current.assigned:
            assignment = current.assigned
        member_now = self.tables.members[member.member_id]
        interval_ms = self.members.waiting_members.heartbeat_interval_ms(member_now, config, now.wall_ms)
        result = HeartbeatResult(ErrorCode.NONE, None, member.member_id, current.epoch, interval_ms, assignment)
        return result, regexes

    def _is_refresh_due(self, last: LastRefresh, config: ConsumerGroupConfig, wall_ms: int, *, is_new: bool) -> bool:
        version, interval_ms = self.environment.topics.version, config.regex_refresh_interval_ms
        return self.regex_refresh.is_due(last, self.tables, version, wall_ms, interval_ms, is_new=is_new)

    # --- the member of a heartbeat

    def _member_for(self, request: ConsumerHeartbeat, change: GroupChange) -> ConsumerMember:
        """The member that the heartbeat comes from; a new one at epoch 0. Raises KafkaError: UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID."""
        is_join = request.member_epoch == JOINED_EPOCH
        if request.instance_id is None:
            member = self.members.get_member(request.member_id, may_be_new=is_join)
        elif is_join:
            return self.members.join_as_static(request.member_id, request.instance_id, change, is_classic=False)
        else:
            member = self.members.static_member(request.member_id, request.instance_id)
        if not is_join:
            _validate_epoch(request, member.current)
        return member

    # --- leaving

    def _leave(self, request: ConsumerHeartbeat, waiter: Waiter[HeartbeatResult], change: GroupChange) -> Sequence[Any]:
        if request.instance_id is None:
            member = self.members.get_member(request.member_id)
        else:
            member = self.members.static_member(request.member_id, request.instance_id)
        result = HeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        answer = HeldAnswer(waiter, result, HeartbeatResult)
        if request.instance_id is None or request.member_epoch != AWAY_EPOCH:
            return self.members.fence([member], [answer], "left")
        change.make(SetCurrent(member.member_id, member.current.away()))
        return self.members.store(change, [answer])

    def tombstones(self) -> Records:
        return tombstones_of_group(self.group_id, self.tables.members, self.tables.regexes)

    # --- events

    def on_append(self, then: PendingAppend, error: ErrorCode, now: Moment) -> Sequence[Any]:
        return self.members.on_append(then, error, now)

    def on_timer(self, timer: Any, now: Moment) -> Sequence[Any]:
        return self.members.report_wait(now) if timer == REPORT_TIMER else self.members.on_timer(now)

    def on_loaded(self, now: Moment) -> Sequence[Any]:
        return self.members.start_sessions(now)

    def on_regexes_resolved(self, resolved: Iterable[tuple[str, ResolvedRegex]] | None, now: Moment) -> Sequence[Any]:
        """The run that `ResolveRegexes` asked for is over; None if it failed, and a later heartbeat tries again."""
        self.regex_refresh.end(is_failed=resolved is None)
        return () if resolved is None or self.members.is_closed else self.members.resolve_regexes(resolved)

    def close(self, error: ErrorCode) -> Sequence[Any]:
        return self.members.close(error)

    # --- members of the classic protocol

    def join(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> Sequence[Any]:
        return self.classic_members.join(request, waiter, now)

    def sync(self, request: SyncRequest, waiter: Waiter[SyncResult], now_ms: int) -> Sequence[Any]:
        return self.classic_members.sync(request, waiter, now_ms)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        return self.classic_members.heartbeat(member_id, instance_id, generation_id, now_ms)

    def leave(
        self, identities: Sequence[tuple[str, str | None]], waiter: Waiter[Sequence[ErrorCode]], now: Moment
    ) -> Sequence[Any]:
        return self.classic_members.leave(identities, waiter)

    # --- offsets

    def validate_commit(
        self, identity: Identity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        if identity.epoch < 0 and not self.tables.members:
            return ErrorCode.NONE, ()  # an administrator
        member = self.tables.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, ()
        if not member.is_classic and not identity.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION, ()
        return self._validate_epoch_of_commit(member, identity.epoch, partitions), ()

    def validate_transactional_commit(self, identity: Identity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        if identity.epoch < 0 and not self.tables.members:
            return ErrorCode.NONE
        if identity[:3] == ("", None, -1):
            return ErrorCode.NONE
        member = self.tables.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._validate_epoch_of_commit(member, identity.epoch, partitions)
        return ErrorCode.ILLEGAL_GENERATION if error else ErrorCode.NONE

    def _validate_epoch_of_commit(
        self, member: ConsumerMember, epoch: int, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """An older epoch is good for partitions that the member has had since then (KIP-1251)."""
        current = member.current
        stale = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        if epoch == current.epoch:
            return ErrorCode.NONE
        if epoch > current.epoch:
            return stale
        for topic, index in partitions:
            topic_id = self.environment.topics.id_of(topic)
            if topic_id is None:
                return stale
            since = current.assigned.get(topic_id, {}).get(index)
            if since is None:
                since = current.pending_revocation.get(topic_id, {}).get(index)
            if since is None or epoch < since:
                return stale
        return ErrorCode.NONE

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.tables.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.current.epoch == epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.tables.name_counts or topic in self.tables.regex_topic_counts

    def offset_expiration_condition(self) -> ExpirationCondition | None:
        return ExpirationCondition(None, frozenset(self.tables.subscribed_topics))

    # --- descriptions

    def describe(self) -> GroupDescription:
        members = tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.subscription.client_id,
                member.subscription.client_host,
                member.subscription.rebalance_timeout_ms,
                self.members.config.session_timeout_ms,
                member.subscription.classic.protocols if member.subscription.classic is not None else (),
                b"",
                b"",
                None,
            )
            for member in self.tables.members.values()
        )
        epoch = self.tables.group_epoch
        return GroupDescription(self.group_id, self.kind, self.state_name, epoch, CONSUMER_PROTOCOL_TYPE, None, members)

    def waiting(self, now_ms: int) -> Waiting | None:
        return self.members.waiting(now_ms)


def _overlaid(before: Subscription, request: ConsumerHeartbeat) -> Subscription:
    """The subscription with what the heartbeat says; it makes the member one of the consumer protocol."""
    names, timeout_ms = request.topic_names, request.rebalance_timeout_ms
    return Subscription(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.topic_names if names is None else frozenset(names),
        before.topic_regex if request.topic_regex is None else request.topic_regex,
        before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT_MS else timeout_ms,
        before.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _validate_epoch(request: ConsumerHeartbeat, current: CurrentAssignment) -> None:
    """The epoch before is accepted once more from a member that says to have nothing but what is assigned to it: the
    answer with the new epoch may have got lost."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    is_previous = epoch == current.previous_epoch and request.owned is not None
    if epoch > current.epoch:
        side = "greater"
    elif is_previous and owns_only(request.owned or {}, current.assigned):
        return
    else:
        side = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {side} member epoch ({epoch}) than the one known by the group coordinator "
        f"({current.epoch}). The member must abandon all its partitions and rejoin.",
    )
