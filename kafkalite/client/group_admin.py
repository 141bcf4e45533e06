"""Consumer groups as an administrator sees and changes them: requests to their coordinators.

A reset sets a group's offsets to the start or end of each log, to a time, to an offset, or shifts them. First all new
offsets are read, then all are committed: if a partition does not answer, the reset fails before anything is changed.

As rows for people: members are described for many groups in one request, offsets for one. A lag in offsets is that of
Kafka's tool, the end less the committed offset, negative if the group's offset is beyond the end; a lag in records is
the number that the group would get. The lag of a group is the sum over the existing partitions, unknown if one is.
Source: org.apache.kafka.clients.admin.KafkaAdminClient (listConsumerGroups, describeConsumerGroups, ...),
org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (resetOffsets). The versions are those that
brokers have from 2.6 to 4.x.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.broker_reports import KnowsBrokers, record_counts
from kafkalite.client.cluster_client import GROUP_KEY, ClusterClient, Retries
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import COORDINATOR_MOVES, ConfigError, ErrorCode, Unanswered
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafkalite.protocol.records import assigned_partitions

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

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


def reset(admin: GroupAdmin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit them for a group without members. Raises NotReset, Unanswered."""
    if members := _member_count(admin, group_id):
        raise NotReset(
            f"{group_id} has members ({members}), which would continue at their own positions; stop them first"
        )
    if refusals := admin.commit(group_id, offsets):
        raise NotReset("; ".join(refusals))


def _member_count(admin: GroupAdmin, group_id: str) -> int:
    try:
        return len(admin.describe(group_id).members)
    except ConfigError:  # it begins with these offsets
        return 0


CONSUMERS = "consumer"
CLASSIC = "classic"
_NO_OFFSET = -1
_LIST_VERSION = 5  # with types (KIP-848); the one before has states
_DESCRIBE_VERSION = 4
_FETCH_VERSION = 6
_COMMIT_VERSION = 7
_DELETE_VERSION = 1
_DESCRIBED_AT_ONCE = 100
_GONE = "Dead"


class ListedGroup(NamedTuple):
    """A group in the list of its coordinator, a broker id. `group_type` is classic, consumer or another protocol of
    the coordinator, None if the broker does not say; `protocol_type` what a classic group is for, such as consumer or
    connect, None for one that has only offsets."""

    group_id: str
    state: str
    group_type: str | None
    protocol_type: str | None
    coordinator: int


