"""The requests of a transaction that several processes share: one writes, another ends it.

A process that has a transaction's identity (transactional id, producer id, epoch) can end it: a task writes and hands
its identity over, the driver commits or aborts. Requests are retried while a coordinator is loading or moving. Offsets
of a group may be part of it: a copy reads its progress, writes records, and commits the new progress with them, so that
all of it takes effect or nothing.
Source: org.apache.kafka.clients.producer.internals.TransactionManager, KafkaProducer.sendOffsetsToTransaction, KIP-98;
KIP-447 for require_stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalite.client.cluster_client import GROUP_KEY, TRANSACTION_KEY, ClusterClient, Retries
from kafkalite.client.group_member import NO_MEMBER, Membership
from kafkalite.client.transaction_admin import TransactionAdmin
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import group_offsets as wire
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
)

_ADD_PARTITIONS_VERSION = 2
_END_VERSION = 2
_ADMIN_VERSION = 0
_ADD_OFFSETS_VERSION = 2
_COMMIT_OFFSETS_VERSION = 2
_COMMIT_OFFSETS_AS_MEMBER_VERSION = 3
_FETCH_OFFSETS_VERSION = 7
_ONGOING = "Ongoing"


class Identity(NamedTuple):
    """A producer as brokers know it; without a transactional id it is idempotent only."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class Transactions:
    """The transactions of a cluster. Methods raise WriteFailed if a coordinator refuses, or is unreachable for too
    long.
    """

    def __init__(self, cluster: ClusterClient, retries: Retries) -> None:
        self._cluster = cluster
        self._retries = retries

    def begin(self, transactional_id: str | None, timeout_ms: int) -> Identity:
        """A new identity. Its transaction begins with the first partition that is added, and is aborted after
        `timeout_ms`; one that this transactional id had open is aborted now."""

        def ask() -> Identity | int:
            code, producer_id, epoch = self._cluster.init_producer_id(transactional_id, timeout_ms)
            return code or Identity(transactional_id, producer_id, epoch)

        what = "no producer id is available" if transactional_id is None else f"{transactional_id} cannot begin"
        identity: Identity = self._retries.persist(what, ask)
        return identity

    def add(self, identity: Identity, partitions: Iterable[TopicPartition], group_id: str = "") -> None:
        """Make these partitions part of the transaction, before the first batch for them, and the offsets of a group,
        before they are committed; in one round trip."""
        requests: list[tuple[Message, int]] = []
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
        if topics:
            partitions_request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=identity.transactional_id or "",
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.producer_epoch,
                v3_and_below_topics=list(topics.values()),
            )
            requests.append((partitions_request, _ADD_PARTITIONS_VERSION))
        if group_id:
            offsets_request = AddOffsetsToTxnRequest(
                transactional_id=identity.transactional_id or "",
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                group_id=group_id,
            )
            requests.append((offsets_request, _ADD_OFFSETS_VERSION))

        def ask() -> int:
            key = identity.transactional_id or ""
            responses = self._cluster.ask_coordinator_each(key, TRANSACTION_KEY, requests)
            if isinstance(responses, int):
                return responses
            return next(filter(None, map(_code_of_addition, responses)), ErrorCode.NONE)

        what = "offsets" if not topics else "partitions and offsets" if group_id else "partitions"
        self._retries.persist(f"transaction {identity.transactional_id} cannot add {what}", ask)

    def end(self, identity: Identity, *, commit: bool) -> None:
        """Commit or abort; may be repeated with the same result."""
        request = EndTxnRequest(
            transactional_id=identity.transactional_id or "",
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )

        def ask() -> int:
            response = self._ask_coordinator(identity, request, _END_VERSION)
            return response if isinstance(response, int) else int(response.error_code)

        verb = "committed" if commit else "aborted"
        self._retries.persist(f"transaction {identity.transactional_id} cannot be {verb}", ask)

    def is_ongoing(self, identity: Identity) -> bool:
        """Whether the transaction is open, and this identity may end it: it has not timed out."""
        request = DescribeTransactionsRequest(transactional_ids=[identity.transactional_id or ""])

        def ask() -> Any:
            response = self._ask_coordinator(identity, request, _ADMIN_VERSION)
            if isinstance(response, int):
                return response
            described = response.transaction_states[0]
            return described.error_code if ErrorCode.of(described.error_code).is_retriable else described

        described = self._retries.persist(f"transaction {identity.transactional_id} cannot be described", ask)
        known = (described.transaction_state, described.producer_id, described.producer_epoch)
        return known == (_ONGOING, identity.producer_id, identity.producer_epoch)

    def ongoing_with_prefix(self, prefix: str) -> list[str]:
        """The transactional ids with this beginning whose transaction is open, of all coordinators. Raises
        Unanswered."""
        self._cluster.refresh([])
        listed = TransactionAdmin(self._cluster, self._retries.timeout_s).list_transactions(states=[_ONGOING])
        return sorted(one.transactional_id for one in listed if one.transactional_id.startswith(prefix))

    def _ask_coordinator(self, identity: Identity, request: Message, version: int) -> Any:
        """The response, or the error code if there is no coordinator now."""
        return self._cluster.ask_coordinator(identity.transactional_id or "", TRANSACTION_KEY, request, version)


