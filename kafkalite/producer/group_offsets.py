"""Offsets of a group without members, committed in a producer's transaction: progress that is stored with the records.

A copy reads its progress, writes records, and commits the new progress in one transaction: all of it counts or nothing.
The text that is stored beside an offset says whose progress it is.
Source: org.apache.kafka.clients.producer.KafkaProducer.sendOffsetsToTransaction, KIP-98; KIP-447 for require_stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.producer.cluster import GROUP_KEY, Cluster
from kafkalite.producer.retries import Retries
from kafkalite.producer.transactions import Identity
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.transactions import AddOffsetsToTxnRequest

_FETCH_VERSION = 7
_ADD_VERSION = 2
_COMMIT_VERSION = 2


class CommittedOffset(NamedTuple):
    """An offset and the text beside it."""

    offset: int
    metadata: str


class GroupOffsets:
    """The offsets of one group. Methods raise WriteFailed when a coordinator refuses, or is away for too long."""

    def __init__(self, group_id: str, cluster: Cluster, retries: Retries) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._retries = retries

    def committed(self, partition: TopicPartition) -> CommittedOffset | None:
        """The last committed one, None if there is none. Waits until no transaction with an offset for the partition
        is open."""
        topic, index = partition
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index])]
        request = OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=True)

        def ask() -> int | tuple[CommittedOffset | None]:
            response = self._ask_coordinator(request, _FETCH_VERSION)
            if isinstance(response, int):
                return response
            found = response.topics[0].partitions[0] if response.topics else None
            code = int(response.error_code or (found.error_code if found is not None else 0))
            if code:
                return code
            if found is None or found.committed_offset < 0:
                return (None,)
            return (CommittedOffset(found.committed_offset, found.metadata or ""),)

        result: tuple[CommittedOffset | None] = self._retries.persist(f"{self._name} cannot be read", ask)
        return result[0]

    def commit(self, identity: Identity, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Make these offsets part of the transaction; they count when it is committed."""
        transactional_id = identity.transactional_id or ""
        add = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=self.group_id,
        )

        def ask_transaction() -> int:
            client = self._cluster.coordinator(transactional_id)
            return client if isinstance(client, int) else int(self._cluster.ask(client, add, _ADD_VERSION).error_code)

        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, index), (offset, metadata) in offsets.items():
            one = TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(one)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=self.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=list(topics.values()),
        )

        def ask_group() -> int:
            response = self._ask_coordinator(request, _COMMIT_VERSION)
            if isinstance(response, int):
                return response
            codes = [one.error_code for topic in response.topics for one in topic.partitions]
            return max(codes, key=abs, default=int(ErrorCode.NONE))

        self._retries.persist(f"transaction {transactional_id} takes no offsets", ask_transaction)
        self._retries.persist(f"{self._name} cannot be committed", ask_group)

    @property
    def _name(self) -> str:
        return f"the progress of group {self.group_id}"

    def _ask_coordinator(self, request: Message, version: int) -> Any:
        """The response, or the error code if there is no coordinator now."""
        client = self._cluster.coordinator(self.group_id, GROUP_KEY)
        return client if isinstance(client, int) else self._cluster.ask(client, request, version)
