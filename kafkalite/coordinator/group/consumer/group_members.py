"""The members of a consumer group and the changes of it that all of its requests share.

Members are found and replaced, moved on towards their target, and fenced; changes are stored. A change takes effect at
once, and its answer waits until its records are in the log; so does an answer that depends on a change still under way.
If the log refuses the records, the change is undone.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import HeldAnswer, take_back
from kafkalite.coordinator.group.consumer.group_change import DowngradeGroup, GroupChange
from kafkalite.coordinator.group.consumer.group_environment import ConsumerGroupConfig, GroupEnvironment
from kafkalite.coordinator.group.consumer.group_tables import ConsumerGroupTables, SetRegex
from kafkalite.coordinator.group.consumer.member import (
    AWAY_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from kafkalite.coordinator.group.consumer.member_records import records_of
from kafkalite.coordinator.group.consumer.regex_refresh import RegexChange
from kafkalite.coordinator.group.deadlines import (
    RETRY_MS,
    Deadline,
    MemberDeadlines,
    Wait,
    remaining_ms,
    waiting_interval_ms,
)
from kafkalite.coordinator.group.group import REPORT_AFTER_MS, REVOKE, Waiting
from kafkalite.coordinator.group.partition_sets import OwnedPartitions
from kafkalite.coordinator.group.topics import MetadataRefresh
from kafkalite.coordinator.runtime.effects import (
    CONSUMER_GROUP_APPEND_ERROR,
    STAYS_IN_LOG,
    Answer,
    Append,
    CancelTimer,
    Records,
    SetTimer,
)

logger = logging.getLogger(__name__)

REPORT_TIMER = "a wait for long is logged"


class _Revocation(NamedTuple):
    """Partitions that a member has to give up. `since_ms` is a date."""

    epoch: int
    since_ms: int


class PendingAppend:
    """A change whose records are on their way to the log, with the answers that wait for it."""

    __slots__ = ("answers", "change")

    def __init__(self, change: GroupChange, answers: Iterable[HeldAnswer]) -> None:
        self.change = change
        self.answers = [*answers]


class WaitingMembers:
    """The members of a group that wait for what only a heartbeat can tell them: when it is due, and whether it has to
    be decided. They need not be if no member of the group has changed since they last asked."""

    __slots__ = ("_since", "_tables", "_unreleased")

    def __init__(self, tables: ConsumerGroupTables) -> None:
        self._tables = tables
        self._unreleased: set[str] = set()  # they found nothing released at the change of this number
        self._since = 0

    def add(self, member_id: str) -> None:
        """The member has asked, and waits for others."""
        if self._since != self._tables.member_changes:
            self._unreleased.clear()
            self._since = self._tables.member_changes
        self._unreleased.add(member_id)

    def has_no_news(self, member: ConsumerMember) -> bool:
        """Whether a member that waits for others would wait on if it asked now."""
        tables = self._tables
        return (
            member.member_id in self._unreleased
            and self._since == tables.member_changes
            and member.current.epoch == tables.target_epoch
        )

    def heartbeat_interval_ms(self, member: ConsumerMember, config: ConsumerGroupConfig, wall_ms: int = 0) -> int:
        """The time until the member's next heartbeat: less than usual while it waits. One with partitions to give up
        does not wait: its heartbeat follows when it has done so. `wall_ms` counts if the next target is to come."""
        tables, state, regex = self._tables, member.current.state, member.subscription.topic_regex
        if state is MemberState.UNRELEASED or (regex and regex not in tables.regexes):
            return waiting_interval_ms(config.heartbeat_interval_ms)
        if tables.target_epoch < tables.group_epoch and state is not MemberState.UNREVOKED:
            no_news_ms = remaining_ms(tables.target_timestamp_ms, config.assignment_interval_ms, wall_ms)
            return waiting_interval_ms(config.heartbeat_interval_ms, no_news_ms)
        return config.heartbeat_interval_ms


class GroupMembers:
    """The members of one group, with its tables and deadlines."""

    __slots__ = (
        "_in_flight", "_is_report_due", "_revocations", "conversion", "deadlines", "environment", "group_id",
        "is_closed", "preceding_records", "refresh", "tables", "waiting_members",
    )  # fmt: skip

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.environment = environment
        self.tables = ConsumerGroupTables()
        self.deadlines = MemberDeadlines()
        self.preceding_records: Records = []  # of its conversion: they go before those of its first change
        self.conversion: GroupChange | None = None  # the change with which a classic group takes its place
        self.is_closed = False
        self.refresh = MetadataRefresh(environment.topics)
        self.waiting_members = WaitingMembers(self.tables)
        self._in_flight: list[PendingAppend] = []
        self._revocations: dict[str, _Revocation] = {}  # of members with a deadline to give up partitions
        self._is_report_due = False  # the timer is set that logs a long wait for them

    @property
    def config(self) -> ConsumerGroupConfig:
        return self.environment.config(self.group_id)

    @property
    def is_storing(self) -> bool:
        """Whether a change is on its way to the log."""
        return bool(self._in_flight)

    @property
    def changes_in_flight(self) -> Sequence[GroupChange]:
        """The conversion is the last one."""
        last = () if self.conversion is None else (self.conversion,)
        return [*(each.change for each in self._in_flight), *last]

    @property
    def is_upgraded(self) -> bool:
        """Whether this is the first change since the group was classic with members. It begins a rebalance even if the
        newcomer subscribes to nothing: the last one may have been interrupted, and left partitions without an owner."""
        return bool(self.preceding_records) and self.tables.classic_count > 0

    def new_change(self) -> GroupChange:
        return GroupChange(self.group_id, self.tables, self.environment)

    # --- members

    def get_member(self, member_id: str, *, may_be_new: bool = False) -> ConsumerMember:
        member = self.tables.members.get(member_id)
        if member is None:
            if not may_be_new:
                message = f"Member {member_id} is not a member of group {self.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
            logger.info("group %s: %s joins", self.group_id, member_id)
            member = ConsumerMember(member_id)
        return member

    def static_member(self, member_id: str, instance_id: str) -> ConsumerMember:
        """The member of this instance id, which must have this id."""
        holder_id = self.tables.instances.get(instance_id)
        if holder_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder_id != member_id:
            message = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
        return self.tables.members[holder_id]

    def join_as_static(
        self, member_id: str, instance_id: str, change: GroupChange, *, is_classic: bool
    ) -> ConsumerMember:
        """A new static member, or one that returns and takes the place of its predecessor. Between two members of the
        consumer protocol the predecessor must have left."""
        holder_id = self.tables.instances.get(instance_id)
        if holder_id is None:
            return self.get_member(member_id, may_be_new=True)
        holder = self.tables.members[holder_id]
        if not is_classic and not holder.is_classic and holder.current.epoch != AWAY_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {holder_id} member.",
            )
        logger.info("group %s: static member %s returns as %s", self.group_id, instance_id, member_id)
        return change.replace(holder, member_id)

    def check_room(self, member_id: str, max_size: int) -> None:
        members = self.tables.members
        if len(members) >= max_size and member_id not in members:
            message = f"The consumer group has reached its maximum capacity of {max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def update_subscription(
        self, change: GroupChange, member: ConsumerMember, subscription: Subscription
    ) -> tuple[RegexChange, bool]:
        """Store what the member says of itself. Returns what has become of its regular expression, and whether no other
        member has it. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        tables = self.tables
        old, new = member.regex, subscription.topic_regex or None
        is_new = new is not None and new != old and new not in tables.regex_counts
        if is_new and new is not None:
            self.environment.check_regex(new)
        change.update_subscription(member.member_id, subscription)
        if (member.subscription.topic_regex or None) == new:
            return RegexChange.NONE, False
        if old is not None and old not in tables.regex_counts:
            change.make(SetRegex(old, None))
        is_known = new is None or (not is_new and new in tables.regexes)
        return RegexChange.RESOLVED if is_known else RegexChange.UNRESOLVED, is_new

    def resolve_regexes(self, resolved: Iterable[tuple[str, ResolvedRegex]]) -> Sequence[Any]:
        """Store what the regular expressions have matched."""
        change = self.new_change()
        change.resolve_regexes(resolved)
        self.refresh.complete(self.tables.group_epoch)
        return self.store(change, ())

    def update_metadata(self, change: GroupChange, *, is_resubscribed: bool) -> None:
        change.update_metadata(is_resubscribed=is_resubscribed)
        self.refresh.complete(self.tables.group_epoch)

    def reconcile(
        self,
        change: GroupChange,
        member_id: str,
        owned: OwnedPartitions | None,
        now: Moment,
        *,
        is_resubscribed: bool,
    ) -> CurrentAssignment:
        """Move the member on, and start or end the time that it has to give up partitions."""
        current = change.reconcile(member_id, owned, is_resubscribed=is_resubscribed)
        member = self.tables.members[member_id]
        if member.current.state is MemberState.UNRELEASED:
            self.waiting_members.add(member_id)
        if current is None:
            return member.current
        if not member.is_classic:
            if current.state is MemberState.UNREVOKED:
                change.effects += self._await_revocation(member, now)
            else:
                change.forgotten += self.deadlines.cancel(Wait.REVOCATION, member_id)
        return current

    def _await_revocation(self, member: ConsumerMember, now: Moment) -> Sequence[Any]:
        self._revocations[member.member_id] = _Revocation(member.current.epoch, now.wall_ms)
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        timer: Sequence[Any] = self.deadlines.set(Wait.REVOCATION, member.member_id, now.monotonic_ms + timeout_ms)
        if self._is_report_due or timeout_ms <= REPORT_AFTER_MS:
            return timer
        self._is_report_due = True
        return [*timer, SetTimer(REPORT_TIMER, now.monotonic_ms + REPORT_AFTER_MS)]

    def waiting(self, now_ms: int) -> Waiting | None:
        """The members that still have to give up partitions; None if there are none."""
        found = [
            (each, until_ms, self._revocations[each.member_id].since_ms)
            for each in self.tables.members.values()
            if each.current.state is MemberState.UNREVOKED
            and (until_ms := self.deadlines.get(Wait.REVOCATION, each.member_id)) is not None
        ]
        if not found:
            return None
        names = tuple(
            f"{one.instance_id or one.subscription.client_id} at {one.subscription.client_host.removeprefix('/')}"
            for one, _, _ in found
        )
        until_ms = max(each for _, each, _ in found)
        since_ms = min(each for _, _, each in found)
        return Waiting(REVOKE, tuple(one.member_id for one, _, _ in found), names, until_ms - now_ms, since_ms)

    def report_wait(self, now: Moment) -> Sequence[Any]:
        """Log the members that are waited for, or set the timer again if they have not kept the group waiting for so
        long."""
        self._is_report_due = False
        waiting = self.waiting(now.monotonic_ms)
        if waiting is None or waiting.since_ms is None:
            return ()
        waited_ms = now.wall_ms - waiting.since_ms
        if waited_ms >= REPORT_AFTER_MS:
            logger.info("%s", waiting.sentence(self.group_id, waited_ms))
            return ()
        self._is_report_due = True
        return (SetTimer(REPORT_TIMER, now.monotonic_ms + REPORT_AFTER_MS - waited_ms),)

    def fence(
        self,
        members: Collection[ConsumerMember],
        answers: Iterable[HeldAnswer],
        reason: str,
        due: Sequence[Deadline] = (),
    ) -> Sequence[Any]:
        """Remove the members; `due` are the deadlines that are the reason. The next heartbeat of another one assigns
        what was meant for them."""
        for member in members:
            logger.info("group %s loses %s: %s", self.group_id, member.member_id, reason)
        change = self.new_change()
        if members and self._is_classic_without(members):
            leaving = frozenset(member.member_id for member in members)
            return [DowngradeGroup(leaving, self.tables.group_epoch, "it is classic again", change, (*answers,))]
        if members:
            change.remove(members)
        change.forgotten += due
        for member in members:
            change.forgotten += self.deadlines.forget(member.member_id)
        return self.store(change, answers)

    def _is_classic_without(self, members: Collection[ConsumerMember]) -> bool:
        """Whether only members of the classic protocol are left without these, so that the group becomes classic."""
        left = len(self.tables.members) - len(members)
        classic_left = self.tables.classic_count - sum(member.is_classic for member in members)
        return 0 < left == classic_left and self.may_downgrade(left)

    def may_downgrade(self, size: int) -> bool:
        config = self.config
        if config.migration_policy.may_downgrade and size <= config.classic_max_size:
            return True
        logger.info("group %s stays a consumer group: its policy or its size allows no other", self.group_id)
        return False

    # --- storing

    def store(self, change: GroupChange, answers: Iterable[HeldAnswer]) -> Sequence[Any]:
        """Append the records of the change; the answers wait for it, or for an earlier change without any of their
        own."""
        self.environment.totals.rebalances += change.is_bumped
        if not change.steps:
            if self._in_flight:
                self._in_flight[-1].answers += answers
                return change.effects
            return [*change.effects, *(Answer(each.waiter, each.result) for each in answers)]
        pending = PendingAppend(change, answers)
        self._in_flight.append(pending)
        preceding, self.preceding_records = self.preceding_records, []
        return [*change.effects, Append([*preceding, *records_of(self.group_id, change.steps)], pending)]

    def on_append(self, then: PendingAppend, error: ErrorCode, now: Moment) -> Sequence[Any]:
        if self.is_closed:
            return ()
        later = self.changes_in_flight[self._in_flight.index(then) + 1 :]
        self._in_flight.remove(then)
        if not error:
            return [Answer(each.waiter, each.result) for each in then.answers]
        effects: list[Any] = []
        if error not in STAYS_IN_LOG:
            effects += take_back(then.change, later, self.deadlines, now.monotonic_ms)
            self.refresh.reset()
        shown = CONSUMER_GROUP_APPEND_ERROR.get(error, error)
        return [*effects, *(Answer(each.waiter, each.refuse(shown)) for each in then.answers)]

    # --- deadlines

    def on_timer(self, now: Moment) -> Sequence[Any]:
        """Fence the members whose deadlines have passed. If the group becomes classic without one of them, the others
        wait: they are of the classic group then."""
        effects: list[Any] = []
        conversion: Sequence[Any] = ()
        for due in self.deadlines.take_due(now.monotonic_ms):
            member = self.tables.members.get(due.member_id)
            if member is None:
                continue
            if due.wait is Wait.REVOCATION:
                revocation = self._revocations.get(due.member_id)
                if revocation is None or revocation.epoch != member.current.epoch:
                    continue
                if member.current.state is not MemberState.UNREVOKED:  # the change that set it was undone
                    continue
            if conversion:
                effects += self.deadlines.restore([due], now.monotonic_ms)
                continue
            fencing = self.fence([member], (), f"it did not give {due.wait.value} in time", [due])
            if fencing and isinstance(fencing[0], DowngradeGroup):
                conversion = fencing
            else:
                effects += fencing
        return [*effects, *self.deadlines.watch_earliest(), *conversion]

    def start_sessions(self, now: Moment) -> Sequence[Any]:
        """The group was read from its log: every deadline begins anew."""
        effects: list[Any] = []
        for member in self.tables.members.values():
            effects += self.renew_session(member.member_id, self.config.session_timeout_ms, now.monotonic_ms)
            if member.current.state is MemberState.UNREVOKED:
                effects += self._await_revocation(member, now)
        return effects

    def renew_session(self, member_id: str, timeout_ms: int, now_ms: int) -> Sequence[Any]:
        return self.deadlines.set(Wait.SESSION, member_id, now_ms + timeout_ms)

    def retry_removal(self, member_ids: Iterable[str], now: Moment) -> Sequence[Any]:
        """The log refused the conversion that was to remove these members: their sessions end a moment later."""
        deadline_ms = now.monotonic_ms + RETRY_MS
        return [effect for each in member_ids for effect in self.deadlines.set(Wait.SESSION, each, deadline_ms)]

    def close(self, error: ErrorCode) -> Sequence[Any]:
        """The group is gone from here: waiting answers get `error`."""
        self.is_closed = True
        answers = [each for pending in self._in_flight for each in pending.answers]
        self._in_flight.clear()
        timers = CancelTimer(MemberDeadlines.TIMER), CancelTimer(REPORT_TIMER)
        return [*timers, *(Answer(each.waiter, each.refuse(error)) for each in answers)]