def _code_of_addition(response: Any) -> int:
    if isinstance(response, AddOffsetsToTxnResponse):
        return response.error_code
    results = [one for topic in response.results_by_topic_v3_and_below for one in topic.results_by_partition]
    codes = {one.partition_error_code for one in results} - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return min(codes, default=ErrorCode.NONE)


class CommittedOffset(NamedTuple):
    """A committed offset and its metadata text."""

    offset: int
    metadata: str


class GroupOffsets:
    """The offsets of one group. The metadata of an offset names the job whose progress it is. Methods raise WriteFailed
    if a coordinator refuses, or is unreachable for too long."""

    def __init__(self, group_id: str, cluster: ClusterClient, retries: Retries) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._retries = retries

    def committed(self, partition: TopicPartition) -> CommittedOffset | None:
        """The last committed offset, None if there is none. Waits while a transaction with an offset for the partition
        is open."""
        return self.committed_in([partition]).get(partition)

    def committed_in(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """The last committed offsets of those partitions that have one, as `committed`."""
        topics: dict[str, wire.OffsetFetchRequestTopic] = {}
        for topic, index in partitions:
            topics.setdefault(topic, wire.OffsetFetchRequestTopic(name=topic)).partition_indexes.append(index)
        request = wire.OffsetFetchRequest(group_id=self.group_id, topics=list(topics.values()), require_stable=True)

        def ask() -> int | tuple[dict[TopicPartition, CommittedOffset]]:
            response = self._ask_coordinator(request, _FETCH_OFFSETS_VERSION)
            if isinstance(response, int):
                return response
            found = {(topic.name, one.partition_index): one for topic in response.topics for one in topic.partitions}
            codes = [response.error_code, *(one.error_code for one in found.values())]
            if code := next(filter(None, codes), 0):
                return int(code)
            known = {key: one for key, one in found.items() if one.committed_offset >= 0}
            return ({key: CommittedOffset(one.committed_offset, one.metadata or "") for key, one in known.items()},)

        result: tuple[dict[TopicPartition, CommittedOffset]] = self._retries.persist(
            f"{self._name} cannot be read", ask
        )
        return result[0]

    def commit(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: Membership = NO_MEMBER,
    ) -> None:
        """Commit these offsets in the transaction, to which the group was added; they take effect with it. A group with
        members refuses them unless they are of a `member` in its present generation (KIP-447)."""
        topics: dict[str, wire.TxnOffsetCommitRequestTopic] = {}
        for (topic, index), (offset, metadata) in offsets.items():
            one = wire.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, wire.TxnOffsetCommitRequestTopic(name=topic)).partitions.append(one)
        request = wire.TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id or "",
            group_id=self.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )
        version = _COMMIT_OFFSETS_VERSION if member == NO_MEMBER else _COMMIT_OFFSETS_AS_MEMBER_VERSION

        def ask() -> int:
            response = self._ask_coordinator(request, version)
            if isinstance(response, int):
                return response
            codes = [one.error_code for topic in response.topics for one in topic.partitions]
            return max(codes, key=abs, default=int(ErrorCode.NONE))

        self._retries.persist(f"{self._name} cannot be committed", ask)

    @property
    def _name(self) -> str:
        return f"the progress of group {self.group_id}"

    def _ask_coordinator(self, request: Message, version: int) -> Any:
        """The response, or the error code if there is no coordinator now."""
        return self._cluster.ask_coordinator(self.group_id, GROUP_KEY, request, version)