class Member(NamedTuple):
    """A member of a group of consumers, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]


class Group(NamedTuple):
    """A group as its coordinator describes it: a classic one, others are not in DescribeGroups."""

    group_id: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]


def lag_of(offset: int | None, end: int | None) -> int | None:
    """The lag of a partition in offsets, as Kafka's tool has it: negative if the committed offset is beyond the end,
    and counted from the committed offset even if the log starts behind it. None if one of the two is unknown."""
    return None if offset is None or end is None else end - offset


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
        """The description of a group. Raises ConfigError for a group that does not exist."""
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
        """All offsets that the group has committed, from its `coordinator` if that is given, and then without a retry.
        Raises Unanswered, also if one partition has an error."""
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

    def _ask(
        self, group_id: str, request: Any, version: int, coded: Callable[[Any], Any] = lambda answer: answer
    ) -> tuple[int, Any]:
        """(coordinator, the part of its response that `coded` finds, which has an `error_code`)."""
        coordinator = NO_LEADER

        def ask() -> Any:
            nonlocal coordinator
            error_code, coordinator = self._cluster.find_coordinator(group_id, GROUP_KEY)
            if error_code:
                return _Refusal(error_code)
            client: BlockingClient = self._cluster.client(coordinator)
            return coded(client.ask(request, version))

        answer = self._retries.ask_coordinator(ask)
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
    what = described.protocol_type, described.protocol_data
    return Group(described.group_id, coordinator, described.group_state, *what, tuple(members))


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


_GROUPS_MAX = 5_000  # of which members and offsets are read
_ASK_S = 10.0

Offsets = dict[TopicPartition, int]
Row = dict[str, Any]


def group_rows(cluster: ClusterClient, pool: KnowsBrokers) -> list[Row]:
    """A row for each group that the user may describe."""
    admin = GroupAdmin(cluster, _ASK_S)
    listed = admin.list_groups()
    described = admin.describe_many(listed[:_GROUPS_MAX])
    offsets = {one.group_id: _offsets(admin, one) for one in listed[:_GROUPS_MAX]}
    keys = {key for each in offsets.values() for key in each}
    ends = LogOffsets(cluster, _ASK_S).known_ends(key for key in keys if key in cluster.places).offsets
    counts = record_counts(cluster, pool, [(key, offset) for each in offsets.values() for key, offset in each.items()])
    return [
        _row(one, described.get(one.group_id), offsets.get(one.group_id, {}), ends, counts, cluster.places)
        for one in listed
    ]


def _offsets(admin: GroupAdmin, group: ListedGroup) -> Offsets:
    try:
        return admin.offsets(group.group_id, group.coordinator)
    except Unanswered:  # it may be listed but not described, or it moves
        return {}


def _row(
    one: ListedGroup,
    group: Group | None,
    offsets: Offsets,
    ends: Mapping[TopicPartition, int],
    counts: Mapping[tuple[TopicPartition, int], int],
    there: Container[TopicPartition],
) -> Row:
    lags = [lag_of(offset, ends.get(key)) for key, offset in offsets.items() if key in there]
    exact = [counts.get((key, offset)) for key, offset in offsets.items() if key in there]
    topics = {key[0] for key in offsets}
    if group is not None:
        topics |= {key[0] for member in group.members for key in member.partitions}
    return {
        "group_id": one.group_id,
        "state": one.state,
        "group_type": one.group_type,
        "protocol_type": one.protocol_type,
        "coordinator": one.coordinator,
        "members": None if group is None else len(group.members),
        "topics": sorted(topics),
        "lag": sum_known(lags) if lags else None,
        "lag_records": sum_known(exact) if exact else None,
        "beyond_end": sum(lag is not None and lag < 0 for lag in lags),
    }


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def group_detail(cluster: ClusterClient, pool: KnowsBrokers, group_id: str) -> Row:
    """A group with its members and offsets. Raises ConfigError for a group that does not exist, Unanswered."""
    admin = GroupAdmin(cluster, _ASK_S)
    group = admin.describe(group_id)
    offsets = admin.offsets(group_id)
    owners: dict[TopicPartition, Member] = {key: member for member in group.members for key in member.partitions}
    keys = sorted({*offsets, *owners})
    of_logs = LogOffsets(cluster, _ASK_S)
    ends, starts = of_logs.known_ends(keys).offsets, of_logs.known_starts(keys).offsets
    stable = of_logs.known_ends(keys, committed=True).offsets
    counts = record_counts(cluster, pool, [(key, offset) for key, offset in offsets.items()])
    rows: list[Row] = []
    for key in keys:
        offset, end = offsets.get(key), ends.get(key)
        owner = owners.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "member_id": None if owner is None else owner.member_id,
                "committed_offset": offset,
                "start_offset": starts.get(key),
                "end_offset": end,
                "last_stable_offset": stable.get(key),
                "lag": lag_of(offset, end),
                "lag_records": None if offset is None else counts.get((key, offset)),
                "metadata": None,
            }
        )
    committed = [
        row
        for row in rows
        if row["committed_offset"] is not None and (row["topic"], row["partition"]) in cluster.places
    ]
    return {
        "group_id": group_id,
        "state": group.state,
        "group_type": CLASSIC,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [_member(member) for member in group.members],
        "lag": sum_known(row["lag"] for row in committed) if committed else None,
        "lag_records": sum_known(row["lag_records"] for row in committed) if committed else None,
        "partitions": rows,
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(member.partitions)],
    }
