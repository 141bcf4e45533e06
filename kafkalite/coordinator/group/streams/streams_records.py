"""The records of groups of Kafka Streams: the steps of `streams_tables.py` as keys and values, and back.

Source: org.apache.kafka.coordinator.group.streams.StreamsCoordinatorRecordHelpers, the StreamsGroup*Key/Value.json
(4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkalite.coordinator.group.streams.streams_member import (
    CurrentTasks,
    Endpoint,
    StreamsMemberState,
    StreamsMetadata,
)
from kafkalite.coordinator.group.streams.streams_tables import (
    GroupMetadata,
    SetCurrent,
    SetMember,
    SetMetadata,
    SetTarget,
    SetTargetEpoch,
    SetTopology,
    Step,
)
from kafkalite.coordinator.group.streams.tasks import (
    AssignedTasks,
    TaskEpochs,
    Tasks,
    epochs_of_rows,
    task_rows,
    task_set,
)
from kafkalite.coordinator.group.streams.topology import read_topology, topology_value
from kafkalite.coordinator.runtime.effects import Records
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of, versioned
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.records import AssignmentEpochValue, GroupIdKey, MemberKey
from kafkalite.protocol.streams_records import (
    AssignedTaskIds,
    StreamsCurrentAssignmentValue,
    StreamsEndpoint,
    StreamsGroupMetadataValue,
    StreamsKeyValue,
    StreamsMemberMetadataValue,
    StreamsTargetAssignmentValue,
    StreamsTaskIds,
    StreamsTopologyValue,
)

METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
KINDS: Final = frozenset({METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, TOPOLOGY})
"""The versions of the keys of these records."""
_OF_MEMBERS = (MEMBER, TARGET, CURRENT)
_VALUE_VERSION = 0


def records_of(group_id: str, steps: Iterable[Step]) -> Records:
    """A record for each step."""
    return [_record(group_id, step) for step in steps]


def _record(group_id: str, step: Step) -> tuple[bytes, bytes | None]:
    match step:
        case SetMetadata(group):
            return _group_key(METADATA, group_id), versioned(_metadata_value(group), _VALUE_VERSION)
        case SetMember(member_id, metadata):
            return _member_key(MEMBER, group_id, member_id), _bytes(metadata and _member_value(metadata))
        case SetTargetEpoch(epoch, timestamp_ms):
            value = AssignmentEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
            return _group_key(TARGET_EPOCH, group_id), versioned(value, _VALUE_VERSION)
        case SetTarget(member_id, target):
            return _member_key(TARGET, group_id, member_id), _bytes(target and _target_value(target))
        case SetCurrent(member_id, current):
            return _member_key(CURRENT, group_id, member_id), _bytes(current and _current_value(current))
        case SetTopology(topology):
            return _group_key(TOPOLOGY, group_id), _bytes(topology and topology_value(topology))


def tombstones_of_group(group_id: str, member_ids: Iterable[str]) -> Records:
    """Tombstones of all records of a group, in Kafka's order."""
    members = list(member_ids)
    return [
        *((_member_key(CURRENT, group_id, each), None) for each in members),
        *((_member_key(TARGET, group_id, each), None) for each in members),
        (_group_key(TARGET_EPOCH, group_id), None),
        *((_member_key(MEMBER, group_id, each), None) for each in members),
        (_group_key(METADATA, group_id), None),
        (_group_key(TOPOLOGY, group_id), None),
    ]


def step_of(key: bytes, value: bytes) -> Step:
    """The step that a record of one of `KINDS` stands for. Raises Malformed."""
    kind = version_of(key)
    known_version_of(value, _VALUE_VERSION)
    if kind == METADATA:
        return SetMetadata(_metadata(read_versioned(StreamsGroupMetadataValue, _VALUE_VERSION, value)))
    if kind == TARGET_EPOCH:
        target_epoch = read_versioned(AssignmentEpochValue, _VALUE_VERSION, value)
        return SetTargetEpoch(target_epoch.assignment_epoch, target_epoch.assignment_timestamp)
    if kind == TOPOLOGY:
        return SetTopology(read_topology(read_versioned(StreamsTopologyValue, _VALUE_VERSION, value)))
    member_id = read_versioned(MemberKey, kind, key).member_id
    if kind == MEMBER:
        return SetMember(member_id, _member(read_versioned(StreamsMemberMetadataValue, _VALUE_VERSION, value)))
    if kind == TARGET:
        return SetTarget(member_id, _target(read_versioned(StreamsTargetAssignmentValue, _VALUE_VERSION, value)))
    return SetCurrent(member_id, _current(read_versioned(StreamsCurrentAssignmentValue, _VALUE_VERSION, value)))


