"""The requests of share groups (KIP-932): heartbeats, descriptions, and where a group stands in its partitions.

A group's members and the partitions that it reads stand in `__consumer_offsets`; how far it has come stands with the
share coordinators, which are asked through `ShareStates`.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (shareGroupHeartbeat, shareGroupDescribe,
describeShareGroupOffsets, alterShareGroupOffsets, deleteShareGroupOffsets; 4.3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.share.share_group import (
    LEAVING_EPOCH,
    ShareGroup,
    ShareHeartbeat,
    ShareHeartbeatResult,
)
from kafkalite.coordinator.group.share.share_tables import JOINED_EPOCH, ShareMember
from kafkalite.coordinator.group.share.state_partitions import InitializeState
from kafkalite.coordinator.runtime.effects import EffectPerformer, Waiter
from kafkalite.coordinator.share.share_state import ShareSummary
from kafkalite.replication.share.durable_state import SharePartitionKey

if TYPE_CHECKING:
    from kafkalite.coordinator.group.group import Group
    from kafkalite.coordinator.group.topics import Topics
    from kafkalite.coordinator.group_store import GroupStore

logger = logging.getLogger(__name__)

ASSIGNOR = "simple"
Outcome = Callable[[KafkaError | None], None]


class ShareStates(Protocol):
    """The share coordinators of the cluster, as a group coordinator uses them. Each calls back once."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Outcome, /) -> None: ...

    def delete(self, key: SharePartitionKey, done: Outcome, /) -> None: ...

    def summary(self, key: SharePartitionKey, done: Callable[[ShareSummary | KafkaError], None], /) -> None: ...


class ShareGroupDescription(NamedTuple):
    """One group, with its members and their partitions by topic name."""

    group_id: str
    state: str
    group_epoch: int
    target_epoch: int
    members: Sequence[tuple[ShareMember, Sequence[tuple[UUID, str, Sequence[int]]]]]


