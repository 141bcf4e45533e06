"""Consumer groups as their coordinator has them, for a test to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.records.consumer_protocol import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from kafkalite.testing.records.stored_record import count_records

if TYPE_CHECKING:
    from kafkalite.coordinator.group.group import Group
    from kafkalite.server.broker_server import BrokerServer


class MemberDescription(NamedTuple):
    """One member. `partitions` is its assignment, empty for members of other protocols than the consumers'."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: frozenset[TopicPartition]


class GroupDescription(NamedTuple):
    """One group. `state` has Kafka's name (Empty, PreparingRebalance, CompletingRebalance, Stable, Dead), `offsets` are
    the committed ones."""

    group_id: str
    state: str
    generation: int
    protocol: str | None
    members: tuple[MemberDescription, ...]
    offsets: dict[TopicPartition, int]


def describe_groups(server: BrokerServer) -> dict[str, GroupDescription]:
    """All groups, by id."""
    return {group.group_id: _describe(group) for group in server.groups.store}


def _describe(group: Group) -> GroupDescription:
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
    offsets = {
        (topic, index): committed.offset
        for topic, partitions in group.offsets.by_topic.items()
        for index, committed in partitions.items()
    }
    return GroupDescription(group.group_id, described.state, described.epoch, described.protocol_name, members, offsets)


def lag(server: BrokerServer, group_id: str, topic: str | None, isolation: str) -> int:
    """The records that the group has still to get. Raises KafkaError(GROUP_ID_NOT_FOUND) for an unknown group of which
    no topic is given."""
    group = describe_groups(server).get(group_id)
    if group is None and topic is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    offsets = {} if group is None else group.offsets
    wanted = set(offsets)
    if group is not None:
        wanted.update(partition for member in group.members for partition in member.partitions)
    if topic is not None:
        found = server.replica_manager.by_name.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        wanted = {(topic, index) for index in found.partitions}
    count = 0
    for key in wanted:
        partition = server.replica_manager.partition(*key)
        if partition is not None:
            count += count_records(partition, offsets.get(key, 0), isolation)
    return count
