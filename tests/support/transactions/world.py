"""Shared by all clients of a history: the broker, the books, and a way to ask until there is an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.transactions.driver import Driver
from tests.support.transactions.ledger import Batch, Fate, Ledger, Transaction
from tests.support.transactions.steps import LATE, WAITS

if TYPE_CHECKING:
    from tests.support.transactions.transactional_producer import TransactionalProducer

OK = ErrorCode.NONE
RETRIABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
_RETRY_MS = 50
_RETRIES = 400
TRANSACTION, GROUP = 1, 0  # types of coordinators


@dataclass
class Rivals:
    """The producers of one transactional id. `owner` is the one that was given the latest epoch, None while one asks
    for it."""

    ids: ProducerIdAndEpoch | None = None
    owner: TransactionalProducer | None = None
    used_ms: int = 0  # since then the coordinator has obeyed one of them


@dataclass
class World:
    """The state that all clients share. `keys` gives the keys of the records of a topic; None: they have none.
    `has_refused`: the disk has refused writes, so the markers of a transaction may come late."""

    driver: Driver
    ledger: Ledger
    keys: Callable[[str, int], bytes | None] = lambda topic, number: None
    expires_ms: int | None = None
    rivals: dict[str, Rivals] = field(default_factory=dict)
    has_refused: bool = False

    def ask(self, client: str, request: Message, version: int, errors: Callable[[Any], Iterable[int]]) -> Any:
        """Ask again as long as the answer has an error that passes. Raises NoAnswer."""
        answer = None
        for _ in range(_RETRIES):
            answer = self.driver.ask(client, request, version)
            if RETRIABLE.isdisjoint(errors(answer)):
                return answer
            self.driver.wait(_RETRY_MS)
        raise AssertionError(f"{client} is stuck: {answer} to {request}")

    def leave_unless_waiting(self, client: str, request: Message, version: int, how: str) -> None:
        """Raises NoAnswer if the client does not wait."""
        if how != WAITS:
            self.driver.leave(client, request, version, is_late=how == LATE)

    def find_coordinator(self, client: str, key: str, key_type: int) -> None:
        """Also makes the topic that the coordinator keeps its state in."""
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        self.ask(client, request, 2, lambda answer: [answer.error_code])

    def make_batch(self, by: str, partition: TopicPartition, count: int, transaction: Transaction | None = None,
                   **producer: Any) -> Batch:  # fmt: skip
        """A batch in the books. The value of each record is a name that no other has."""
        numbers = [self.ledger.next_number() for _ in range(count)]
        values = [f"{by}:{number}".encode() for number in numbers]
        keys = [self.keys(partition[0], number) for number in numbers]
        now_ms = self.driver.now_ms()
        records = [NewRecord(key, value, (), now_ms) for key, value in zip(keys, values, strict=True)]
        data = build_batch(records, transactional=transaction is not None, **producer)
        batch = Batch(partition, values, bytes(data), transaction, by)
        self.ledger.send(batch)
        return batch

    def produce(self, client: str, batch: Batch, version: int, transactional_id: str | None = None, *,
                how: str = WAITS) -> ErrorCode:  # fmt: skip
        """Send a batch once more; OK also for one that was there. Raises NoAnswer."""
        topic, partition = batch.partition
        data = PartitionProduceData(index=partition, records=memoryview(batch.data))
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )  # fmt: skip
        self.leave_unless_waiting(client, request, version, how)
        answer = self.ask(client, request, version, lambda answer: [_of_produce(answer).error_code])
        found = _of_produce(answer)
        if found.error_code:
            return ErrorCode(found.error_code)
        assert batch.fate is not Fate.REFUSED, f"taken after all: {batch}"
        assert batch.offset in (None, found.base_offset), f"{batch} is now said to be at {found.base_offset}"
        batch.fate, batch.offset = Fate.TAKEN, found.base_offset
        return OK


def _of_produce(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]