class ShareGroups:
    """The share groups among those in `store`."""

    def __init__(
        self,
        store: GroupStore,
        performer: EffectPerformer[Group],
        topics: Topics,
        states: ShareStates,
    ) -> None:
        self._store = store
        self._performer = performer
        self._topics = topics
        self._states = states

    # --- members

    def heartbeat(self, group_id: str, request: ShareHeartbeat, waiter: Waiter[ShareHeartbeatResult]) -> None:
        """ShareGroupHeartbeat: `waiter` is answered when the change is in the log."""
        store, performer = self._store, self._performer
        try:
            _validate(group_id, request)
            known, error = store.find(group_id)
            if error:
                waiter.answer(ShareHeartbeatResult(error))
                return
            if known is None and request.member_epoch != JOINED_EPOCH:
                name = "Group" if request.member_epoch == LEAVING_EPOCH else "Share group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} {group_id} not found.")
            group = self._share_group(group_id, known)
        except KafkaError as error:
            waiter.answer(ShareHeartbeatResult(error.code, error.message))
            return
        effects = group.share_heartbeat(request, waiter, performer.now())
        if known is None and group.has_members:
            store.by_id[group_id] = group
        performer.perform(group, effects)

    def _share_group(self, group_id: str, known: Group | None) -> ShareGroup:
        if known is None:
            return self._store.new_share_group(group_id)
        if not isinstance(known, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return known

    def describe(self, group_id: str) -> ShareGroupDescription:
        """ShareGroupDescribe: the group as it is stored. Raises KafkaError."""
        with self._store.find_stored(group_id) as group:
            if isinstance(group, ShareGroup):
                return self._description(group)
            fault = "not found" if group is None else "is not a share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {fault}.")

    def _description(self, group: ShareGroup) -> ShareGroupDescription:
        tables, topics = group.tables, self._topics
        members = []
        for member in tables.members.values():
            rows = [
                (topic_id, name, sorted(indexes))
                for topic_id, indexes in member.current.partitions.items()
                if (name := topics.name_of(topic_id)) is not None
            ]
            members.append((member, rows))
        return ShareGroupDescription(group.group_id, group.state_name, tables.group_epoch, tables.target_epoch, members)

    # --- the state of partitions

    def perform(self, group: Group, effect: InitializeState) -> None:
        """Have the share coordinators begin the partitions; the group is told when all have answered."""
        assert isinstance(group, ShareGroup)
        keys = [
            SharePartitionKey(group.group_id, each, index) for each, some in effect.offsets.items() for index in some
        ]
        outcomes: dict[SharePartitionKey, KafkaError | None] = {}

        def on_done(key: SharePartitionKey, error: KafkaError | None) -> None:
            outcomes[key] = error
            if error is not None:
                logger.warning("group %s: %s could not be initialized: %s", group.group_id, key, error)
            if len(outcomes) == len(keys):
                self._on_initialized(group, outcomes)

        for key in keys:
            offset = effect.offsets[key.topic_id][key.partition]
            self._states.initialize(key, effect.state_epoch, offset, partial(on_done, key))

    def _on_initialized(self, group: ShareGroup, outcomes: Mapping[SharePartitionKey, KafkaError | None]) -> None:
        done = _by_topic(key for key, error in outcomes.items() if error is None)
        failed = _by_topic(key for key, error in outcomes.items() if error is not None)
        self._performer.perform(group, group.state_partitions.on_initialized(done, failed, self._performer.now()))

    async def summaries(self, keys: Iterable[SharePartitionKey]) -> dict[SharePartitionKey, ShareSummary | KafkaError]:
        """Where the group stands in each of the partitions."""
        wanted = list(keys)
        found = await asyncio.gather(*(self._ask(self._states.summary, key) for key in wanted))
        return dict(zip(wanted, found, strict=True))

    def initialized(self, group_id: str) -> dict[UUID, frozenset[int]]:
        """The partitions whose state the group has; none if there is no such group. Raises KafkaError."""
        group, error = self._store.find(group_id)
        if error:
            raise KafkaError(error)
        if not isinstance(group, ShareGroup):
            return {}
        return {each: some.partitions for each, some in group.tables.state_partitions.initialized.items()}

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[UUID, Mapping[int, int]]
    ) -> dict[SharePartitionKey, KafkaError | None]:
        """AlterShareGroupOffsets: what became of each partition. Raises KafkaError: NON_EMPTY_GROUP and others."""
        known, error = self._store.find(group_id)
        if error:
            raise KafkaError(error)
        group = self._share_group(group_id, known)
        if group.has_members:
            raise KafkaError.in_kafkas_words(ErrorCode.NON_EMPTY_GROUP)
        if known is None:
            self._store.by_id[group_id] = group
        now = self._performer.now()
        await self._change(group, lambda waiter: group.state_partitions.alter_offsets(offsets, waiter, now))
        outcomes: dict[SharePartitionKey, KafkaError | None] = {}
        for topic_id, some in offsets.items():
            for index, offset in some.items():
                key = SharePartitionKey(group_id, topic_id, index)
                outcomes[key] = await self._ask(self._states.initialize, key, group.tables.group_epoch, offset)
        self._on_initialized(group, outcomes)
        return outcomes

    async def delete_offsets(self, group_id: str, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """DeleteShareGroupOffsets: what became of each topic. Raises KafkaError, as of a group that has members."""
        known, error = self._store.find(group_id)
        if error:
            raise KafkaError(error)
        if known is None or not isinstance(known, ShareGroup):
            fault = "not found" if known is None else "is not a share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {fault}.")
        group = known
        if group.has_members:
            raise KafkaError.in_kafkas_words(ErrorCode.NON_EMPTY_GROUP)
        topics, state = self._topics, group.tables.state_partitions
        outcomes: dict[str, KafkaError | None] = {}
        keys: dict[UUID, list[SharePartitionKey]] = {}
        for name in names:
            topic_id = topics.id_of(name)
            if topic_id is None:
                outcomes[name] = KafkaError.in_kafkas_words(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            indexes: Iterable[int] = ()
            if topic_id in state.initialized:
                indexes = state.initialized[topic_id].partitions
            elif topic_id in state.deleting:
                indexes = range(topics.partition_counts([topic_id])[topic_id])
            else:
                outcomes[name] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
                )
                continue
            keys[topic_id] = [SharePartitionKey(group_id, topic_id, index) for index in sorted(indexes)]
        await self._change(group, lambda waiter: group.state_partitions.begin_deletion(keys.keys(), waiter))
        for topic_id, some in keys.items():
            errors = await asyncio.gather(*(self._ask(self._states.delete, key) for key in some))
            outcomes[topics.name_of(topic_id) or ""] = next((each for each in errors if each is not None), None)
        deleted = [each for each in keys if outcomes.get(topics.name_of(each) or "") is None]
        if deleted:
            await self._change(group, lambda waiter: group.state_partitions.end_deletion(deleted, waiter))
        return outcomes

    async def delete_states(self, group_id: str) -> ErrorCode:
        """DeleteGroups: delete what the share coordinators know of the group."""
        group, error = self._store.find(group_id)
        if error or not isinstance(group, ShareGroup):
            return error
        if group.has_members:
            return ErrorCode.NON_EMPTY_GROUP
        state = group.tables.state_partitions
        keys = [
            SharePartitionKey(group_id, topic_id, index)
            for part in (state.initialized, state.initializing)
            for topic_id, some in part.items()
            for index in sorted(some.partitions)
            if self._topics.name_of(topic_id) is not None
        ]
        errors = await asyncio.gather(*(self._ask(self._states.delete, key) for key in dict.fromkeys(keys)))
        return next((each.code for each in errors if each is not None), ErrorCode.NONE)

    def forget_deleted_topics(self) -> None:
        for group in self._store:
            if isinstance(group, ShareGroup):
                self._performer.perform(group, group.state_partitions.forget_deleted_topics())

    async def _change(self, group: ShareGroup, decide: Callable[[Waiter[ErrorCode]], Sequence[Any]]) -> None:
        """Raises KafkaError if the log refuses the change."""
        waiter = _Future()
        self._performer.perform(group, decide(waiter))
        error = await waiter.result
        if error:
            raise KafkaError(error)

    async def _ask(self, ask: Callable[..., None], *arguments: Any) -> Any:
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_done(found: Any) -> None:
            if not result.done():
                result.set_result(found)

        ask(*arguments, on_done)
        return await result


class _Future:
    """A waiter that a coroutine awaits."""

    def __init__(self) -> None:
        self.result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def answer(self, result: ErrorCode, /) -> None:
        if not self.result.done():
            self.result.set_result(result)


def _by_topic(keys: Iterable[SharePartitionKey]) -> dict[UUID, list[int]]:
    found: dict[UUID, list[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, []).append(key.partition)
    return found


def _validate(group_id: str, request: ShareHeartbeat) -> None:
    """Raises KafkaError for a heartbeat that no group accepts, in Kafka's order."""
    for name, text in (("MemberId", request.member_id), ("GroupId", group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOINED_EPOCH:
        if not request.topic_names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
