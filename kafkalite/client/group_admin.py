"""Consumer groups as an administrator sees and changes them: requests to their coordinators and to leaders.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (listConsumerGroups, describeConsumerGroups, ...),
org.apache.kafka.tools.consumer.group.ConsumerGroupCommand. The versions are those that brokers have from 2.6 to 4.x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kafkalite.client.blocking_client import BlockingClient, Unanswered, name_of_error
from kafkalite.client.cluster_client import NO_LEADER, ClusterClient
from kafkalite.client.coordinators import GROUP_KEY, Coordinators
from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.records.consumer_protocol import assigned_partitions

EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets that stand for the first offset and for the one after the last."""
CONSUMERS = "consumer"
_NO_OFFSET = -1
_LIST_VERSION = 4  # the first with states
_DESCRIBE_VERSION = 4
_FETCH_VERSION = 6
_COMMIT_VERSION = 7
_DELETE_VERSION = 1
_LIST_OFFSETS_VERSION = 4
_MAX_TIMESTAMP, _MAX_TIMESTAMP_VERSION = -3, 7  # KIP-734
_DESCRIBED_AT_ONCE = 100
_GONE = "Dead"


class ListedGroup(NamedTuple):
    """A group in the list of its coordinator, a broker id."""

    group_id: str
    state: str
    protocol_type: str
    coordinator: int


