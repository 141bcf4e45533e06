"""The requests of a transactional producer, in the versions of clients of several ages."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition
from kafkalite.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.support.transactions.ledger import Batch, Commit
from tests.support.transactions.steps import LATE, LEAVES, WAITS
from tests.support.transactions.world import World


class Dialect(NamedTuple):
    """The versions in which a client speaks. `adds`: it adds partitions and groups to its transactions itself."""

    produce: int
    init: int
    add_partitions: int
    add_offsets: int
    end: int
    commit_offsets: int

    @property
    def adds(self) -> bool:
        return self.produce < 12


DIALECTS = {
    "old": Dialect(produce=3, init=1, add_partitions=0, add_offsets=0, end=1, commit_offsets=2),
    "mid": Dialect(produce=9, init=4, add_partitions=3, add_offsets=3, end=3, commit_offsets=3),
    "late": Dialect(produce=11, init=5, add_partitions=3, add_offsets=4, end=4, commit_offsets=4),
    "new": Dialect(produce=12, init=5, add_partitions=3, add_offsets=4, end=5, commit_offsets=5),
}


class TransactionRequests:
    """Each method asks until there is an answer that is no passing error, and raises NoAnswer if there will be none.

    `how` a client waits: see `steps`.
    """

    def __init__(self, transactional_id: str, dialect: Dialect, world: World) -> None:
        self._transactional_id = transactional_id
        self._dialect = dialect
        self._world = world

    def init(self, client: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=timeout_ms, **_ids(expected)
        )
        return self._world.ask(client, request, self._dialect.init, lambda answer: [answer.error_code])

    def add_partition(self, client: str, ids: ProducerIdAndEpoch, partition: TopicPartition) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])],
            v3_and_below_producer_id=ids.producer_id,
            v3_and_below_producer_epoch=ids.producer_epoch,
        )

        def error(answer: Any) -> int:
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        answer = self._world.ask(client, request, self._dialect.add_partitions, lambda answer: [error(answer)])
        return ErrorCode(error(answer))

    def add_offsets(self, client: str, ids: ProducerIdAndEpoch, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(transactional_id=self._transactional_id, group_id=group, **_ids(ids))
        answer = self._world.ask(client, request, self._dialect.add_offsets, lambda answer: [answer.error_code])
        return ErrorCode(answer.error_code)

    def produce(self, client: str, batch: Batch, *, how: str = WAITS) -> ErrorCode:
        return self._world.produce(
            client, batch, self._dialect.produce, self._transactional_id, how=self._lateness(how)
        )

    def commit_offset(
        self,
        client: str,
        ids: ProducerIdAndEpoch,
        group: str,
        partition: TopicPartition,
        commit: Commit,
        *,
        how: str = WAITS,
    ) -> ErrorCode:
        offset = TxnOffsetCommitRequestPartition(partition_index=partition[1], committed_offset=commit.offset)
        topic = TxnOffsetCommitRequestTopic(name=partition[0], partitions=[offset])
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=ids.producer_id,
            producer_epoch=ids.producer_epoch,
            topics=[topic],
        )
        version = self._dialect.commit_offsets
        self._world.leave_unless_waiting(client, request, version, self._lateness(how))
        answer = self._world.ask(client, request, version, lambda answer: [answer.topics[0].partitions[0].error_code])
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, client: str, ids: ProducerIdAndEpoch, *, commit: bool, how: str = WAITS) -> Any:
        request = EndTxnRequest(transactional_id=self._transactional_id, committed=commit, **_ids(ids))
        self._world.leave_unless_waiting(client, request, self._dialect.end, self._lateness(how))
        return self._world.ask(client, request, self._dialect.end, lambda answer: [answer.error_code])

    def _lateness(self, how: str) -> str:
        """Before transaction.version=2 a late request counts for the next transaction of the same epoch, and a late
        batch holds up those that follow in Kafka as well."""
        return LEAVES if how == LATE and self._dialect.adds else how


def _ids(ids: ProducerIdAndEpoch | None) -> dict[str, int]:
    return {} if ids is None else ids._asdict()
