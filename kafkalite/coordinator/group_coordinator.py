"""The group coordinator: requests in, responses or futures of them out; performs what the groups decide.

A group lives in the partition of `__consumer_offsets` that its name hashes to, and is known here while that partition
is `owned`. What a group's state depends on is appended there first and becomes visible when the append is done, which
on a single replica is before `append` returns: nearly every request is answered synchronously, a join or a sync that
must wait gets a future. A future that was cancelled (its client is gone) is simply not answered.
Source: kafka.coordinator.group.{GroupCoordinator, GroupCoordinatorAdapter, GroupMetadataManager}, KafkaApis (3.9).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Moment, Timer
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition, partition_for_id
from kafkalite.coordinator import group_offsets, group_responses
from kafkalite.coordinator.group.effects import (
    AnswerJoin,
    AnswerSync,
    Append,
    CancelTimer,
    Effect,
    GroupTimer,
    SetTimer,
)
from kafkalite.coordinator.group.group import Group, GroupSettings, Joining
from kafkalite.coordinator.group.group_state import EMPTY, GROUP_APPEND_FAULT
from kafkalite.coordinator.group.join_results import JoinResult, SyncResult
from kafkalite.coordinator.group.record_codec import STRING_BYTES_MAX, group_key, offset_key
from kafkalite.coordinator.group_loading import StoredGroups
from kafkalite.coordinator.group_responses import CLASSIC, PendingResponse
from kafkalite.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafkalite.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

AppendDone = Callable[[ErrorCode], None]
Records = list[tuple[bytes, bytes | None]]

TOMBSTONES_PER_BATCH_MAX = 1_000
FIRST_JOIN_THAT_NEEDS_AN_ID = 4
FIRST_JOIN_THAT_CAN_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MANY = 3
MS_PER_MINUTE = 60_000


class GroupCoordinator:
    """All groups of the partitions that this broker leads. Everything here runs on the owner's event loop.

    `append(partition, records, done)` writes one batch and calls `done` with how it went, often before it returns.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        append: Callable[[int, Records, AppendDone], None],
        topic_partition_exists: Callable[[str, int], bool],
        *,
        new_uuid: Callable[[], object] = uuid.uuid4,
        new_future: Callable[[], asyncio.Future[object]] | None = None,
    ) -> None:
        self.partition_count = config.offsets_topic_num_partitions  # of the topic as it is, should the two differ
        self.groups: dict[str, Group] = {}
        self.owned: set[int] = set()
        self.loading: set[int] = set()
        self._config = config
        self._clock = clock
        self._append = append
        self._topic_partition_exists = topic_partition_exists
        self._new_uuid = new_uuid
        self._new_future = new_future or (lambda: asyncio.get_running_loop().create_future())
        self._settings = GroupSettings(config.group_initial_rebalance_delay_ms, config.group_max_size)
        self._timers: dict[tuple[Group, GroupTimer], Timer] = {}
        self._todo: deque[tuple[Group, Effect]] = deque()
        self._is_performing = False
        self._is_closed = False

    # --- partitions

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""
        return partition_for_id(group_id, self.partition_count)

    def start_loading(self, partition: int) -> None:
        """From now until `install` its groups answer COORDINATOR_LOAD_IN_PROGRESS instead of NOT_COORDINATOR."""
        if not self._is_closed:
            self.loading.add(partition)

    def load(self, partition: int, batches: Iterable[memoryview]) -> None:
        """Read the partition and own it. `batches` are its log from the start, whole batches in each view."""
        self.start_loading(partition)
        stored = StoredGroups()
        try:
            stored.read(batches)
            stored.finish()
        except BaseException:
            self.loading.discard(partition)  # not owned: its groups must not come into being a second time
            raise
        self.install(partition, stored)

    def install(self, partition: int, stored: StoredGroups) -> None:
        """Own the partition, whose log said this. Every member's session starts afresh."""
        if self._is_closed:
            return
        if partition in self.owned:
            self.unload(partition)
        self.loading.discard(partition)
        self.owned.add(partition)
        now = self._now()
        with_offsets = [group_id for group_id, offsets in stored.offsets.items() if not offsets.is_empty]
        for group_id in dict.fromkeys([*stored.groups, *with_offsets]):
            value = stored.groups.get(group_id)
            if value is None:
                group = Group(group_id, partition, self._settings, now.wall_ms)
            else:
                group = Group.stored(group_id, partition, value, self._settings, now.wall_ms)
            group.offsets = stored.offsets.get(group_id, group.offsets)
            self.groups[group_id] = group
        for group in [group for group in self.groups.values() if group.partition == partition]:
            self._perform(group, group.loaded(now))

    def unload(self, partition: int) -> None:
        """Another broker leads the partition: its groups are forgotten, whoever waits hears NOT_COORDINATOR."""
        self.owned.discard(partition)
        self.loading.discard(partition)
        for group in [group for group in self.groups.values() if group.partition == partition]:
            self._drop(group, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """No more answers but COORDINATOR_NOT_AVAILABLE, which those who wait hear at once. No timer is left.

        What is still being loaded is not taken in any more. Closing twice does nothing the second time.
        """
        self._is_closed = True
        for group in list(self.groups.values()):
            self._drop(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.owned.clear()
        self.loading.clear()

    # --- membership

    def join_group(
        self, request: JoinGroupRequest, api_version: int, client_id: str | None, client_host: str
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        """`client_host` as DescribeGroups is to show it."""
        parked = PendingResponse(partial(group_responses.join_response, api_version))
        member_id = request.member_id
        group, fault = self._find(request.group_id)
        if not fault:
            fault = self._join_fault(request)
        if not fault and group is None:
            fault = ErrorCode.UNKNOWN_MEMBER_ID if member_id else ErrorCode.NONE
        if fault:
            parked.answer(JoinResult(fault, member_id))
            return parked.outcome(self._new_future)
        if group is None:
            group = self.groups[request.group_id] = self._new_group(request.group_id)
        session_timeout_ms = request.session_timeout_ms
        joining = Joining(
            member_id,
            request.group_instance_id,
            client_id or "",
            client_host,
            request.rebalance_timeout_ms if api_version > 0 else session_timeout_ms,
            session_timeout_ms,
            request.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            "" if member_id else str(self._new_uuid()),
            api_version >= FIRST_JOIN_THAT_NEEDS_AN_ID,
            api_version >= FIRST_JOIN_THAT_CAN_SKIP_ASSIGNMENT,
        )
        self._perform(group, group.join(joining, parked, self._now()))
        return parked.outcome(self._new_future)

    def sync_group(
        self, request: SyncGroupRequest, api_version: int
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        parked = PendingResponse(group_responses.sync_response)
        group, fault = self._find(request.group_id)
        if fault == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            fault = ErrorCode.REBALANCE_IN_PROGRESS  # old clients know this one here, and join again
        elif api_version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            fault = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if fault or group is None:
            parked.answer(SyncResult(fault or ErrorCode.UNKNOWN_MEMBER_ID))
            return parked.outcome(self._new_future)
        effects = group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
            parked,
            self._clock.monotonic_ms(),
        )
        self._perform(group, effects)
        return parked.outcome(self._new_future)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.groups.get(request.group_id)
        if group is None:
            fault = self._fault(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            if fault == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                fault = ErrorCode.NONE  # it may well be a member
            return HeartbeatResponse(error_code=fault)
        code, effects = group.heartbeat(
            request.member_id, request.group_instance_id, request.generation_id, self._clock.monotonic_ms()
        )
        if effects:
            self._perform(group, effects)
        return HeartbeatResponse(error_code=code)

    def leave_group(self, request: LeaveGroupRequest, api_version: int) -> LeaveGroupResponse:
        if api_version >= FIRST_LEAVE_OF_MANY:
            identities = [(each.member_id, each.group_instance_id) for each in request.members]
        else:
            identities = [(request.member_id, None)]
        group, fault = self._find(request.group_id)
        if fault:
            return LeaveGroupResponse(error_code=fault)
        if group is None:
            codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities)
        else:
            codes, effects = group.leave(identities, self._now())
            self._perform(group, effects)
        return group_responses.leave_response(api_version, identities, codes)

    # --- offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
        response, accepted = group_offsets.known_partitions(request, self._topic_partition_exists)
        if not accepted:
            return response
        generation_id = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            fault = self._fault(request.group_id, may_be_empty=True)
            if not fault and generation_id >= 0:
                fault = ErrorCode.ILLEGAL_GENERATION
            if not fault:
                group = self._new_group(request.group_id)
        if group is not None:
            fault, effects = group.check_commit(
                request.member_id, request.group_instance_id, generation_id, self._clock.monotonic_ms()
            )
            if effects:
                self._perform(group, effects)
        if fault or group is None:
            for _, _, answer in accepted:
                answer.error_code = fault
            return response
        commit = group_offsets.Commit(group.offsets, response)
        records = commit.prepare(
            group.group_id,
            accepted,
            request.retention_time_ms,
            self._config.offset_metadata_max_bytes,
            self._clock.wall_ms(),
        )
        if records:
            self.groups[group.group_id] = group  # a new one comes into being with its first offset
            self._write(group.partition, records, commit.done)
        return commit.outcome(self._new_future)

    def fetch_offsets(self, request: OffsetFetchRequest, api_version: int) -> OffsetFetchResponse:
        """`require_stable` makes a difference only with open transactions."""
        return group_offsets.fetch_response(request, api_version, self._offsets_of)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """A group that may not lose offsets refuses all of them at once; else each partition has its own answer."""
        group, fault = self._find(request.group_id)
        if not fault:
            fault = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_deletion()
        if fault or group is None:
            return OffsetDeleteResponse(error_code=fault)
        codes = group_offsets.deletion_codes(request, self._topic_partition_exists, group.is_subscribed_to)
        going = [each for each, code in codes.items() if not code]
        if going:
            self._clean_up(group, group.offsets.known(going))
        return group_offsets.delete_response(codes)

    def expire_offsets(self) -> int:
        """Remove what is too old, and groups that are left with nothing; the broker calls this every
        offsets.retention.check.interval.ms. Returns how many offsets went."""
        now_ms = self._clock.wall_ms()
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        removed = 0
        for group in list(self.groups.values()):
            rule = group.expiry_rule()
            partitions = group.offsets.expired(rule, now_ms, retention_ms) if rule else []
            self._clean_up(group, partitions)
            removed += len(partitions)
        if removed:
            logger.info("removed %d expired offsets", removed)
        return removed

    def topic_deleted(self, topic: str) -> None:
        """Nobody needs to know any more how far it was read."""
        for group in list(self.groups.values()):
            self._clean_up(group, group.offsets.matching(topic))

    # --- seen from outside

    def describe_groups(self, request: DescribeGroupsRequest, api_version: int) -> DescribeGroupsResponse:
        """Without authorized_operations, which are the API's to know."""
        groups = []
        for group_id in dict.fromkeys(request.groups):
            group, fault = self._find(group_id, may_be_empty=True)
            groups.append(group_responses.described(group_id, group, fault))
        return DescribeGroupsResponse(groups=groups)

    def list_groups(self, request: ListGroupsRequest, api_version: int) -> ListGroupsResponse:
        if self._is_closed:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        wanted = {name.lower() for name in request.states_filter or ()}
        types = {name.lower() for name in request.types_filter or ()}
        listed = [
            group_responses.listed(group)
            for group in self.groups.values()
            if (not wanted or group.state.value.lower() in wanted) and (not types or CLASSIC in types)
        ]
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.loading else ErrorCode.NONE
        return ListGroupsResponse(error_code=error, groups=listed)

    def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            group, fault = self._find(group_id, may_be_empty=True)
            if not fault and group is None:
                fault = ErrorCode.GROUP_ID_NOT_FOUND
            elif group is not None and group.state is not EMPTY:
                fault = ErrorCode.NON_EMPTY_GROUP
            elif group is not None:
                group.members.pending.clear()
                self._clean_up(group, [*group.offsets, *group.offsets.under_way()])
            results.append(DeletableGroupResult(group_id=group_id, error_code=fault))
        return DeleteGroupsResponse(results=results)

    # --- finding groups

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[Group | None, ErrorCode]:
        group = self.groups.get(group_id)
        if group is not None and (group_id or may_be_empty):
            return group, ErrorCode.NONE
        return None, self._fault(group_id, may_be_empty=may_be_empty)

    def _fault(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Why nothing can be said about this group here; NONE if it just does not exist."""
        if not (group_id or may_be_empty) or not _fits(group_id):
            return ErrorCode.INVALID_GROUP_ID
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_for(group_id)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.owned else ErrorCode.NOT_COORDINATOR

    def _join_fault(self, request: JoinGroupRequest) -> ErrorCode:
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [request.group_instance_id or "", request.protocol_type, *(each.name for each in request.protocols)]
        return ErrorCode.NONE if all(map(_fits, names)) else ErrorCode.INVALID_REQUEST

    def _offsets_of(self, group_id: str) -> tuple[Group | None, ErrorCode]:
        return self._find(group_id, may_be_empty=True)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self.partition_for(group_id), self._settings, self._clock.wall_ms())

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _drop(self, group: Group, error: ErrorCode) -> None:
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        self._perform(group, group.close(error))

    def _clean_up(self, group: Group, partitions: Sequence[TopicPartition]) -> None:
        """Remove these offsets; and the group, if neither members nor offsets are left."""
        group.offsets.remove(partitions)
        records: Records = [(offset_key(group.group_id, topic, index), None) for topic, index in partitions]
        if group.state is EMPTY and group.offsets.is_empty and not group.members.pending:
            logger.info("group %s is gone, in generation %d", group.group_id, group.generation_id)
            self._drop(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if group.generation_id > 0:  # else it has only kept offsets, and there is no group record
                records.append((group_key(group.group_id), None))
        # nobody waits for these: should they be lost, the next turn writes them again
        for start in range(0, len(records), TOMBSTONES_PER_BATCH_MAX):
            batch = records[start : start + TOMBSTONES_PER_BATCH_MAX]
            self._write(group.partition, batch, partial(_note_lost_tombstones, group.group_id))

    # --- performing

    def _perform(self, group: Group, effects: Sequence[Effect]) -> None:
        """Perform the effects in their order. What follows from an append comes after what was asked for before it."""
        todo = self._todo
        todo.extend((group, effect) for effect in effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while todo:
                self._perform_one(*todo.popleft())
        finally:
            self._is_performing = False

    def _perform_one(self, group: Group, effect: Effect) -> None:
        if isinstance(effect, AnswerJoin):  # noqa: SIM114 - the same words about other types
            effect.waiter.answer(effect.result)
        elif isinstance(effect, AnswerSync):
            effect.waiter.answer(effect.result)
        elif isinstance(effect, Append):
            self._write(group.partition, effect.records, partial(self._appended, group, effect))
        elif isinstance(effect, SetTimer):
            self._cancel_timer(group, effect.timer)
            delay_ms = effect.deadline_ms - self._clock.monotonic_ms()
            self._timers[group, effect.timer] = self._clock.call_later(
                delay_ms, partial(self._fire, group, effect.timer)
            )
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(group, effect.timer)

    def _write(self, partition: int, records: Records, done: AppendDone) -> None:
        try:
            self._append(partition, records, done)
        except KafkaError as fault:
            done(fault.code)

    def _appended(self, group: Group, append: Append, error: ErrorCode) -> None:
        if error:
            logger.error("group %s could not be stored: %s", group.group_id, error.name)
        code = GROUP_APPEND_FAULT.get(error, error)
        self._perform(group, group.appended(append.then, code, self._now()))

    def _cancel_timer(self, group: Group, timer: GroupTimer) -> None:
        running = self._timers.pop((group, timer), None)
        if running is not None:
            running.cancel()

    def _fire(self, group: Group, timer: GroupTimer) -> None:
        self._timers.pop((group, timer), None)
        self._perform(group, group.expire(timer, self._now()))


def _fits(text: str) -> bool:
    """Whether the wire and the log can say it: at most 32767 bytes."""
    return len(text) * 4 <= STRING_BYTES_MAX or len(text.encode()) <= STRING_BYTES_MAX


def _note_lost_tombstones(group_id: str, error: ErrorCode) -> None:
    if error:
        logger.warning("could not write that offsets of group %s are removed: %s", group_id, error.name)
