"""Groups as an administrator sees and changes them: requests to their coordinators.

A reset sets a group's offsets to the start or end of each log, to a time, to an offset, or shifts them. First all new
offsets are read, then all are committed: if a partition does not answer, the reset fails before anything is changed.

A group is described by ConsumerGroupDescribe where the broker has it, and by DescribeGroups if the answer says that it
is of another type, as Kafka's own client does; then by ShareGroupDescribe. The versions are those that brokers have
from 2.6 to 4.x.
Source: org.apache.kafka.clients.admin.KafkaAdminClient (listGroups, describeConsumerGroups, ...),
org.apache.kafka.clients.admin.internals.DescribeConsumerGroupsHandler (4.3),
org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (resetOffsets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.client.acl_admin import operation_names
from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import GROUP_KEY, Retries
from kafkalite.client.group_description import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    Group,
    ListedGroup,
    of_classic,
    of_consumer,
    of_share,
    of_streams,
)
from kafkalite.common.errors import COORDINATOR_MOVES, ConfigError, ErrorCode, Refused, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.messages import group_offsets as wire
from kafkalite.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, DescribedConsumerGroup
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafkalite.protocol.messages.share_groups import DescribedShareGroup, ShareGroupDescribeRequest
from kafkalite.protocol.messages.streams_groups import DescribedStreamsGroup, StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient
    from kafkalite.client.log_offsets import LogOffsets

EARLIEST, LATEST, OFFSET, TIME, SHIFT = TARGETS = ("earliest", "latest", "offset", "time", "shift")


class Target(NamedTuple):
    """One of TARGETS; `value` is an offset, milliseconds since 1970, or a number of offsets to shift by."""

    to: str
    value: int = 0


class NotReset(Unanswered):
    """The group keeps its offsets, or those of partitions that are named; the text is for the operator."""


def new_offsets(
    offsets: LogOffsets,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, int]:
    """The new offset of each partition, within its log. If no record is as late as a time, the end, as in Kafka's
    tool. Raises Unanswered for a partition that does not answer, NotReset."""
    keys = list(partitions)
    if target.to == SHIFT and (fresh := [key for key in keys if key not in committed]):
        raise NotReset(f"the group has no offset of {fresh[0][0]}-{fresh[0][1]} to begin with")
    starts, ends = offsets.starts(keys), offsets.ends(keys)
    if target.to == EARLIEST:
        return starts
    if target.to == LATEST:
        return ends
    if target.to == TIME:
        at = offsets.at_time(keys, target.value)
        return {key: at.get(key, ends[key]) for key in keys}
    aims = {key: target.value + (committed[key] if target.to == SHIFT else 0) for key in keys}
    return {key: min(max(aims[key], starts[key]), ends[key]) for key in keys}


Commit = Callable[[str, Mapping[TopicPartition, int]], list[str]]
"""Sets offsets of a group, and returns a sentence for each one that stays as it was."""


def reset(
    admin: GroupAdmin, group_id: str, offsets: Mapping[TopicPartition, int], commit: Commit | None = None
) -> None:
    """Commit them for a group without members, by `commit` of another kind of group if that is given. Raises NotReset,
    Unanswered."""
    if members := _member_count(admin, group_id):
        raise NotReset(
            f"{group_id} has members ({members}), which would continue at their own positions; stop them first"
        )
    if refusals := (commit or admin.commit)(group_id, offsets):
        raise NotReset("; ".join(refusals))


def _member_count(admin: GroupAdmin, group_id: str) -> int:
    try:
        return len(admin.describe(group_id).members)
    except ConfigError:  # it begins with these offsets
        return 0


_NO_OFFSET = -1
_LIST_VERSION = 5  # with types (KIP-848); the one before has states
_DESCRIBE_VERSION = 6  # tells a missing group from one of another type; all have instance ids from 4 on
_DESCRIBE_CONSUMER_VERSION = 1  # with the types of members
_DESCRIBE_SHARE_VERSION = 1
_FETCH_VERSION = 6
_COMMIT_VERSION = 7
_DELETE_VERSION = 1
_DELETE_OFFSETS_VERSION = 0
_DESCRIBED_AT_ONCE = 100
_GONE = "Dead"
# Answers of ConsumerGroupDescribe; the last one for the empty name, which only a classic group may have.
_OTHER_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID)


class GroupAdmin:
    """The requests. Raises Unanswered for a refusal, with its reason; ConfigError for what does not exist."""

    def __init__(self, cluster: ClusterClient, timeout_s: float) -> None:
        self._cluster = cluster
        self._retries = Retries(timeout_s)

    def list_groups(self) -> list[ListedGroup]:
        """The groups of all coordinators."""
        found = []
        for broker_id in sorted(self._cluster.brokers):
            client = self._cluster.client(broker_id)
            version = client.newest(ListGroupsRequest, _LIST_VERSION)
            answer = self._retries.ask_coordinator(partial(client.ask, ListGroupsRequest(), version))
            if answer.error_code:
                raise Unanswered(f"broker {broker_id} does not list its groups: {name_of_error(answer.error_code)}")
            found += [
                ListedGroup(one.group_id, one.group_state, one.group_type or None, one.protocol_type or None, broker_id)
                for one in answer.groups
            ]
        return sorted(found, key=lambda one: one.group_id)

    def describe(self, group_id: str) -> Group:
        """The description of a group of any type. Raises ConfigError for a group that does
        not exist."""
        coordinator, described = self.ask_at_coordinator(group_id, partial(_describe, group_id))
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == _GONE:
            raise self._no_group(group_id)
        if described.error_code:
            raise Unanswered(f"group {group_id} cannot be described: {name_of_error(described.error_code)}")
        return self._group_of(described, coordinator)._replace(
            operations=operation_names(described.authorized_operations)
        )

    def _group_of(self, described: Any, coordinator: int) -> Group:
        if isinstance(described, DescribedConsumerGroup):
            return of_consumer(described, coordinator)
        if isinstance(described, DescribedShareGroup):
            return of_share(described, coordinator)
        if isinstance(described, DescribedStreamsGroup):
            self._cluster.refresh()
            return of_streams(described, coordinator, self._cluster.partition_count)
        return of_classic(described, coordinator)

    def describe_many(self, listed: Iterable[ListedGroup]) -> dict[str, Group]:
        """Groups as their coordinators list them, many in one request; without those that cannot be described now."""
        by_coordinator: dict[int, list[ListedGroup]] = {}
        for one in listed:
            by_coordinator.setdefault(one.coordinator, []).append(one)
        found: dict[str, Group] = {}
        for coordinator, groups in by_coordinator.items():
            client = self._cluster.client(coordinator)
            for at in range(0, len(groups), _DESCRIBED_AT_ONCE):
                found |= _describe_some(client, coordinator, groups[at : at + _DESCRIBED_AT_ONCE])
        return found

    def offsets(self, group_id: str, coordinator: int | None = None) -> dict[TopicPartition, int]:
        """All offsets that the group has committed, from its `coordinator` if that is given, and then without a retry.
        Raises Unanswered, also if one partition has an error."""
        request = wire.OffsetFetchRequest(group_id=group_id, topics=None)
        if coordinator is None:
            _, answer = self._ask(group_id, request, _FETCH_VERSION)
        else:
            answer = self._cluster.client(coordinator).ask(request, _FETCH_VERSION)
        if answer.error_code:
            raise Unanswered(f"the offsets of {group_id} cannot be read: {name_of_error(answer.error_code)}")
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    name = f"{topic.name}-{one.partition_index}"
                    raise Unanswered(
                        f"the offset of {group_id} in {name} cannot be read: {name_of_error(one.error_code)}"
                    )
                if one.committed_offset != _NO_OFFSET:
                    found[topic.name, one.partition_index] = one.committed_offset
        return found

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[str]:
        """Sets offsets of a group without members. Returns a sentence for each one that stays as it was."""
        topics: dict[str, wire.OffsetCommitRequestTopic] = {}
        for (topic, index), offset in sorted(offsets.items()):
            one = wire.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, wire.OffsetCommitRequestTopic(name=topic)).partitions.append(one)
        request = wire.OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
        _, answer = self._ask(group_id, request, _COMMIT_VERSION, _first_of_commit)
        return [
            f"{topic.name}-{one.partition_index} keeps its offset: {name_of_error(one.error_code)}"
            for topic in answer.topics
            for one in topic.partitions
            if one.error_code
        ]

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[str]:
        """Deletes committed offsets of topics that the group does not read now. Returns a sentence for each one that
        stays. Raises ConfigError for a group that does not exist."""
        topics: dict[str, wire.OffsetDeleteRequestTopic] = {}
        for topic, index in sorted(partitions):
            one = wire.OffsetDeleteRequestPartition(partition_index=index)
            topics.setdefault(topic, wire.OffsetDeleteRequestTopic(name=topic)).partitions.append(one)
        request = wire.OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        _, answer = self._ask(group_id, request, _DELETE_OFFSETS_VERSION)
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise self._no_group(group_id)
        if answer.error_code:
            raise Unanswered(f"group {group_id} keeps its offsets: {name_of_error(answer.error_code)}")
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
            raise self._no_group(group_id)
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise Refused(f"group {group_id} is not deleted: it has members; stop them first")
        if result.error_code:
            raise Unanswered(f"group {group_id} is not deleted: {name_of_error(result.error_code)}")

    def _no_group(self, group_id: str) -> ConfigError:
        return ConfigError(f"group {group_id} not found at {self._cluster.address}")

    def _ask(
        self, group_id: str, request: Any, version: int, coded: Callable[[Any], Any] = lambda answer: answer
    ) -> tuple[int, Any]:
        """(coordinator, the part of its response that `coded` finds, which has an `error_code`)."""
        return self.ask_at_coordinator(group_id, lambda client: coded(client.ask(request, version)))

    def ask_at_coordinator(self, group_id: str, ask: Callable[[BlockingClient], Any]) -> tuple[int, Any]:
        """(coordinator, the result of `ask` at its connection, which has an `error_code`)."""
        coordinator = NO_LEADER

        def find_and_ask() -> Any:
            nonlocal coordinator
            error_code, coordinator = self._cluster.find_coordinator(group_id, GROUP_KEY)
            return _Refusal(error_code) if error_code else ask(self._cluster.client(coordinator))

        answer = self._retries.ask_coordinator(find_and_ask)
        if isinstance(answer, _Refusal):
            raise Unanswered(f"group {group_id} has no coordinator now: {name_of_error(answer.error_code)}")
        return coordinator, answer


def _describe(
    group_id: str, client: BlockingClient
) -> DescribedConsumerGroup | DescribedGroup | DescribedShareGroup | DescribedStreamsGroup:
    """One group, whatever its type."""
    for consumer_group in _consumer_groups(client, [group_id], with_operations=True):
        if consumer_group.error_code not in _OTHER_TYPE:
            return consumer_group
    classic = _classic_groups(client, [group_id], with_operations=True)[0]
    if classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND or classic.group_state == _GONE:
        for share_group in _share_groups(client, [group_id], with_operations=True):
            if share_group.error_code not in _OTHER_TYPE:
                return share_group
        for streams_group in _streams_groups(client, [group_id], with_operations=True):
            if streams_group.error_code not in _OTHER_TYPE:
                return streams_group
    return classic


def _describe_some(client: BlockingClient, coordinator: int, listed: Iterable[ListedGroup]) -> dict[str, Group]:
    """Groups of one coordinator. Only if it does not list types, one may be asked for twice."""
    found, classic, others, shares, streams = {}, [], [], [], []
    for group in listed:
        if group.group_type == CLASSIC:
            classic.append(group.group_id)
        elif group.group_type == SHARE:
            shares.append(group.group_id)
        elif group.group_type == STREAMS:
            streams.append(group.group_id)
        elif group.group_type in (None, CONSUMER):
            others.append(group.group_id)
    known = {each.group_id: each for each in _consumer_groups(client, others)}
    for group_id in others:
        consumer_group = known.get(group_id)
        if consumer_group is None or consumer_group.error_code in _OTHER_TYPE:
            classic.append(group_id)
        elif not consumer_group.error_code:
            found[group_id] = of_consumer(consumer_group, coordinator)
    found |= {
        each.group_id: of_classic(each, coordinator)
        for each in _classic_groups(client, classic)
        if not each.error_code and each.group_state != _GONE
    }
    found |= {
        each.group_id: of_share(each, coordinator) for each in _share_groups(client, shares) if not each.error_code
    }
    found |= {
        each.group_id: of_streams(each, coordinator) for each in _streams_groups(client, streams) if not each.error_code
    }
    return found


def _share_groups(
    client: BlockingClient, group_ids: list[str], *, with_operations: bool = False
) -> Sequence[DescribedShareGroup]:
    """The answers of ShareGroupDescribe; none from a broker without it."""
    if not group_ids or not client.serves(ShareGroupDescribeRequest):
        return []
    request = ShareGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=with_operations)
    groups: Sequence[DescribedShareGroup] = client.ask(request, _DESCRIBE_SHARE_VERSION).groups
    return groups


def _streams_groups(
    client: BlockingClient, group_ids: list[str], *, with_operations: bool = False
) -> Sequence[DescribedStreamsGroup]:
    """The answers of StreamsGroupDescribe; none from a broker without it."""
    if not group_ids or not client.serves(StreamsGroupDescribeRequest):
        return []
    request = StreamsGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=with_operations)
    groups: Sequence[DescribedStreamsGroup] = client.ask(request, 0).groups
    return groups


def _consumer_groups(
    client: BlockingClient, group_ids: list[str], *, with_operations: bool = False
) -> Sequence[DescribedConsumerGroup]:
    """The answers of ConsumerGroupDescribe; none from a broker without it."""
    if not group_ids or not client.serves(ConsumerGroupDescribeRequest):
        return []
    version = client.newest(ConsumerGroupDescribeRequest, _DESCRIBE_CONSUMER_VERSION)
    request = ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=with_operations)
    groups: Sequence[DescribedConsumerGroup] = client.ask(request, version).groups
    return groups


def _classic_groups(
    client: BlockingClient, group_ids: list[str], *, with_operations: bool = False
) -> Sequence[DescribedGroup]:
    """The answers of DescribeGroups."""
    if not group_ids:
        return []
    version = client.newest(DescribeGroupsRequest, _DESCRIBE_VERSION)
    request = DescribeGroupsRequest(groups=group_ids, include_authorized_operations=with_operations)
    groups: Sequence[DescribedGroup] = client.ask(request, version).groups
    return groups


class _Refusal(NamedTuple):
    error_code: int


class _Commit(NamedTuple):
    """A response to OffsetCommit. `error_code`: one for which the whole request is retried, else its first one."""

    error_code: int
    topics: Any


def _first_of_commit(answer: Any) -> _Commit:
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    again = [code for code in codes if code in COORDINATOR_MOVES]
    return _Commit((*again, *codes, ErrorCode.NONE)[0], answer.topics)
