"""A broker's work, done now: an append, compaction, retention, expiry; a reset; and descriptions of its groups.

All of it belongs to the broker's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from kafkalite.api.request.admission import ACKS_ALL, ProduceAdmission
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.coordinator.group.group import CLASSIC, CONSUMER, SHARE, STREAMS
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN
from kafkalite.protocol.records import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.testing.records.stored_record import count_records

if TYPE_CHECKING:
    from kafkalite.cleaner.schedule import RunOutcome
    from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
    from kafkalite.coordinator.group.consumer.group_description import NamedPartitions
    from kafkalite.coordinator.group.group import Group
    from kafkalite.coordinator.group.partition_sets import PartitionSet
    from kafkalite.coordinator.group.share.share_group import ShareGroup
    from kafkalite.coordinator.group.streams.streams_group import StreamsGroup
    from kafkalite.coordinator.group.streams.tasks import TaskSet
    from kafkalite.log.partition.partition_log import AppendResult, PartitionLog
    from kafkalite.replication.hosted_replicas import Topic
    from kafkalite.replication.partition import Partition
    from kafkalite.server.broker_server import BrokerServer

_PRODUCE_VERSION = 9


def require_topic(server: BrokerServer, name: str) -> Topic:
    """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = server.replica_manager.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} not found")
    return topic


def require_partition(topic: Topic, index: int) -> Partition:
    """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has no partition {index}, it has {len(topic.partitions)}",
        )
    return partition


async def append(
    server: BrokerServer, topic: str, partition: Partition, record: NewRecord, now_ms: int
) -> AppendResult:
    """Append a record as a produce with acks=all does, and wait until it is committed. Raises KafkaError."""
    admitted = ProduceAdmission(server.replica_manager).topic(topic, ACKS_ALL, None, _PRODUCE_VERSION)
    assert admitted is not None
    result = admitted.append(partition, memoryview(build_batch([record])), now_ms, _PRODUCE_VERSION)
    assert result is not None
    await _committed(partition, result.last_offset)
    return result


async def _committed(partition: Partition, last_offset: int) -> None:
    """Wait until a record is committed. Raises KafkaError if it never will be."""
    if last_offset < partition.high_watermark:
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(error: KafkaError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    partition.when_committed(last_offset, complete)
    await done


def _logs_of(server: BrokerServer, name: str) -> list[PartitionLog]:
    topic = require_topic(server, name)
    return [server.logs.logs[name, index] for index in sorted(topic.partitions)]


def roll(server: BrokerServer, name: str) -> None:
    """Begin a new segment in every partition whose last one has records. Raises KafkaError."""
    now_ms = server.clock.wall_ms()
    for log in _logs_of(server, name):
        log.roll(now_ms)


async def compact(server: BrokerServer, name: str) -> None:
    """Compact all records of a topic, also those of active segments, except the ones that min.compaction.lag.ms
    protects, and wait for the end. Raises KafkaError, also if the topic is not compacted."""
    require_topic(server, name)
    done: asyncio.Future[list[RunOutcome]] = asyncio.get_running_loop().create_future()

    def complete(outcomes: list[RunOutcome]) -> None:
        if not done.done():
            done.set_result(outcomes)

    server.cleaner.run_now(name, None, True, complete)
    errors = [f"{one.topic}-{one.partition}: {one.error}" for one in await done if one.error is not None]
    if errors:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"cannot compact {'; '.join(errors)}")


def expire(server: BrokerServer) -> None:
    """Apply retention, expire offsets, transactional ids and producers, and abort transactions that have timed out: all
    that are due by the broker's clock. Raises StorageError."""
    now_ms = server.clock.wall_ms()
    for key, log in list(server.logs.logs.items()):
        if key not in server.logs.being_cleaned:
            _apply_retention(log, now_ms)
    server.logs.expire_producers()
    server.groups.offsets.expire()
    server.transactions.abort_timed_out()
    server.transactions.expire()


def _apply_retention(log: PartitionLog, now_ms: int) -> None:
    while True:
        reasons = log.delete_old_segments(now_ms, SEGMENTS_PER_TURN)
        if log.segment_list.waits_for_disk:
            log.flusher.flush()
        elif len(reasons) < SEGMENTS_PER_TURN:
            return


async def reset(server: BrokerServer) -> None:
    """Delete all topics, and with them groups, offsets, transactions and producers; settings that were changed while
    the broker runs are as at its start."""
    names = sorted(
        server.replica_manager.by_name, key=lambda name: name not in INTERNAL_TOPICS
    )  # groups are deleted first
    for name in names:
        await server.topic_admin.delete(name)
    for broker in list(server.metadata.broker_configs):
        await server.metadata.writes.set_broker_config(broker, {})


