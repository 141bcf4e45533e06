"""Share groups (KIP-932) as an administrator sees and changes them: start offsets and lags, records in flight.

Where a group begins to read each partition, and how many records lie before its end, is asked of its coordinator, as
Kafka's own tools do. Who holds which records is known to the leaders of the partitions alone, which report it if they
are kafkalite's.
Source: org.apache.kafka.clients.admin.internals.{ListShareGroupOffsetsHandler, AlterShareGroupOffsetsHandler,
DeleteShareGroupOffsetsHandler} (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.broker_reports import KnowsBrokers, reports
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import SHARE
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.share_groups import (
    AlterShareGroupOffsetsPartition,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsTopic,
    DescribedShareGroupOffsets,
    DescribeShareGroupOffsetsGroup,
    DescribeShareGroupOffsetsRequest,
)

_DESCRIBE_VERSION = 1  # with the lag (KIP-1226)
_VERSION = 0
_UNKNOWN = -1


class SharePosition(NamedTuple):
    """How far a group has come in a partition. `start_offset` is None before its first fetch; `lag` is the number of
    offsets up to the end that are not done, None if the broker does not say."""

    start_offset: int | None
    lag: int | None


class ShareGroupAdmin:
    """The requests about one cluster's share groups. Raises Unanswered for a refusal, with its reason."""

    def __init__(self, admin: GroupAdmin) -> None:
        self._admin = admin

    def positions(self, group_id: str) -> dict[TopicPartition, SharePosition]:
        """The positions of the group in all partitions that it has begun."""
        _, described = self._admin.ask_at_coordinator(group_id, lambda client: _described_one(client, group_id))
        if described.error_code:
            why = described.error_message or name_of_error(described.error_code)
            raise Unanswered(f"the offsets of {group_id} cannot be read: {why}")
        return _positions(described)

    def start_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The start offsets of the group, without partitions that it has not read yet."""
        positions = self.positions(group_id)
        return {key: each.start_offset for key, each in positions.items() if each.start_offset is not None}

    def alter(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[str]:
        """Has a group without members begin at these offsets; nothing stays acquired, and no delivery is counted.
        Returns a sentence for each partition that stays as it was."""
        topics: dict[str, AlterShareGroupOffsetsTopic] = {}
        for (topic, index), offset in sorted(offsets.items()):
            one = AlterShareGroupOffsetsPartition(partition_index=index, start_offset=offset)
            topics.setdefault(topic, AlterShareGroupOffsetsTopic(topic_name=topic)).partitions.append(one)
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        answer = self._changed(group_id, request)
        return [
            f"{topic.topic_name}-{one.partition_index} keeps its offset: {_reason(one)}"
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        ]

    def delete(self, group_id: str, topics: Collection[str]) -> list[str]:
        """Forgets how far a group without members has come in whole topics. Returns a sentence for each topic of which
        it is still known."""
        rows = [DeleteShareGroupOffsetsTopic(topic_name=each) for each in sorted(topics)]
        answer = self._changed(group_id, DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows))
        return [f"{one.topic_name} keeps its offsets: {_reason(one)}" for one in answer.responses if one.error_code]

    def _changed(self, group_id: str, request: Any) -> Any:
        _, answer = self._admin.ask_at_coordinator(group_id, lambda client: client.ask(request, _VERSION))
        if answer.error_code:
            raise Unanswered(f"group {group_id} keeps its offsets: {_reason(answer)}")
        return answer


def share_admin_of(admin: GroupAdmin, group_id: str) -> ShareGroupAdmin | None:
    """For a share group; None for one of another type, and for one that does not exist."""
    try:
        group = admin.describe(group_id)
    except ConfigError:
        return None
    return ShareGroupAdmin(admin) if group.group_type == SHARE else None


def positions_of(client: BlockingClient, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, SharePosition]]:
    """The positions of groups of one coordinator; without groups that it does not describe now."""
    return {each.group_id: _positions(each) for each in _described(client, group_ids) if not each.error_code}


def _described_one(client: BlockingClient, group_id: str) -> DescribedShareGroupOffsets:
    """Raises Unanswered."""
    for one in _described(client, [group_id]):
        return one
    raise Unanswered(f"{client.address} has no share groups")


def _described(client: BlockingClient, group_ids: Collection[str]) -> list[DescribedShareGroupOffsets]:
    if not group_ids or not client.serves(DescribeShareGroupOffsetsRequest):
        return []
    groups = [DescribeShareGroupOffsetsGroup(group_id=each, topics=None) for each in group_ids]
    version = client.newest(DescribeShareGroupOffsetsRequest, _DESCRIBE_VERSION)
    answer = client.ask(DescribeShareGroupOffsetsRequest(groups=groups), version)
    found: list[DescribedShareGroupOffsets] = answer.groups
    return found


def _positions(described: DescribedShareGroupOffsets) -> dict[TopicPartition, SharePosition]:
    return {
        (topic.topic_name, one.partition_index): SharePosition(
            None if one.start_offset == _UNKNOWN else one.start_offset, None if one.lag == _UNKNOWN else one.lag
        )
        for topic in described.topics
        for one in topic.partitions
        if not one.error_code
    }


def _reason(row: Any) -> str:
    name: str = name_of_error(row.error_code)
    return f"{name}: {row.error_message}" if row.error_message else name


class InFlight(NamedTuple):
    """The records in flight of one group, by partition, as their leaders report them. `left_out` is the number of runs
    beyond the limit of a report."""

    partitions: dict[TopicPartition, dict[str, Any]]
    left_out: int


def in_flight(cluster: ClusterClient, pool: KnowsBrokers, group_id: str) -> InFlight | None:
    """None if the brokers do not report it. Partitions that no member reads now are left out."""
    answers = reports(cluster, pool, "share_group", group_id=group_id)
    if not answers:
        return None
    partitions = {(row["topic"], row["partition"]): row for answer in answers.values() for row in answer["partitions"]}
    return InFlight(partitions, sum(answer["left_out"] for answer in answers.values()))
