"""The group coordinator: handles join, sync, heartbeat and leave of members; describes, lists and deletes groups.

Requests and results are values; `kafkalite.api.handlers` has the messages. Groups decide, and the effects of their
decisions are performed here. With a single replica an append is complete when it returns, so nearly every request is
answered synchronously; a join or a sync that must wait is answered through its waiter.
Source: kafka.coordinator.group.{GroupCoordinator, GroupCoordinatorAdapter} (3.9).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import fits_string
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.consumer_groups import ConsumerGroups
from kafkalite.coordinator.group.classic.group_state import AssignmentStored
from kafkalite.coordinator.group.consumer.group_environment import GroupEnvironment
from kafkalite.coordinator.group.deadlines import RETRY_MS
from kafkalite.coordinator.group.group import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    Group,
    GroupDescription,
    GroupSummary,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from kafkalite.coordinator.group_store import GroupStore
from kafkalite.coordinator.offset_manager import OffsetManager
from kafkalite.coordinator.runtime.effects import (
    AppendRecords,
    Effect,
    EffectPerformer,
    SetTimer,
    Waiter,
)

if TYPE_CHECKING:
    from kafkalite.coordinator.group.classic.classic_group import ClassicGroup
    from kafkalite.coordinator.group.share.share_group import ShareGroupConfig
    from kafkalite.coordinator.group.streams.streams_environment import StreamsGroupConfig
    from kafkalite.coordinator.share_groups import ShareGroups, ShareStates
    from kafkalite.coordinator.streams_groups import StreamsGroups

logger = logging.getLogger(__name__)


LeaveResult = tuple[ErrorCode, Sequence[ErrorCode]]
"""The error of the group, and those of its members."""


class GroupCoordinator:
    """All groups of the partitions that this broker leads; `offsets` has their committed offsets, `consumer_groups`
    serves those of the consumer protocol.

    All methods run on the owner's event loop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        append: AppendRecords,
        environment: GroupEnvironment,
        *,
        share_config: Callable[[str], ShareGroupConfig] | None = None,
        states: ShareStates | None = None,
        streams_config: Callable[[str], StreamsGroupConfig] | None = None,
        new_uuid: Callable[[], object] = uuid.uuid4,
    ) -> None:
        self._performer: EffectPerformer[Group] = EffectPerformer(
            clock, append, self._on_append, self._on_timer, self._perform_other
        )
        self.store = GroupStore(config, append, self._performer, environment, share_config, streams_config)
        self.consumer_groups = ConsumerGroups(config, self.store, self._performer, environment)
        self._share_groups: ShareGroups | None = None
        self._topics = environment.topics
        self._states = states
        self.offsets = OffsetManager(config, clock, self.store)
        self._config = config
        self._monotonic_ms = clock.monotonic_ms
        self._new_uuid = new_uuid
        self._groups = self.store.by_id
        self.completed_rebalances = 0  # of classic groups

    @property
    def share_groups(self) -> ShareGroups:
        """The groups of the share protocol, from their first use on."""
        if self._share_groups is None:
            assert self._states is not None, "a coordinator that serves share groups is given the share coordinators"
            from kafkalite.coordinator.share_groups import ShareGroups

            self._share_groups = ShareGroups(self.store, self._performer, self._topics, self._states)
        return self._share_groups

    @cached_property
    def streams_groups(self) -> StreamsGroups:
        """The groups of Kafka Streams."""
        from kafkalite.coordinator.streams_groups import StreamsGroups

        return StreamsGroups(self.store, self._performer)

    @property
    def timer_count(self) -> int:
        return len(self._performer.timers)

    def join(self, group_id: str, request: JoinRequest, waiter: Waiter[JoinResult]) -> None:
        """JoinGroup: `waiter` is answered at once, or when the next generation is complete."""
        member_id = request.member_id
        group, error = self.store.find(group_id)
        error = error or self._validate_join(request)
        is_gone = group is None or (group.kind in (CONSUMER, STREAMS) and not group.has_members)
        if not error and is_gone and member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            waiter.answer(JoinResult(error, member_id))
            return
        if group is None:
            group = self._groups[group_id] = self.store.new_group(group_id)
        elif is_gone:
            group = self._make_classic(group)
        if not member_id:
            request = request._replace(new_uuid=str(self._new_uuid()))
        self.store.perform(group, group.join(request, waiter, self._performer.now()))

    def sync(self, group_id: str, request: SyncRequest, waiter: Waiter[SyncResult]) -> None:
        """SyncGroup: `waiter` is answered at once, or when the leader's assignment is stored."""
        group, error = self.store.find(group_id)
        if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # old clients understand this error here, and join again
        elif request.requires_protocol and None in (request.protocol_type, request.protocol_name):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error or group is None:
            waiter.answer(SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self.store.perform(group, group.sync(request, waiter, self._monotonic_ms()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            error = self.store.unknown_group_error(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            # the group may have this member once it is loaded
            return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        error, effects = group.heartbeat(member_id, instance_id, generation_id, self._monotonic_ms())
        if effects:
            self.store.perform(group, effects)
        return error

    def _make_classic(self, group: Group) -> ClassicGroup:
        """An empty group of another kind becomes a classic one at its first JoinGroup, and keeps its offsets."""
        classic = self.store.new_group(group.group_id)
        self.store.replace(group, classic)
        classic.former_tombstones = group.tombstones()
        self.store.append(group.partition, classic.former_tombstones, partial(self._on_made_classic, classic))
        return classic

    def _on_made_classic(self, classic: ClassicGroup, error: ErrorCode) -> None:
        """Without the tombstones the record of the classic group counts, for it is the later one. A group that takes
        its place removes the old records as well, or they would be taken for its own."""
        if error:
            logger.warning("group %s: its old records could not be removed: %s", classic.group_id, error.name)
        else:
            classic.former_tombstones = []
        self.store.confirm(classic)

    def leave(self, group_id: str, identities: Sequence[tuple[str, str | None]], waiter: Waiter[LeaveResult]) -> None:
        """LeaveGroup: `waiter` gets the error of the group, and if there is none, of each (member id, instance id)."""
        group, error = self.store.find(group_id)
        if error or group is None:
            errors = [] if error else [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities)
            waiter.answer((error, errors))
            return
        self.store.perform(group, group.leave(identities, _LeaveWaiter(waiter), self._performer.now()))

    def describe(self, group_id: str) -> tuple[GroupDescription | None, ErrorCode]:
        """DescribeGroups: the group as it is stored. None with NONE: it does not exist."""
        group, error = self.store.find(group_id, may_be_empty=True)
        if group is None:
            return None, error
        with self.store.as_stored(group) as stored:
            return None if stored is None else stored.describe(), error

    def list_groups(self, states: Collection[str]) -> tuple[ErrorCode, list[GroupSummary]]:
        """ListGroups: the groups in `states` (in lower case), or all groups if `states` is empty; as they are
        stored."""
        if self.store.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        found = []
        for group in self._groups.values():
            if not self.store.is_being_stored(group):
                if not states or group.state_filter in states:
                    found.append(GroupSummary.of(group))
                continue
            with self.store.as_stored(group) as stored:
                if stored is not None and (not states or stored.state_filter in states):
                    found.append(GroupSummary.of(stored))
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.store.loading else ErrorCode.NONE, found

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """DeleteGroups: removes groups without members, with their offsets or the state of their share partitions. The
        removals are in the log when this returns; a group whose removal it refuses stays."""
        errors: dict[str, ErrorCode] = {}
        removals: dict[str, asyncio.Future[ErrorCode]] = {}
        for group_id in dict.fromkeys(group_ids):
            group, error = self.store.find(group_id, may_be_empty=True)
            if group is not None and group.kind == SHARE:
                error = await self.share_groups.delete_states(group_id)
                group, missing = self.store.find(group_id)  # another one may have its place
                error = error or missing
            if not error:
                error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.prepare_deletion()
            if not error and group is not None:
                offsets = [*group.offsets, *group.offsets.pending_partitions()]
                removals[group_id] = self.offsets.remove(group, offsets)
            errors[group_id] = error
        for group_id, removal in removals.items():
            errors[group_id] = await removal
        return errors

    def close(self) -> None:
        self.consumer_groups.close()
        self.store.close()
        self._performer.close()

    def _on_append(self, group: Group, then: Any, error: ErrorCode) -> Sequence[Effect]:
        if error:
            logger.error("group %s could not be stored: %s", group.group_id, error.name)
        elif group.kind == CLASSIC and self.store.is_replaced(group):
            # its successor does not know this assignment, so no member may get it
            return group.on_append(then, ErrorCode.REBALANCE_IN_PROGRESS, self._performer.now())
        effects = group.on_append(then, error, self._performer.now())
        self.store.on_append(group, error)
        if isinstance(then, AssignmentStored) and not error:
            self.completed_rebalances += 1
        return effects

    def _on_timer(self, group: Group, timer: Any) -> Sequence[Effect]:
        if self._groups.get(group.group_id) is not group:  # another has its place, which it may get back
            return [SetTimer(timer, self._monotonic_ms() + RETRY_MS)] if self.store.is_replaced(group) else ()
        return group.on_timer(timer, self._performer.now())

    def _perform_other(self, group: Group, effect: Any) -> None:
        if group.kind == SHARE:
            self.share_groups.perform(group, effect)
        else:
            self.consumer_groups.perform(group, effect)

    def _validate_join(self, request: JoinRequest) -> ErrorCode:
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [request.instance_id or "", request.protocol_type, *(name for name, _ in request.protocols)]
        return ErrorCode.NONE if all(map(fits_string, names)) else ErrorCode.INVALID_REQUEST


class _LeaveWaiter:
    """Receives the codes of the members, for a waiter of the whole answer."""

    __slots__ = ("_waiter",)

    def __init__(self, waiter: Waiter[LeaveResult]) -> None:
        self._waiter = waiter

    def answer(self, result: Sequence[ErrorCode], /) -> None:
        self._waiter.answer((ErrorCode.NONE, result))