class MemberDescription(NamedTuple):
    """One member. `partitions` is its assignment, empty for members of other protocols than the consumers'.

    In a consumer group (KIP-848) it has also the partitions that the member is giving up, `target` is the assignment to
    come, and `epoch` the member's; both are None in a classic group. In a share group several members may have one
    partition. In a group of Kafka Streams they are the partitions that its active tasks read.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: frozenset[TopicPartition]
    epoch: int | None = None
    target: frozenset[TopicPartition] | None = None


class GroupDescription(NamedTuple):
    """One group. `state` has Kafka's name (Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; in a consumer
    group Empty, Assigning, Reconciling, Stable; in a share group Empty, Stable; in one of Kafka Streams those of a
    consumer group and NotReady), `offsets` are the committed ones.

    `kind` is classic, consumer, share or streams. In the latter three `generation` is the group epoch, `protocol` the
    assignor; `target_epoch`, the epoch of the target assignment, is None in a classic group. A share group commits no
    offsets: `Broker.share_group` shows how far it is.
    """

    group_id: str
    state: str
    generation: int
    protocol: str | None
    members: tuple[MemberDescription, ...]
    offsets: dict[TopicPartition, int]
    kind: str = CLASSIC
    target_epoch: int | None = None


def describe_groups(server: BrokerServer) -> dict[str, GroupDescription]:
    """All groups, by id."""
    return {group.group_id: _describe(group) for group in server.groups.store}


def _describe(group: Group) -> GroupDescription:
    offsets = {
        (topic, index): committed.offset
        for topic, partitions in group.offsets.by_topic.items()
        for index, committed in partitions.items()
    }
    if group.kind == CONSUMER:
        return _describe_consumer_group(cast("ConsumerGroup", group), offsets)
    if group.kind == SHARE:
        return _describe_share_group(cast("ShareGroup", group))
    if group.kind == STREAMS:
        return _describe_streams_group(cast("StreamsGroup", group), offsets)
    described = group.describe()
    is_consumers = described.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.assignment) if is_consumers else frozenset(),
        )
        for member in described.members
    )
    return GroupDescription(group.group_id, described.state, described.epoch, described.protocol_name, members, offsets)


def _describe_consumer_group(group: ConsumerGroup, offsets: dict[TopicPartition, int]) -> GroupDescription:
    from kafkalite.coordinator.group.consumer.group_description import describe

    default = group.members.config.assignors[0]
    described = describe(group.group_id, group.tables, group.environment.topics, default)
    members = tuple(
        MemberDescription(
            each.member.member_id,
            each.member.subscription.instance_id,
            each.member.subscription.client_id,
            each.member.subscription.client_host,
            _partitions(each.assignment),
            each.member.current.epoch,
            _partitions(each.target),
        )
        for each in described.members
    )
    what = described.state, described.group_epoch, described.assignor
    return GroupDescription(group.group_id, *what, members, offsets, group.kind, described.target_epoch)


def _describe_share_group(group: ShareGroup) -> GroupDescription:
    tables, name_of = group.tables, group.environment.topics.name_of

    def named(partitions: PartitionSet) -> frozenset[TopicPartition]:
        names = ((name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
        return frozenset((name, index) for name, indexes in names if name is not None for index in indexes)

    members = tuple(
        MemberDescription(
            each.member_id,
            None,
            each.subscription.client_id,
            each.subscription.client_host,
            named(each.current.partitions),
            each.current.epoch,
            named(tables.targets.get(each.member_id)),
        )
        for each in tables.members.values()
    )
    what = group.state_name, tables.group_epoch, group.describe().protocol_name
    return GroupDescription(group.group_id, *what, members, {}, group.kind, tables.target_epoch)


def _describe_streams_group(group: StreamsGroup, offsets: dict[TopicPartition, int]) -> GroupDescription:
    from kafkalite.coordinator.group.streams.endpoint_map import input_partitions

    tables = group.tables
    configured = group.topology_state.configured
    subtopologies = (configured.subtopologies if configured is not None else None) or {}
    topics = {name for each in subtopologies.values() for name in each.input_topics}
    counts = group.environment.topics.partition_counts_by_name(topics)

    def read(tasks: TaskSet) -> frozenset[TopicPartition]:
        known = {key: some for key, some in tasks.items() if key in subtopologies}
        rows = input_partitions(known, subtopologies, counts)
        return frozenset((topic, index) for topic, indexes in rows for index in indexes)

    members = tuple(
        MemberDescription(
            each.member_id,
            each.metadata.instance_id,
            each.metadata.client_id,
            each.metadata.client_host,
            read(each.current.assigned.without_epochs().active),
            each.current.epoch,
            read(tables.target_of(each.member_id).active),
        )
        for each in tables.members.values()
    )
    what = group.state_name, tables.group_epoch, group.describe().protocol_name
    return GroupDescription(group.group_id, *what, members, offsets, group.kind, tables.target_epoch)


def _partitions(assignment: Iterable[NamedPartitions]) -> frozenset[TopicPartition]:
    return frozenset((each.topic_name, index) for each in assignment for index in each.partitions)


def lag(server: BrokerServer, group_id: str, topic: str | None, isolation: str) -> int:
    """The number of records that the group will still get. Raises KafkaError(GROUP_ID_NOT_FOUND) for an unknown group
    if no topic is given."""
    group = describe_groups(server).get(group_id)
    if group is None and topic is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} not found")
    offsets = {} if group is None else group.offsets
    wanted = set(offsets)
    if group is not None:
        wanted.update(partition for member in group.members for partition in member.partitions)
    if topic is not None:
        found = server.replica_manager.by_name.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} not found")
        wanted = {(topic, index) for index in found.partitions}
    count = 0
    for key in wanted:
        partition = server.replica_manager.partition(*key)
        if partition is not None:
            count += count_records(partition, offsets.get(key, 0), isolation)
    return count
