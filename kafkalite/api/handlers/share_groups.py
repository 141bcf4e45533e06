"""ShareGroupHeartbeat, ShareGroupDescribe and the offsets of share groups (KIP-932).

Source: kafka.server.KafkaApis (handleShareGroupHeartbeat, handleShareGroupDescribe, handleDescribeShareGroupOffsets and
its kin; 4.3); KIP-1226 for the lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from uuid import UUID

from kafkalite.api.request.request_context import (
    GROUP,
    OPERATIONS_NOT_ASKED,
    TOPIC,
    PendingResponse,
    RequestContext,
    Runtime,
    refusal,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID
from kafkalite.coordinator.group.share.share_group import ShareHeartbeat, ShareHeartbeatResult
from kafkalite.coordinator.group.share.share_tables import ShareMember
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.share.share_state import ShareSummary
from kafkalite.coordinator.share_groups import ASSIGNOR, ShareGroups
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.metadata.finalized_features import SHARE_VERSION, FinalizedFeatures
from kafkalite.protocol.messages import share_groups as wire
from kafkalite.protocol.messages.consumer_groups import (
    DescribedAssignment,
    DescribedTopicPartitions,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kafkalite.replication.share.durable_state import SharePartitionKey
from kafkalite.security.acl.acl import Operation

_MEMBER_ID_LENGTH_MAX = 36
_UNKNOWN = ShareSummary(0, 0, -1, -1)
EndOffsets = Callable[[Iterable[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], int]]]
"""The end offsets of partitions, wherever they are led; those that are not known are left out."""


class ShareGroupApi(NamedTuple):
    """The APIs of share groups and of their offsets."""

    runtime: Runtime
    groups: GroupCoordinator
    features: FinalizedFeatures
    metadata: ClusterMetadata
    end_offsets: EndOffsets

    @property
    def _shares(self) -> ShareGroups:
        return self.groups.share_groups

    def _check_enabled(self) -> None:
        if not self.features.level(SHARE_VERSION):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    # --- members

    def share_group_heartbeat(
        self, request: wire.ShareGroupHeartbeatRequest, context: RequestContext
    ) -> wire.ShareGroupHeartbeatResponse | asyncio.Future[wire.ShareGroupHeartbeatResponse]:
        try:
            self._check_enabled()
            if not context.may(Operation.READ, GROUP, request.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not request.member_id or len(request.member_id) > _MEMBER_ID_LENGTH_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if request.subscribed_topic_names and not context.may_describe_topics(set(request.subscribed_topic_names)):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        except KafkaError as error:
            return wire.ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        heartbeat = ShareHeartbeat(
            request.member_id,
            request.member_epoch,
            context.client_id or "",
            f"/{context.connection.host}",
            request.rack_id,
            request.subscribed_topic_names,
        )
        pending = PendingResponse(_heartbeat_response)
        self._shares.heartbeat(request.group_id, heartbeat, pending)
        return pending.outcome(self.runtime.loop)

    def share_group_describe(
        self, request: wire.ShareGroupDescribeRequest, context: RequestContext
    ) -> wire.ShareGroupDescribeResponse:
        groups = []
        for group_id, is_allowed in context.refused_last(Operation.DESCRIBE, GROUP, request.group_ids, str):
            if not is_allowed:
                groups.append(wire.DescribedShareGroup(group_id=group_id, error_code=refusal(GROUP).code))
                continue
            try:
                self._check_enabled()
                described = self._described(group_id, context)
            except KafkaError as error:
                described = wire.DescribedShareGroup(
                    group_id=group_id, error_code=error.code, error_message=error.message or None
                )
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = context.group_operations(group_id)
            groups.append(described)
        return wire.ShareGroupDescribeResponse(groups=groups)

    def _described(self, group_id: str, context: RequestContext) -> wire.DescribedShareGroup:
        group = self._shares.describe(group_id)
        named = {name for _, rows in group.members for _, name, _ in rows}
        if not context.may_describe_topics(named):
            message = "The group has described topic(s) that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        return wire.DescribedShareGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR,
            members=[_member(member, rows) for member, rows in group.members],
            authorized_operations=OPERATIONS_NOT_ASKED,
        )

    # --- offsets

    async def describe_share_group_offsets(
        self, request: wire.DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> wire.DescribeShareGroupOffsetsResponse:
        groups = await asyncio.gather(*(self._describe_offsets(wanted, context) for wanted in request.groups))
        return wire.DescribeShareGroupOffsetsResponse(groups=groups)

    async def _describe_offsets(
        self, wanted: wire.DescribeShareGroupOffsetsGroup, context: RequestContext
    ) -> wire.DescribedShareGroupOffsets:
        answer = wire.DescribedShareGroupOffsets(group_id=wanted.group_id)
        try:
            self._check_enabled()
            if not context.may(Operation.DESCRIBE, GROUP, wanted.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            topics = self._wanted_topics(wanted)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
            return answer
        may = {name: context.may(Operation.DESCRIBE, TOPIC, name) for name, _ in topics}
        known = {name: self.metadata.topics[name].topic_id for name, _ in topics if name in self.metadata.topics}
        keys = [
            SharePartitionKey(wanted.group_id, known[name], index)
            for name, indexes in topics
            if name in known and may[name]
            for index in indexes
        ]
        summaries = await self._shares.summaries(keys)
        ends = await self._ends(summaries, {topic_id: name for name, topic_id in known.items()})
        for name, indexes in topics:
            if not may[name]:
                if wanted.topics is not None:
                    answer.topics.append(_refused_topic(name, indexes))
                continue
            topic_id = known.get(name, ZERO_UUID)
            rows = [
                _described_partition(
                    index,
                    summaries.get(SharePartitionKey(wanted.group_id, topic_id, index), _UNKNOWN),
                    ends.get((name, index)),
                )
                for index in indexes
            ]
            topic = wire.DescribedShareGroupTopic(topic_name=name, topic_id=topic_id, partitions=rows)
            answer.topics.append(topic)
        return answer

    def _wanted_topics(self, wanted: wire.DescribeShareGroupOffsetsGroup) -> list[tuple[str, Sequence[int]]]:
        """The topics and partitions of the request; all that the group has state of, if it names none."""
        if wanted.topics is not None:
            return [(topic.topic_name, topic.partitions) for topic in wanted.topics]
        names = {topic.topic_id: name for name, topic in self.metadata.topics.items()}
        initialized = self._shares.initialized(wanted.group_id)
        return [(names[each], sorted(indexes)) for each, indexes in initialized.items() if each in names]

    async def _ends(
        self, summaries: Mapping[SharePartitionKey, ShareSummary | KafkaError], names: Mapping[UUID, str]
    ) -> Mapping[tuple[str, int], int]:
        """The ends of the partitions whose lag can be computed."""
        wanted = [
            (names[key.topic_id], key.partition)
            for key, each in summaries.items()
            if isinstance(each, ShareSummary) and each.start_offset >= 0 and each.delivery_complete_count >= 0
        ]
        return await self.end_offsets(wanted) if wanted else {}

    async def alter_share_group_offsets(
        self, request: wire.AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> wire.AlterShareGroupOffsetsResponse:
        try:
            self._check_enabled()
            if not context.may(Operation.READ, GROUP, request.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            offsets: dict[UUID, dict[int, int]] = {}
            answers = [self._altered(topic, context, offsets) for topic in request.topics]
            outcomes = await self._shares.alter_offsets(request.group_id, offsets)
        except KafkaError as error:
            return wire.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
        for topic in answers:
            for row in topic.partitions:
                fault = outcomes.get(SharePartitionKey(request.group_id, topic.topic_id, row.partition_index))
                if fault is not None:
                    row.error_code, row.error_message = fault.code, fault.message
        return wire.AlterShareGroupOffsetsResponse(responses=answers)

    def _altered(
        self, topic: wire.AlterShareGroupOffsetsTopic, context: RequestContext, offsets: dict[UUID, dict[int, int]]
    ) -> wire.AlteredShareGroupTopic:
        """The rows of one topic; those without an error are added to `offsets`."""
        record = self.metadata.topics.get(topic.topic_name)
        unknown = KafkaError.in_kafkas_words(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = None
        if not context.may(Operation.READ, TOPIC, topic.topic_name):
            refusal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif record is None:
            refusal = unknown
        answer = wire.AlteredShareGroupTopic(
            topic_name=topic.topic_name, topic_id=ZERO_UUID if record is None else record.topic_id
        )
        for each in topic.partitions:
            error = refusal
            if record is not None and error is None:
                if each.partition_index in record.partitions:
                    offsets.setdefault(record.topic_id, {})[each.partition_index] = each.start_offset
                else:
                    error = unknown
            row = wire.AlteredShareGroupPartition(partition_index=each.partition_index)
            if error is not None:
                row.error_code, row.error_message = error.code, error.message
            answer.partitions.append(row)
        return answer

    async def delete_share_group_offsets(
        self, request: wire.DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> wire.DeleteShareGroupOffsetsResponse:
        try:
            self._check_enabled()
            if not context.may(Operation.DELETE, GROUP, request.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            names = [topic.topic_name for topic in request.topics]
            allowed = [name for name in names if context.may(Operation.READ, TOPIC, name)]
            outcomes = await self._shares.delete_offsets(request.group_id, allowed)
        except KafkaError as error:
            return wire.DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
        answers = []
        for name in names:
            record = self.metadata.topics.get(name)
            fault = outcomes.get(name) if name in allowed else KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            answers.append(
                wire.DeletedShareGroupTopic(
                    topic_name=name,
                    topic_id=ZERO_UUID if record is None or fault is not None else record.topic_id,
                    error_code=0 if fault is None else fault.code,
                    error_message=None if fault is None else fault.message,
                )
            )
        return wire.DeleteShareGroupOffsetsResponse(responses=answers)


def _heartbeat_response(result: ShareHeartbeatResult) -> wire.ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        rows = [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in result.assignment.items()
        ]
        assignment = HeartbeatAssignment(topic_partitions=rows)
    return wire.ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _member(member: ShareMember, rows: Sequence[tuple[UUID, str, Sequence[int]]]) -> wire.DescribedShareGroupMember:
    subscription = member.subscription
    return wire.DescribedShareGroupMember(
        member_id=member.member_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        assignment=DescribedAssignment(
            topic_partitions=[
                DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(indexes))
                for topic_id, name, indexes in rows
            ]
        ),
    )


def _refused_topic(name: str, indexes: Sequence[int]) -> wire.DescribedShareGroupTopic:
    rows = [
        wire.DescribedShareGroupPartition(
            partition_index=index, start_offset=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        for index in indexes
    ]
    return wire.DescribedShareGroupTopic(topic_name=name, topic_id=ZERO_UUID, partitions=rows)


def _described_partition(
    index: int, summary: ShareSummary | KafkaError, end_offset: int | None
) -> wire.DescribedShareGroupPartition:
    """The row of a partition. One that is not known is no error, as in OffsetFetch."""
    if isinstance(summary, KafkaError):
        return wire.DescribedShareGroupPartition(partition_index=index, start_offset=-1)
    lag = -1
    if end_offset is not None:
        lag = end_offset - summary.start_offset - summary.delivery_complete_count
    return wire.DescribedShareGroupPartition(
        partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )
