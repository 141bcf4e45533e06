"""Short words for the requests of transactional producers, and for a producer that sends them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.compatibility.differential.asking import batch, produce
from tests.compatibility.differential.engine import Explained, Teller, tries

INIT, ADD, END, PRODUCE, FETCH = 4, 3, 3, 8, 11  # the versions in which stories about something else ask
FOR_EVER_MS = 1 << 40
NO_START = Explained(
    "a transactional id that has begun nothing since its producer started has no start time",
    "Kafka tells that of its last transaction, until it loads its log again, which says -1 as well",
    "transaction_states.*.transaction_start_time_ms",
)
EPOCH_IS_VERIFIED = Explained(
    "an epoch above that of the open transaction is verified, and refused",
    "Kafka 3.9 does not ask the coordinator while a transaction of the producer id is open, and takes an epoch that "
    "nobody was given; no marker ends its transaction then",
    "responses.*.partition_responses.*.*",
    "topics.*.partitions.*.error_code",
)
_NOT_YET = (14, 15, 16, 51)  # the coordinator is not ready, or an earlier transaction has not ended


@dataclass(frozen=True)
class Producer:
    """A transactional producer as it knows itself; `but` makes one that is mistaken about itself."""

    name: str
    id: int
    epoch: int

    def but(self, **mistaken: Any) -> Producer:
        return replace(self, **mistaken)

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    def init(self, **more: Any) -> InitProducerIdRequest:
        """The next epoch, for a producer that says which one it has (KIP-360)."""
        return init(self.name, producer_id=self.id, producer_epoch=self.epoch, **more)

    def add(self, topic: str, *partitions: int, **topics: list[int]) -> AddPartitionsToTxnRequest:
        """Add partitions of `topic` (partition 0 if none is named), and of more topics."""
        return self.add_all({topic: list(partitions or (0,))} | topics)

    def add_all(self, partitions: dict[str, list[int]]) -> AddPartitionsToTxnRequest:
        """In the words of version 4 and of those before it."""
        return AddPartitionsToTxnRequest(
            transactions=[self.adding(partitions)],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=_topics(partitions),
        )

    def adding(self, partitions: dict[str, list[int]], *, verify_only: bool = False) -> AddPartitionsToTxnTransaction:
        """One transaction of a request of version 4."""
        return AddPartitionsToTxnTransaction(**self.identity, verify_only=verify_only, topics=_topics(partitions))

    def add_group(self, group: str) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**self.identity, group_id=group)

    def end(self, *, commit: bool = True) -> EndTxnRequest:
        return EndTxnRequest(**self.identity, committed=commit)

    def after(self, end: EndTxnResponse) -> Producer:
        """The producer of the next transaction: from version 5 on, each end gives it another epoch."""
        return self.but(id=end.producer_id, epoch=end.producer_epoch) if end.producer_id >= 0 else self

    def batch(self, sequence: int, *values: bytes, **settings: Any) -> bytearray:
        """A transactional batch; a value of its own if none is given."""
        numbered = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return batch(*(values or (b"%d" % sequence,)), **{"transactional": True} | numbered | settings)

    def produce(self, topic: str, sequence: int, *values: bytes, partition: int = 0, **more: Any) -> ProduceRequest:
        records = self.batch(sequence, *values)
        return produce(topic, records, partition=partition, **{"transactional_id": self.name} | more)

    def commit_offsets(
        self, group: str, topic: str, *offsets: int, metadata: str | None = "note", epoch: int = -1, **more: Any
    ) -> TxnOffsetCommitRequest:
        """`offsets` of the partitions from 0 on."""
        asked = [
            TxnOffsetCommitRequestPartition(
                partition_index=i, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=epoch
            )
            for i, offset in enumerate(offsets)
        ]
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=asked)]
        return TxnOffsetCommitRequest(**self.identity | {"group_id": group, "topics": topics} | more)


def init(name: str | None, timeout_ms: int = 60_000, **more: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **more)


def markers(
    *each: tuple[Producer, bool, dict[str, list[int]], int], transaction_version: int = 0
) -> WriteTxnMarkersRequest:
    """`each`: the producer, whether it commits, the partitions, and the epoch of the coordinator."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transaction_result=commit,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=asked) for name, asked in topics.items()],
                coordinator_epoch=epoch,
                transaction_version=transaction_version,
            )
            for producer, commit, topics, epoch in each
        ]
    )


def describe(*names: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(names))


def listed(*states: str, producer_ids: list[int] | None = None, duration: int = -1) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=producer_ids or [], duration_filter=duration
    )


def producers_of(topic: str, *partitions: int) -> DescribeProducersRequest:
    asked = DescribeProducersTopicRequest(name=topic, partition_indexes=list(partitions or (0,)))
    return DescribeProducersRequest(topics=[asked])


# --- what many stories begin with


def new_topic(t: Teller, stem: str = "t", partitions: int = 1, **config: object) -> str:
    """A topic whose markers, of today, stand in one segment with the records of stories, which are from 2023."""
    return t.topic(stem, partitions, **{"segment_ms": FOR_EVER_MS} | config)


def is_settled(answer: Any) -> bool:
    """Whether no error says that it is to be asked again in a moment."""
    return not any(code in _NOT_YET for code in error_codes(answer))


def error_codes(message: Any) -> Iterator[int]:
    """All codes of an answer."""
    for name in message.__fields__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                yield from error_codes(one)


def settled(t: Teller, request: Message, version: int) -> Any:
    """The answer to what must succeed, when the transaction before has ended; nothing is noted."""
    for _ in tries(f"an answer to {type(request).__name__}"):
        answer = t.aside(request, version)
        if is_settled(answer):
            assert not any(error_codes(answer)), answer
            return answer
    raise AssertionError("unreachable")


def started(t: Teller, stem: str = "tx", timeout_ms: int = 60_000) -> Producer:
    """A producer with a transactional id of its own, which has begun nothing."""
    return restarted(t, t.transactional_id(stem), timeout_ms)


def restarted(t: Teller, name: str, timeout_ms: int = 60_000) -> Producer:
    """The next producer with this transactional id; a transaction of the last one is aborted."""
    answer = settled(t, init(name, timeout_ms), INIT)
    return Producer(name, answer.producer_id, answer.producer_epoch)


def begun(t: Teller, me: Producer, topic: str, *partitions: int) -> Producer:
    """The producer, with these partitions in its transaction."""
    settled(t, me.add(topic, *partitions), ADD)
    return me


def wrote(t: Teller, me: Producer, topic: str, sequence: int, *values: bytes, partition: int = 0) -> None:
    """Records of a transaction, begun if need be."""
    begun(t, me, topic, partition)
    settled(t, me.produce(topic, sequence, *values, partition=partition), PRODUCE)


def ended(t: Teller, me: Producer, *, commit: bool = True) -> None:
    """End the transaction, and wait for its markers."""
    settled(t, me.end(commit=commit), END)
    t.ended(me.name)


def _topics(partitions: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=asked) for name, asked in partitions.items()]
