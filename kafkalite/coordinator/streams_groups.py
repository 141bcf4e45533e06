"""The requests of groups of Kafka Streams (KIP-1071): heartbeats and descriptions.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (streamsGroupHeartbeat, streamsGroupDescribe),
GroupMetadataManager (getOrCreateStreamsGroup; 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.group import CLASSIC
from kafkalite.coordinator.group.streams.streams_group import StreamsGroup
from kafkalite.coordinator.group.streams.streams_heartbeat import (
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    refused,
    validate,
)
from kafkalite.coordinator.group.streams.streams_member import JOINED_EPOCH, StreamsMember
from kafkalite.coordinator.runtime.effects import Append, EffectPerformer, Waiter

if TYPE_CHECKING:
    from kafkalite.coordinator.group.group import Group
    from kafkalite.coordinator.group.streams.configured_topology import ConfiguredTopology
    from kafkalite.coordinator.group.streams.tasks import Tasks
    from kafkalite.coordinator.group.streams.topology import Topology
    from kafkalite.coordinator.group_store import GroupStore

logger = logging.getLogger(__name__)


class StreamsGroupDescription(NamedTuple):
    """One group. `configured` is its topology with decided numbers of partitions, once all its topics are there."""

    group_id: str
    state: str
    group_epoch: int
    target_epoch: int
    topology: Topology | None
    configured: ConfiguredTopology | None
    members: Mapping[str, StreamsMember]
    targets: Mapping[str, Tasks]


class StreamsGroups:
    """The groups of Kafka Streams among those in `store`."""

    def __init__(self, store: GroupStore, performer: EffectPerformer[Group]) -> None:
        self._store = store
        self._performer = performer

    def keep_alive(
        self, group_id: str, member_id: str, member_epoch: int, endpoint_epoch: int, client: tuple[str, str]
    ) -> int | None:
        """A heartbeat that says nothing: the interval of heartbeats, in ms, if there is nothing to answer; None: it has
        to be decided by `heartbeat`. `client` is its id and its host."""
        group = self._store.by_id.get(group_id)
        if not isinstance(group, StreamsGroup):
            return None
        return group.keep_alive(member_id, member_epoch, endpoint_epoch, client, self._performer.clock)

    def heartbeat(self, group_id: str, request: StreamsHeartbeat, waiter: Waiter[StreamsHeartbeatResult]) -> None:
        """StreamsGroupHeartbeat: `waiter` is answered when the change is in the log."""
        store, performer = self._store, self._performer
        try:
            validate(group_id, request)
            known, error = store.find(group_id)
            if error:
                waiter.answer(StreamsHeartbeatResult(error))
                return
            group = self._group_for(group_id, known, request)
        except KafkaError as error:
            waiter.answer(refused(error))
            return
        effects = group.streams_heartbeat(request, waiter, performer.now())
        if group is not known and any(isinstance(effect, Append) for effect in effects):  # else it is refused
            if known is None:
                store.by_id[group_id] = group
            else:
                logger.info("group %s becomes one of Kafka Streams", group_id)
                store.replace(known, group)
        performer.perform(group, effects)

    def _group_for(self, group_id: str, known: Group | None, request: StreamsHeartbeat) -> StreamsGroup:
        """The group of a heartbeat, which takes the place of an empty classic one. Raises
        KafkaError(GROUP_ID_NOT_FOUND)."""
        if isinstance(known, StreamsGroup):
            return known
        is_join = request.member_epoch == JOINED_EPOCH
        if known is None:
            if is_join:
                return self._store.new_streams_group(group_id)
            name = "Group" if request.is_leave else "Streams group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} {group_id} not found.")
        if not is_join or known.kind != CLASSIC or known.prepare_deletion():
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        group = self._store.new_streams_group(group_id)
        group.changes.preceding_records = known.tombstones()
        return group

    def describe(self, group_id: str) -> StreamsGroupDescription:
        """StreamsGroupDescribe: the group as it is stored. Raises KafkaError."""
        with self._store.find_stored(group_id) as group:
            if not isinstance(group, StreamsGroup):
                fault = "not found" if group is None else "is not a streams group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {fault}.")
            tables = group.tables
            return StreamsGroupDescription(
                group_id,
                group.state_name,
                tables.group_epoch,
                tables.target_epoch,
                tables.topology,
                group.topology_state.configured,
                dict(tables.members),
                dict(tables.targets),
            )