def group_id_of(key: bytes) -> str:
    """The group of a record of one of `KINDS`. Raises Malformed."""
    kind = version_of(key)
    if kind in _OF_MEMBERS:
        return read_versioned(MemberKey, kind, key).group_id
    return read_versioned(GroupIdKey, kind, key).group_id


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return versioned(MemberKey(group_id=group_id, member_id=member_id), kind)


def _group_key(kind: int, group_id: str) -> bytes:
    return versioned(GroupIdKey(group_id=group_id), kind)


def _bytes(value: Message | None) -> bytes | None:
    return None if value is None else versioned(value, _VALUE_VERSION)


# --- values


def _metadata_value(group: GroupMetadata) -> StreamsGroupMetadataValue:
    return StreamsGroupMetadataValue(
        epoch=group.epoch,
        metadata_hash=group.metadata_hash,
        validated_topology_epoch=group.validated_epoch,
        last_assignment_configs=_key_values(group.assignment_configs),
    )


def _metadata(value: StreamsGroupMetadataValue) -> GroupMetadata:
    configs = _pairs(value.last_assignment_configs)
    return GroupMetadata(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)


def _member_value(metadata: StreamsMetadata) -> StreamsMemberMetadataValue:
    endpoint = metadata.user_endpoint
    return StreamsMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_key_values(metadata.client_tags),
    )


def _member(value: StreamsMemberMetadataValue) -> StreamsMetadata:
    endpoint = value.user_endpoint
    return StreamsMetadata(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        _pairs(value.client_tags),
    )


def _target_value(target: Tasks) -> StreamsTargetAssignmentValue:
    return StreamsTargetAssignmentValue(
        active_tasks=_rows(target.active), standby_tasks=_rows(target.standby), warmup_tasks=_rows(target.warmup)
    )


def _target(value: StreamsTargetAssignmentValue) -> Tasks:
    rows = value.active_tasks, value.standby_tasks, value.warmup_tasks
    return Tasks(*(task_set((each.subtopology_id, each.partitions) for each in some) for some in rows))


def _current_value(current: CurrentTasks) -> StreamsCurrentAssignmentValue:
    assigned, pending = current.assigned, current.pending_revocation
    return StreamsCurrentAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        active_tasks=_rows_with_epochs(assigned.active),
        standby_tasks=_rows_without_epochs(assigned.standby),
        warmup_tasks=_rows_without_epochs(assigned.warmup),
        active_tasks_pending_revocation=_rows_with_epochs(pending.active),
        standby_tasks_pending_revocation=_rows_without_epochs(pending.standby),
        warmup_tasks_pending_revocation=_rows_without_epochs(pending.warmup),
    )


def _current(value: StreamsCurrentAssignmentValue) -> CurrentTasks:
    epoch = value.member_epoch
    return CurrentTasks(
        epoch,
        value.previous_member_epoch,
        StreamsMemberState.of(value.state),
        _assigned(value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch),
        _assigned(
            value.active_tasks_pending_revocation,
            value.standby_tasks_pending_revocation,
            value.warmup_tasks_pending_revocation,
            epoch,
        ),
    )


def _assigned(
    active: Sequence[AssignedTaskIds],
    standby: Sequence[AssignedTaskIds],
    warmup: Sequence[AssignedTaskIds],
    epoch: int,
) -> AssignedTasks:
    """Kafka before 4.3 wrote no epochs of tasks, where the member's epoch stands for them."""
    epochs = epochs_of_rows(((each.subtopology_id, each.partitions, each.assignment_epochs) for each in active), epoch)
    copies = (task_set((each.subtopology_id, each.partitions) for each in some) for some in (standby, warmup))
    return AssignedTasks(epochs, *copies)


def _rows(tasks: Mapping[str, Iterable[int]]) -> list[StreamsTaskIds]:
    return [StreamsTaskIds(subtopology_id=key, partitions=partitions) for key, partitions in task_rows(tasks)]


def _rows_without_epochs(tasks: Mapping[str, Iterable[int]]) -> list[AssignedTaskIds]:
    return [AssignedTaskIds(subtopology_id=key, partitions=partitions) for key, partitions in task_rows(tasks)]


def _rows_with_epochs(tasks: TaskEpochs) -> list[AssignedTaskIds]:
    return [
        AssignedTaskIds(
            subtopology_id=key, partitions=partitions, assignment_epochs=[tasks[key][each] for each in partitions]
        )
        for key, partitions in task_rows(tasks)
    ]


def _key_values(pairs: Iterable[tuple[str, str]]) -> list[StreamsKeyValue]:
    return [StreamsKeyValue(key=key, value=value) for key, value in pairs]


def _pairs(rows: Iterable[StreamsKeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((row.key, row.value) for row in rows))
