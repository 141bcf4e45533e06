"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: translates messages of each version to the offset manager's
values.

Version 0 of OffsetCommit and OffsetFetch predates the group coordinator: its offsets are in ZooKeeper, separate from
the offsets that the group commits in later versions. Without ZooKeeper each partition is refused, as by Kafka in KRaft
mode.
Source: KafkaApis.handleOffsetCommitRequest, commitOffsetsToZookeeper, handleTxnOffsetCommitRequest,
handleOffsetFetchRequestFromZookeeper, handleOffsetDeleteRequest (3.9).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from kafkalite.api.request.request_context import GROUP, TOPIC, PendingResponse, RequestContext, Runtime
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID, ProducerIdAndEpoch
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.add_partitions_manager import AddPartitionsToTxnManager
from kafkalite.coordinator.group.group import Identity
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.offset_manager import (
    NO_OFFSET,
    UNSTABLE_OFFSET,
    CommittedOffsets,
    OffsetToCommit,
    TransactionalCommit,
)
from kafkalite.protocol.messages import group_offsets as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation

if TYPE_CHECKING:
    from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets

FIRST_COMMIT_WITH_MEMBER_EPOCH = 9
FIRST_FETCH_WITH_TOP_LEVEL_ERROR = 2
FIRST_FETCH_OF_MANY_GROUPS = 8
FIRST_VERSION_BY_ID = 10  # of OffsetCommit and OffsetFetch

FIRST_TXN_COMMIT_WITH_LOADING = 2  # older clients treat COORDINATOR_LOAD_IN_PROGRESS as fatal
FIRST_TXN_COMMIT_WITH_ABORTABLE = 4
FIRST_TXN_COMMIT_THAT_ADDS = 5

Answers = Sequence[wire.OffsetCommitResponsePartition | wire.TxnOffsetCommitResponsePartition]
T = TypeVar("T")
A = TypeVar("A", bound=wire.OffsetCommitResponsePartition | wire.TxnOffsetCommitResponsePartition)
ById = TypeVar("ById", wire.OffsetCommitRequestTopic, wire.OffsetFetchRequestTopic)
R = TypeVar("R", bound=wire.OffsetCommitResponse | wire.TxnOffsetCommitResponse)