class Member(NamedTuple):
    """A member of a group of consumers, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    group_id: str
    coordinator: int
    state: str
    protocol: str
    members: tuple[Member, ...]


class GroupAdmin:
    """The requests. Raises Unanswered for a refusal, with its reason; ConfigError for what does not exist."""

    def __init__(self, cluster: ClusterClient, timeout_s: float) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, timeout_s)

    def list_groups(self) -> list[ListedGroup]:
        """The groups of all coordinators."""
        found = []
        for broker_id in sorted(self._cluster.brokers):
            ask = partial(self._cluster.client(broker_id).ask, ListGroupsRequest(), _LIST_VERSION)
            answer = self._coordinators.retry(ask)
            if answer.error_code:
                raise Unanswered(f"broker {broker_id} does not list its groups: {name_of_error(answer.error_code)}")
            found += [ListedGroup(one.group_id, one.group_state, one.protocol_type, broker_id) for one in answer.groups]
        return sorted(found)

    def describe(self, group_id: str) -> Group:
        """Raises ConfigError for a group that is not there."""
        request = DescribeGroupsRequest(groups=[group_id])
        coordinator, one = self._ask(group_id, request, _DESCRIBE_VERSION, lambda answer: answer.groups[0])
        described: DescribedGroup = one
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == _GONE:
            raise ConfigError(f"there is no group {group_id} in {self._cluster.address}")
        if described.error_code:
            raise Unanswered(f"group {group_id} cannot be described: {name_of_error(described.error_code)}")
        return _group(described, coordinator)

    def describe_many(self, listed: Iterable[ListedGroup]) -> dict[str, Group]:
        """Groups as their coordinators list them, many in one request; without those that cannot be described now."""
        by_coordinator: dict[int, list[str]] = {}
        for one in listed:
            by_coordinator.setdefault(one.coordinator, []).append(one.group_id)
        found = {}
        for coordinator, names in by_coordinator.items():
            for at in range(0, len(names), _DESCRIBED_AT_ONCE):
                request = DescribeGroupsRequest(groups=names[at : at + _DESCRIBED_AT_ONCE])
                for each in self._cluster.client(coordinator).ask(request, _DESCRIBE_VERSION).groups:
                    if not each.error_code:
                        found[each.group_id] = _group(each, coordinator)
        return found

    def offsets(self, group_id: str, coordinator: int | None = None) -> dict[TopicPartition, int]:
        """All that the group has committed, asked of its `coordinator` if that is known."""
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        if coordinator is None:
            _, answer = self._ask(group_id, request, _FETCH_VERSION)
        else:
            answer = self._cluster.client(coordinator).ask(request, _FETCH_VERSION)
        if answer.error_code:
            raise Unanswered(f"the offsets of {group_id} cannot be read: {name_of_error(answer.error_code)}")
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if not one.error_code and one.committed_offset != _NO_OFFSET:
                    found[topic.name, one.partition_index] = one.committed_offset
        return found

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[str]:
        """Sets offsets of a group without members. Returns a sentence for each one that stays as it was."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, index), offset in sorted(offsets.items()):
            one = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(one)
        request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
        _, answer = self._ask(group_id, request, _COMMIT_VERSION, _first_of_commit)
        return [
            f"{topic.name}-{one.partition_index} keeps its offset: {name_of_error(one.error_code)}"
            for topic in answer.topics
            for one in topic.partitions
            if one.error_code
        ]

    def delete(self, group_id: str) -> None:
        """Deletes a group without members, with its offsets."""
        request = DeleteGroupsRequest(groups_names=[group_id])
        _, result = self._ask(group_id, request, _DELETE_VERSION, lambda answer: answer.results[0])
        if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise ConfigError(f"there is no group {group_id} in {self._cluster.address}")
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise Unanswered(f"group {group_id} is not deleted: it has members; stop them first")
        if result.error_code:
            raise Unanswered(f"group {group_id} is not deleted: {name_of_error(result.error_code)}")

    def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset of the first record at or after this timestamp, or EARLIEST, or LATEST (of what is `committed`:
        the last stable offset); without the partitions that have none, are not there, or are led by nobody."""
        return {key: offset for key, (offset, _) in self._list_offsets(partitions, timestamp, committed).items()}

    def newest_timestamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The largest timestamp of each, in ms; without those that are empty. Raises Unanswered for a broker older than
        Apache Kafka 3.0, which does not know."""
        found = self._list_offsets(partitions, _MAX_TIMESTAMP, committed=False, version=_MAX_TIMESTAMP_VERSION)
        return {key: timestamp for key, (_, timestamp) in found.items() if timestamp >= 0}

    def _list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        committed: bool,
        version: int = _LIST_OFFSETS_VERSION,
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp."""
        by_leader: dict[int, dict[str, ListOffsetsTopic]] = {}
        for topic, index in sorted(partitions):
            place = self._cluster.places.get((topic, index))
            if place is not None and place.leader != NO_LEADER:
                topics = by_leader.setdefault(place.leader, {})
                one = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(one)
        found = {}
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(isolation_level=int(committed), topics=list(topics.values()))
            answer = self._cluster.client(leader).ask(request, version)
            for told in answer.topics:
                for each in told.partitions:
                    if not each.error_code and each.offset != _NO_OFFSET:
                        found[told.name, each.partition_index] = each.offset, each.timestamp
        return found

    def _ask(
        self, group_id: str, request: Any, version: int, coded: Callable[[Any], Any] = lambda answer: answer
    ) -> tuple[int, Any]:
        """(coordinator, the part of its response that `coded` finds, which has an `error_code`)."""
        coordinator = NO_LEADER

        def ask() -> Any:
            nonlocal coordinator
            error_code, coordinator = self._coordinators.find(group_id, GROUP_KEY)
            if error_code:
                return _Refusal(error_code)
            client: BlockingClient = self._cluster.client(coordinator)
            return coded(client.ask(request, version))

        answer = self._coordinators.retry(ask)
        if isinstance(answer, _Refusal):
            raise Unanswered(f"group {group_id} has no coordinator now: {name_of_error(answer.error_code)}")
        return coordinator, answer


def _group(described: DescribedGroup, coordinator: int) -> Group:
    is_consumers = described.protocol_type == CONSUMERS
    members = (
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.member_assignment) if is_consumers else frozenset(),
        )
        for each in described.members
    )
    return Group(described.group_id, coordinator, described.group_state, described.protocol_data, tuple(members))


class _Refusal(NamedTuple):
    error_code: int


class _Commit(NamedTuple):
    """A response to OffsetCommit, with the code of its first partition as its own: a coordinator refuses all alike."""

    error_code: int
    topics: Any


def _first_of_commit(answer: Any) -> _Commit:
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return _Commit(codes[0] if codes else ErrorCode.NONE, answer.topics)
