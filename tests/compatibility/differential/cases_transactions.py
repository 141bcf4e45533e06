"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers, and the records of transactions.

DescribeProducers, DescribeTransactions and ListTransactions look at them from outside.
"""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.group_admin import FindCoordinatorRequest
from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest
from kafkalite.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.compatibility.differential.asking import batch, fetch, is_verified, list_offsets, produce
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once, tries

NOT_YET = (14, 15, 16, 51)  # loading, no coordinator, not the coordinator, the last transaction is not finished
READ_COMMITTED = 1

OTHER_EPOCH = Explained(
    "another epoch of a producer whose transaction is open is verified with its coordinator, as by Kafka 4",
    "3.9.1 appends a newer one, and can then never end the transaction; of an older one only the log start is not told",
    "responses.*.partition_responses.*.log_start_offset",
)


class Producer:
    """A transactional id with the producer id and the epoch that the broker gave."""

    def __init__(self, t: Teller, stem: str = "tx") -> None:
        self.t = t
        self.name = t.name(stem)
        self.id = self.epoch = -1
        for _ in tries(f"a coordinator of {self.name}"):
            if not t.aside(FindCoordinatorRequest(key=self.name, key_type=1), 2).error_code:
                answer = t.aside(self.init(), 4)
                if not answer.error_code:
                    self.id, self.epoch = answer.producer_id, answer.producer_epoch
                if self.epoch == 1:  # so that there is an older one
                    return

    def batch(self, sequence: int, *values: bytes, epoch: int | None = None, transactional: bool = True) -> bytearray:
        return batch(
            *(values or (b"v",)),
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def init(self, **more: Any) -> InitProducerIdRequest:
        return InitProducerIdRequest(**{"transactional_id": self.name, "transaction_timeout_ms": 60_000} | more)

    def add(self, *topics: tuple[str, list[int]], **more: Any) -> AddPartitionsToTxnRequest:
        """`more`: other values of transactional_id, producer_id and producer_epoch."""
        mine = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch} | more
        wanted = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics]
        if self.t.v >= 4:
            return AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(**mine, topics=wanted)])
        mine = {f"v3_and_below_{name}": value for name, value in mine.items()}
        return AddPartitionsToTxnRequest(**mine, v3_and_below_topics=wanted)

    def add_aside(self, *topics: tuple[str, list[int]]) -> None:
        """Add partitions, and come again while the markers of the last transaction are written."""
        wanted = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=wanted,
        )
        for _ in tries("to add partitions"):
            results = self.t.aside(request, 3).results_by_topic_v3_and_below
            codes = [one.partition_error_code for each in results for one in each.results_by_partition]
            if not any(code in NOT_YET for code in codes):
                assert not any(codes), codes
                return

    def offsets(self, group: str, **more: Any) -> AddOffsetsToTxnRequest:
        mine = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch} | more
        return AddOffsetsToTxnRequest(**mine, group_id=group)

    def end(self, commit: bool, **more: Any) -> EndTxnRequest:
        mine = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch} | more
        return EndTxnRequest(**mine, committed=commit)

    def end_aside(self, commit: bool) -> None:
        """End the transaction, and return when its markers are written."""
        for _ in tries("to end a transaction"):
            if self.t.aside(self.end(commit), 3).error_code not in NOT_YET:
                break
        for _ in tries("the end of a transaction"):
            state = self.t.aside(DescribeTransactionsRequest(transactional_ids=[self.name]), 0).transaction_states[0]
            if state.transaction_state.startswith("Complete"):
                return


def settled(answer: Any) -> bool:
    """Whether the answer is no "come again"."""
    return getattr(answer, "error_code", 0) not in NOT_YET and not any(code in NOT_YET for code in codes(answer))


def codes(answer: Any) -> list[int]:
    topics = list(getattr(answer, "results_by_topic_v3_and_below", ()))
    topics += [each for one in getattr(answer, "results_by_transaction", ()) for each in one.topic_results]
    return [one.partition_error_code for each in topics for one in each.results_by_partition]


@every_version("InitProducerId")
def identities(t: Teller) -> None:
    me = Producer(t)
    t.ask("the next epoch", me.init())
    t.ask("the one after", me.init())
    for timeout in (-1, 0, 900_000, 900_001):
        t.ask(f"a timeout of {timeout}", me.init(transaction_timeout_ms=timeout))
    if t.v >= 3:
        last = t.ask("one more", me.init())
        mine = {"producer_id": last.producer_id, "producer_epoch": last.producer_epoch}
        t.ask("with what it has", me.init(**mine))
        t.ask("the same again, as if no answer had come", me.init(**mine))
        t.ask("with an older epoch", me.init(producer_id=last.producer_id, producer_epoch=0))
        t.ask("with another id", me.init(producer_id=last.producer_id + 1000, producer_epoch=0))
        t.ask("an id without an epoch", me.init(producer_id=last.producer_id))


@every_version("InitProducerId")
def an_open_transaction_is_aborted_first(t: Teller) -> None:
    topic, me = t.topic(), Producer(t)
    me.add_aside((topic, [0]))
    t.ask("its batch", produce(topic, me.batch(0), transactional_id=me.name), 9)
    t.ask("the heir", me.init(), until=settled)
    t.ask("the zombie's batch", produce(topic, me.batch(1), transactional_id=me.name), 9)
    t.ask("the zombie's commit", me.end(True), 3)
    t.ask("what is there", fetch(topic, isolation_level=READ_COMMITTED), 11)


@every_version("AddPartitionsToTxn")
def partitions(t: Teller) -> None:
    topic, other, me = t.topic(partitions=3), t.topic("other"), Producer(t)
    t.ask("one", me.add((topic, [0])))
    t.ask("the same and more", me.add((topic, [0, 2]), (other, [0])))
    t.ask("none", me.add())
    t.ask("an unknown partition", me.add((topic, [1, 7])))
    t.ask("an unknown topic", me.add((t.name("none"), [0]), (topic, [1])))
    t.ask("one of groups", me.add(("__consumer_offsets", [0])))
    t.ask("one of groups and another", me.add(("__consumer_offsets", [0]), (topic, [1])))
    t.ask("an older epoch", me.add((topic, [1]), producer_epoch=me.epoch - 1))
    t.ask("a newer epoch", me.add((topic, [1]), producer_epoch=me.epoch + 1))
    t.ask("another producer", me.add((topic, [1]), producer_id=me.id + 1000))
    t.ask("an unknown transactional id", me.add((topic, [1]), transactional_id=t.name("nobody")), until=settled)
    t.ask("no transactional id", me.add((topic, [1]), transactional_id=""))
    t.ask("what it is now", DescribeTransactionsRequest(transactional_ids=[me.name]), 0)


@in_versions(4, 5)
def verified_partitions(t: Teller) -> None:
    """As brokers ask."""
    topic, me, you = t.topic(partitions=3), Producer(t), Producer(t, "you")

    def of(who: Producer, *indexes: int, verify: bool = True, **more: Any) -> AddPartitionsToTxnTransaction:
        mine = {"transactional_id": who.name, "producer_id": who.id, "producer_epoch": who.epoch} | more
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))]
        return AddPartitionsToTxnTransaction(**mine, verify_only=verify, topics=topics)

    def ask(label: str, *transactions: AddPartitionsToTxnTransaction) -> None:
        t.ask(label, AddPartitionsToTxnRequest(transactions=list(transactions)), until=settled)

    ask("before any", of(me, 0))
    ask("two producers add", of(me, 0, 1, verify=False), of(you, 2, verify=False))
    ask("both verify", of(me, 0, 1, 2), of(you, 2))
    ask("one adds, one verifies", of(me, 2, verify=False), of(you, 0))
    ask("an unknown partition", of(me, 0, 9), of(you, 2))
    ask("another epoch", of(me, 0, producer_epoch=me.epoch + 1))
    ask("another producer", of(me, 0, producer_id=me.id + 1000))
    ask("an unknown id", of(me, 0, transactional_id=t.name("nobody")))
    me.end_aside(True)
    ask("after the end", of(me, 0))


@every_version("AddOffsetsToTxn")
def groups(t: Teller) -> None:
    group, me = t.group(), Producer(t)
    t.ask("a group", me.offsets(group))
    t.ask("again", me.offsets(group))
    t.ask("without a name", me.offsets(""))
    t.ask("another epoch", me.offsets(group, producer_epoch=me.epoch + 1))
    t.ask("another producer", me.offsets(group, producer_id=me.id + 1000))
    t.ask("an unknown transactional id", me.offsets(group, transactional_id=t.name("nobody")), until=settled)
    t.ask("no transactional id", me.offsets(group, transactional_id=""))


@every_version("TxnOffsetCommit")
def offsets(t: Teller) -> None:
    topic, group, me = t.topic(partitions=2), t.group(), Producer(t)

    def commit(label: str, offset: int, *indexes: int, name: str = topic, **more: Any) -> None:
        mine = {"transactional_id": me.name, "producer_id": me.id, "producer_epoch": me.epoch, "group_id": group} | more
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="note")
            for index in indexes or (0,)
        ]
        topics = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions)]
        t.ask(label, TxnOffsetCommitRequest(**mine, topics=topics), until=are_settled)

    def are_settled(answer: Any) -> bool:
        return all(one.error_code not in NOT_YET for each in answer.topics for one in each.partitions)

    def look(label: str, *, until_stable: bool = True) -> None:
        for stable in (False, True):
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
            request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
            t.ask(f"{label}, stable {stable}", request, 7, until=is_stable if until_stable else None)

    def is_stable(answer: Any) -> bool:
        return all(one.error_code != 88 for each in answer.topics for one in each.partitions)

    commit("before the group is added", 1)
    t.aside(me.offsets(group), 3)
    commit("one", 5)
    commit("two, and one that is not there", 6, 0, 1, 9)
    commit("of an unknown topic", 6, name=t.name("none"))
    look("pending", until_stable=False)
    commit("an older epoch", 7, producer_epoch=me.epoch - 1)
    commit("another transactional id", 7, transactional_id=t.name("another"))
    if t.v >= 3:
        commit("of a generation that is not", 7, generation_id=3, member_id="nobody")
        commit("of a member that is not", 7, member_id="nobody")
        commit("of an instance that is not", 7, group_instance_id="nothing", member_id="nobody")
    me.end_aside(False)
    look("aborted")
    commit("after the end", 8)
    t.aside(me.offsets(group), 3)
    commit("again", 9)
    me.end_aside(True)
    look("committed")


@every_version("EndTxn")
def ends(t: Teller) -> None:
    topic, me = t.topic(partitions=2), Producer(t)
    t.ask("commit, and nothing began", me.end(True))
    t.ask("abort, and nothing began", me.end(False))
    for commit in (True, False):
        me.add_aside((topic, [0, 1]))
        t.ask(f"another epoch {commit}", me.end(commit, producer_epoch=me.epoch + 1))
        t.ask(f"another producer {commit}", me.end(commit, producer_id=me.id + 1000))
        t.ask(f"the end {commit}", me.end(commit), until=settled)
        t.ask(f"the same again {commit}", me.end(commit), until=settled)
        t.ask(f"the opposite {commit}", me.end(not commit), until=settled)
    t.ask("an unknown transactional id", me.end(True, transactional_id=t.name("nobody")), until=settled)
    t.ask("no transactional id", me.end(True, transactional_id=""))


@in_versions(3, 7, 8, 9, 10, 11)
def records(t: Teller) -> None:
    topic, me = t.topic(partitions=2), Producer(t)

    def write(
        label: str, data: bytearray, index: int = 0, name: str | None = me.name, but: Explained | None = None
    ) -> None:
        t.ask(label, produce(topic, data, partition=index, transactional_id=name), until=is_verified, but=but)

    write("before it is added", me.batch(0))
    me.add_aside((topic, [0]))
    write("the first", me.batch(0))
    write("the next", me.batch(1))
    write("the same again", me.batch(1))
    write("a gap", me.batch(7))
    write("of another partition", me.batch(0), 1)
    write("not transactional", me.batch(2, transactional=False))
    write("without a transactional id", me.batch(2), name=None)
    write("under another transactional id", me.batch(2), name=t.name("another"))
    write("another partition, under another transactional id", me.batch(0), 1, name=t.name("another"))
    write("an older epoch", me.batch(2, epoch=me.epoch - 1), but=OTHER_EPOCH if t.v >= 5 else None)
    me.end_aside(True)
    write("a newer epoch", me.batch(0, epoch=me.epoch + 1))
    write("after the commit", me.batch(2))
    write("not transactional, after the commit", me.batch(2, transactional=False))
    t.ask("what is there", fetch(topic, isolation_level=READ_COMMITTED), 11)


@in_versions(3, 11)
def records_of_two_producers_in_a_request(t: Teller) -> None:
    topic, me, you = t.topic(partitions=2), Producer(t), Producer(t, "you")
    me.add_aside((topic, [0, 1]))
    you.add_aside((topic, [0, 1]))
    t.ask("two ids", produce(topic, me.batch(0), you.batch(0), transactional_id=me.name))
    t.ask("one of them", produce(topic, me.batch(0), transactional_id=me.name))


@in_versions(4, 5, 7, 11, 12)
def committed_and_aborted(t: Teller) -> None:
    """Fetch with both isolation levels, from every offset on."""
    topic, me, you = t.topic(), Producer(t), Producer(t, "you")

    def write(who: Producer, sequence: int, *values: bytes) -> None:
        answer = t.aside(produce(topic, who.batch(sequence, *values), transactional_id=who.name), 9)
        assert not answer.responses[0].partition_responses[0].error_code, answer

    def look(label: str, offsets: range) -> None:
        for offset in offsets:
            t.ask(f"{label}, from {offset}", fetch(topic, offset, isolation_level=READ_COMMITTED))
        t.ask(f"{label}, all", fetch(topic))

    for producer in (me, you):
        producer.add_aside((topic, [0]))
    write(me, 0, b"mine", b"mine")
    write(you, 0, b"yours")
    look("both open", range(1))
    you.end_aside(False)
    look("one aborted behind an open one", range(1))
    me.end_aside(True)
    look("both ended", range(6))
    me.add_aside((topic, [0]))
    write(me, 2, b"again")
    me.end_aside(False)
    t.aside(produce(topic, batch(b"plain")), 9)
    look("the second aborted", range(9))


@in_versions(2, 5, 7, 9)
def ends_of_the_log(t: Teller) -> None:
    """ListOffsets with both isolation levels."""
    topic, me = t.topic(), Producer(t)
    t.aside(produce(topic, batch(b"before")), 9)
    me.add_aside((topic, [0]))
    t.aside(produce(topic, me.batch(0), transactional_id=me.name), 9)
    t.aside(produce(topic, batch(b"after")), 9)

    def look(label: str) -> None:
        for level in (0, 1):
            for timestamp in (-2, -1, *((-3,) if t.v >= 7 else ()), 0):
                t.ask(f"{label}: {timestamp} at level {level}", list_offsets(topic, timestamp, isolation_level=level))

    look("open")
    me.end_aside(True)
    look("committed")


@every_version("WriteTxnMarkers")
def markers(t: Teller) -> None:
    """As a coordinator sends them."""
    topic, me = t.topic(partitions=2), Producer(t)

    def marker(commit: bool, *indexes: int, name: str = topic, **more: Any) -> WritableTxnMarker:
        mine = {"producer_id": me.id, "producer_epoch": me.epoch, "coordinator_epoch": 5} | more
        topics = [WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes))] if indexes else []
        return WritableTxnMarker(**mine, transaction_result=commit, topics=topics)

    def write(label: str, *wanted: WritableTxnMarker) -> None:
        t.ask(label, WriteTxnMarkersRequest(markers=list(wanted)))

    me.add_aside((topic, [0, 1]))
    t.aside(produce(topic, me.batch(0), me.batch(0), transactional_id=me.name), 9)
    write("none")
    write("of no partition", marker(True))
    write("unknown partitions", marker(True, 9), marker(True, 0, name=t.name("none"), producer_id=me.id + 1))
    write("an older epoch", marker(True, 0, producer_epoch=me.epoch - 1))
    write("one", marker(False, 0))
    write("again", marker(False, 0))
    write("of an older coordinator", marker(True, 0, coordinator_epoch=4))
    write("of a newer epoch", marker(True, 1, producer_epoch=me.epoch + 1))
    write("of a producer without records", marker(True, 0, producer_id=me.id + 5000))
    t.ask("what is there", fetch(topic, isolation_level=READ_COMMITTED), 11)
    t.ask("and in the other one", fetch(topic, partition=1, isolation_level=READ_COMMITTED), 11)


@once
def producers(t: Teller) -> None:
    """DescribeProducers."""
    topic, me = t.topic(partitions=2), Producer(t)

    def look(label: str, name: str = topic, *indexes: int) -> None:
        topics = [DescribeProducersTopicRequest(name=name, partition_indexes=list(indexes) or [0, 1])]
        t.ask(label, DescribeProducersRequest(topics=topics), 0)

    look("none")
    t.aside(produce(topic, me.batch(0, transactional=False)), 9)
    look("an idempotent one")
    me.add_aside((topic, [0, 1]))
    t.aside(produce(topic, me.batch(1, b"a", b"b"), me.batch(0), transactional_id=me.name), 9)
    look("in a transaction")
    me.end_aside(False)
    look("after it")
    look("an unknown partition", topic, 7)
    look("an unknown topic", t.name("none"))
    look("a name that cannot be", "d/x")
    t.ask("nothing", DescribeProducersRequest(topics=[]), 0)


@in_versions(0, 1)
def listed(t: Teller) -> None:
    """ListTransactions and DescribeTransactions."""
    topic, me, you = t.topic(partitions=2), Producer(t), Producer(t, "you")
    me.add_aside((topic, [1, 0]))

    def look(label: str, **filters: Any) -> None:
        answer = t.aside(ListTransactionsRequest(**filters), t.v)
        ours = [each for each in answer.transaction_states if each.transactional_id in (me.name, you.name)]
        answer.transaction_states = sorted(ours, key=lambda each: each.transactional_id)
        t.note(label, answer, t.v)

    look("all")
    look("open", state_filters=["Ongoing"])
    look("in two states", state_filters=["Ongoing", "Empty"])
    look("in states that there are not", state_filters=["ongoing", "Nowhere"])
    look("of a producer", producer_id_filters=[you.id])
    look("of a producer in a state", producer_id_filters=[you.id], state_filters=["Ongoing"])
    if t.v >= 1:
        look("of any duration", duration_filter=0)
        look("of an hour", duration_filter=3_600_000)
    wanted = [me.name, you.name, t.name("nobody"), ""]
    t.ask("described", DescribeTransactionsRequest(transactional_ids=wanted), 0)
    me.end_aside(True)
    t.ask("described after the end", DescribeTransactionsRequest(transactional_ids=wanted), 0)
    look("after the end")
    t.ask("none described", DescribeTransactionsRequest(transactional_ids=[]), 0)