class GroupOffsetApi(NamedTuple):
    """The APIs of committed offsets. `legacy_offsets` are those in ZooKeeper (None without ZooKeeper)."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    add_partitions: AddPartitionsToTxnManager
    legacy_offsets: LegacyOffsets | None

    def offset_commit(
        self, request: wire.OffsetCommitRequest, context: RequestContext
    ) -> wire.OffsetCommitResponse | Awaitable[wire.OffsetCommitResponse]:
        wanted, ids = request.topics, {}
        unknown: list[wire.OffsetCommitRequestTopic] = []
        if context.api_version >= FIRST_VERSION_BY_ID:
            wanted, unknown = self._split_by_id(request.topics)
            ids = {topic.name: topic.topic_id for topic in wanted}
        topics, offsets, answers = _existing_partitions(
            context.refused_last(Operation.READ, TOPIC, wanted),
            self.replica_manager.exists,
            wire.OffsetCommitResponseTopic,
            wire.OffsetCommitResponsePartition,
        )
        for topic in topics:
            topic.topic_id = ids.get(topic.name, ZERO_UUID)
        response = wire.OffsetCommitResponse(topics=topics + [_unknown_commit(topic) for topic in unknown])
        if not offsets:
            return response
        if context.api_version == 0:
            return self._commit_v0(request.group_id, response, offsets, answers)
        pending = PendingResponse(partial(_with_errors, response, answers))
        self.groups.offsets.commit(
            request.group_id,
            Identity(
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                knows_member_epochs=context.api_version >= FIRST_COMMIT_WITH_MEMBER_EPOCH,
            ),
            offsets,
            request.retention_time_ms,
            pending,
            ids,
        )
        return pending.outcome(self.runtime.loop)

    def txn_offset_commit(
        self, request: wire.TxnOffsetCommitRequest, context: RequestContext
    ) -> wire.TxnOffsetCommitResponse | Awaitable[wire.TxnOffsetCommitResponse]:
        named = [topic for topic in request.topics if topic.partitions]  # Kafka leaves out topics without partitions
        topics, offsets, answers = _existing_partitions(
            context.refused_last(Operation.READ, TOPIC, named),
            self.replica_manager.exists,
            wire.TxnOffsetCommitResponseTopic,
            wire.TxnOffsetCommitResponsePartition,
        )
        response = wire.TxnOffsetCommitResponse(topics=topics)
        if not offsets:
            return response
        version = context.api_version

        def render(errors: Sequence[ErrorCode]) -> wire.TxnOffsetCommitResponse:
            return _with_errors(response, answers, [_known_error(each, version) for each in errors])

        pending = PendingResponse(render)
        commit = TransactionalCommit(
            request.group_id,
            Identity(request.member_id, request.group_instance_id, request.generation_id),
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            offsets,
            adds_partition=version >= FIRST_TXN_COMMIT_THAT_ADDS,
        )
        self.groups.offsets.commit_in_transaction(commit, pending, self.add_partitions.verify_commit)
        return pending.outcome(self.runtime.loop)

    def offset_fetch(
        self, request: wire.OffsetFetchRequest, context: RequestContext
    ) -> wire.OffsetFetchResponse | Awaitable[wire.OffsetFetchResponse]:
        """Null topics mean all topics that the client may describe, an empty list means none."""
        version = context.api_version
        if version >= FIRST_FETCH_OF_MANY_GROUPS:
            wanted = {each.group_id: each for each in request.groups}  # clients look up answers by group id
            named = context.refused_last(Operation.DESCRIBE, GROUP, wanted.values(), attrgetter("group_id"))
            groups = [self._fetched_group(context, each, request, is_allowed) for each, is_allowed in named]
            return wire.OffsetFetchResponse(groups=groups)
        error = ErrorCode.NONE
        if not context.may(Operation.DESCRIBE, GROUP, request.group_id):
            error, topics = ErrorCode.GROUP_AUTHORIZATION_FAILED, _refused_topics(request.topics or ())
            refused: list[wire.OffsetFetchResponseTopic] = []
        elif version == 0:
            return self._fetch_v0(request, *_split_topics(context, request.topics))
        else:
            error, topics, refused = self._fetch(context, request.group_id, request.topics, request.require_stable)
        if error and version >= FIRST_FETCH_WITH_TOP_LEVEL_ERROR:
            return wire.OffsetFetchResponse(error_code=error)
        if error:  # versions 0 and 1 have only the errors of the partitions
            for partition in (each for topic in topics for each in topic.partitions):
                partition.error_code = error
        return wire.OffsetFetchResponse(topics=topics + refused)

    async def offset_delete(
        self, request: wire.OffsetDeleteRequest, context: RequestContext
    ) -> wire.OffsetDeleteResponse:
        """A partition that is named twice is answered once. A missing group is an error even if no topic may be
        read."""
        needed = context.refused_last(Operation.READ, TOPIC, request.topics)
        partitions = {
            (topic.name, each.partition_index): is_allowed for topic, is_allowed in needed for each in topic.partitions
        }
        exists = self.replica_manager.exists
        existing = [each for each, is_allowed in partitions.items() if is_allowed and exists(*each)]
        error, errors = await self.groups.offsets.delete(request.group_id, existing)
        if error:
            return wire.OffsetDeleteResponse(error_code=error)
        topics: dict[str, wire.OffsetDeleteResponseTopic] = {}
        for (name, index), is_allowed in partitions.items():
            topic = topics.setdefault(name, wire.OffsetDeleteResponseTopic(name=name))
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_allowed:
                code = errors.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions.append(wire.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return wire.OffsetDeleteResponse(topics=list(topics.values()))

    async def _commit_v0(
        self,
        group_id: str,
        response: wire.OffsetCommitResponse,
        offsets: list[OffsetToCommit],
        answers: Answers,
    ) -> wire.OffsetCommitResponse:
        if self.legacy_offsets is None:
            for each in (each for topic in response.topics for each in topic.partitions):
                if each.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    each.error_code = ErrorCode.UNSUPPORTED_VERSION
            return response
        length_max = self.config().offset_metadata_max_bytes
        accepted = {}
        for (name, index, offset, _, metadata, _), answer in zip(offsets, answers, strict=True):
            if len(metadata.encode("utf-16-le")) // 2 > length_max:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted[name, index] = offset
        try:
            await self.legacy_offsets.commit(group_id, accepted)
        except KafkaError as reason:
            return _with_errors(response, answers, [ErrorCode(each.error_code) or reason.code for each in answers])
        return response

    def _fetched_group(
        self,
        context: RequestContext,
        wanted: wire.OffsetFetchRequestGroup,
        request: wire.OffsetFetchRequest,
        is_allowed: bool,
    ) -> wire.OffsetFetchResponseGroup:
        group_id, error = wanted.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED
        asked: Sequence[wire.OffsetFetchRequestTopic] | None = wanted.topics
        unknown: list[wire.OffsetFetchRequestTopic] = []
        by_id = context.api_version >= FIRST_VERSION_BY_ID
        if by_id and wanted.topics is not None:
            asked, unknown = self._split_by_id(wanted.topics)
        if is_allowed:
            member = wanted.member_id, wanted.member_epoch
            error, topics, refused = self._fetch(context, group_id, asked, request.require_stable, *member)
        if error:
            return wire.OffsetFetchResponseGroup(group_id=group_id, error_code=error)
        topics += refused
        if by_id:
            topics = self._with_ids(topics) + _refused_topics(unknown, ErrorCode.UNKNOWN_TOPIC_ID)
        return wire.OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _split_by_id(self, topics: Iterable[ById]) -> tuple[list[ById], list[ById]]:
        """The topics of a request with ids, which get their names, and those whose ids are unknown."""
        by_id = self.replica_manager.by_id
        known: list[ById] = []
        unknown: list[ById] = []
        for topic in topics:
            found = by_id.get(topic.topic_id)
            topic.name = "" if found is None else found.name
            (unknown if found is None else known).append(topic)
        return known, unknown

    def _with_ids(self, topics: Iterable[wire.OffsetFetchResponseTopic]) -> list[wire.OffsetFetchResponseTopic]:
        """The topics of an answer but those that do not exist, which have no id."""
        found = []
        for answer in topics:
            if (topic := self.replica_manager.by_name.get(answer.name)) is not None:
                answer.topic_id = topic.topic_id
                found.append(answer)
        return found

    def _fetch(
        self,
        context: RequestContext,
        group_id: str,
        topics: Sequence[wire.OffsetFetchRequestTopic] | None,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, list[wire.OffsetFetchResponseTopic], list[wire.OffsetFetchResponseTopic]]:
        """The error of a group, its offsets in `topics`, and refusals of the topics that the client may not
        describe."""
        allowed, refused = _split_topics(context, topics)
        error, rows = self.groups.offsets.fetch(
            group_id,
            _wanted_by_id(allowed) if context.api_version >= FIRST_VERSION_BY_ID else _wanted(allowed),
            require_stable=require_stable,
            member_id=member_id,
            member_epoch=member_epoch,
        )
        if topics is None:
            rows = [each for each in rows if context.may(Operation.DESCRIBE, TOPIC, each[0], is_logged=False)]
        elif context.api_version >= FIRST_VERSION_BY_ID:
            rows = _of_these_topics(rows, {topic.name: topic.topic_id for topic in topics})
        return error, _fetched_topics(rows), refused

    async def _fetch_v0(
        self,
        request: wire.OffsetFetchRequest,
        topics: Sequence[wire.OffsetFetchRequestTopic] | None,
        refused: list[wire.OffsetFetchResponseTopic],
    ) -> wire.OffsetFetchResponse:
        partitions = [(name, index) for name, indexes in _wanted(topics) or () for index in indexes]
        error, found = ErrorCode.UNSUPPORTED_VERSION, {}
        if self.legacy_offsets is not None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            existing = [each for each in partitions if self.replica_manager.exists(*each)]
            try:
                found = await self.legacy_offsets.fetch(request.group_id, existing)
            except KafkaError as reason:
                found = dict.fromkeys(existing, (NO_OFFSET.offset, reason.code))
        answers: dict[str, wire.OffsetFetchResponseTopic] = {}
        for name, index in partitions:
            offset, code = found.get((name, index), (NO_OFFSET.offset, error))
            topic = answers.setdefault(name, wire.OffsetFetchResponseTopic(name=name))
            topic.partitions.append(
                wire.OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, error_code=code)
            )
        return wire.OffsetFetchResponse(topics=[*answers.values(), *refused])


def _existing_partitions(
    topics: Sequence[tuple[wire.OffsetCommitRequestTopic | wire.TxnOffsetCommitRequestTopic, bool]],
    exists: Callable[[str, int], bool],
    topic_type: Callable[..., T],
    answer_type: Callable[..., A],
) -> tuple[list[T], list[OffsetToCommit], list[A]]:
    """The topics of the response, with errors for those that the client may not read and for partitions that do not
    exist; the offsets of the others, and their answers."""
    offsets: list[OffsetToCommit] = []
    answers: list[A] = []
    answered_topics = []
    for topic, is_allowed in topics:
        name = topic.name
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            answer = answer_type(partition_index=index)
            if not is_allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif exists(name, index):
                offsets.append(
                    (
                        name,
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata or "",
                        partition.commit_timestamp,
                    )
                )
                answers.append(answer)
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(answer)
        answered_topics.append(topic_type(name=name, partitions=partitions))
    return answered_topics, offsets, answers


def _with_errors(response: R, answers: Answers, errors: Sequence[ErrorCode]) -> R:
    for answer, error in zip(answers, errors, strict=True):
        if error:
            answer.error_code = error
    return response


def _known_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error for a client that speaks `version` of TxnOffsetCommit."""
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_TXN_COMMIT_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_TXN_COMMIT_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _wanted(
    topics: Sequence[wire.OffsetFetchRequestTopic] | None,
) -> list[tuple[str, dict[int, None]]] | None:
    """The requested partitions by topic, each once; topics without partitions are left out."""
    if topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        if topic.partition_indexes:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return list(wanted.items())


def _wanted_by_id(topics: Sequence[wire.OffsetFetchRequestTopic] | None) -> list[tuple[str, list[int]]] | None:
    """The same as Kafka has it since 4.0: as often as it is asked for."""
    return None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]


def _of_these_topics(rows: CommittedOffsets, ids: Mapping[str, uuid.UUID]) -> CommittedOffsets:
    """The offsets without those that were committed for an earlier topic of the same name. A commit by name is for any
    topic of that name. Source: OffsetMetadataManager.isMismatchedTopicId."""
    return [
        (name, [(index, each if each.topic_id in (ZERO_UUID, ids[name]) else NO_OFFSET) for index, each in offsets])
        for name, offsets in rows
    ]


def _split_topics(
    context: RequestContext, topics: Sequence[wire.OffsetFetchRequestTopic] | None
) -> tuple[Sequence[wire.OffsetFetchRequestTopic] | None, list[wire.OffsetFetchResponseTopic]]:
    """The topics that the client may describe (None: all), and the answers about the others."""
    if topics is None or context.access is None:
        return topics, []
    needed = context.refused_last(Operation.DESCRIBE, TOPIC, topics)
    return [each for each, is_allowed in needed if is_allowed], _refused_topics(
        each for each, is_allowed in needed if not is_allowed
    )


def _unknown_commit(topic: wire.OffsetCommitRequestTopic) -> wire.OffsetCommitResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_ID
    return wire.OffsetCommitResponseTopic(
        topic_id=topic.topic_id,
        partitions=[
            wire.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _refused_topics(
    topics: Iterable[wire.OffsetFetchRequestTopic], code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
) -> list[wire.OffsetFetchResponseTopic]:
    return [
        wire.OffsetFetchResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                wire.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _fetched_topics(rows: CommittedOffsets) -> list[wire.OffsetFetchResponseTopic]:
    return [
        wire.OffsetFetchResponseTopic(
            name=name,
            partitions=[
                wire.OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=(ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE_OFFSET else ErrorCode.NONE),
                )
                for index, committed in offsets
            ],
        )
        for name, offsets in rows
    ]
