"""Produce: transactional batches, verified and unverified partitions, epochs, sequences, mixtures."""

from __future__ import annotations

from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.compatibility.differential.asking import bad, batch, delete_before, fetch, produce
from tests.compatibility.differential.asking_transactions import (
    EPOCH_IS_VERIFIED,
    FETCH,
    PRODUCE,
    begun,
    describe,
    ended,
    new_topic,
    producers_of,
    restarted,
    started,
    wrote,
)
from tests.compatibility.differential.cases_sequences import new_producer, numbered
from tests.compatibility.differential.cases_transactions import NEWER, mistaken, twice_started
from tests.compatibility.differential.engine import Explained, Teller, in_versions, once

VERSIONS = (3, 5, 7, 8, 9, 10, 11)
"""Where something changed; version 11 may be answered TRANSACTION_ABORTABLE (KIP-890)."""


def of(records: dict[str, list[bytes | bytearray]], name: str | None) -> ProduceRequest:
    """Batches for the partitions from 0 on of several topics."""
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=i, records=memoryview(one)) for i, one in enumerate(batches)],
        )
        for topic, batches in records.items()
    ]
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=data)


NO_DUPLICATE = Explained(
    "a transactional batch with the sequence numbers of one whose transaction has ended is out of order",
    "Kafka takes it for a duplicate and acknowledges it; librdkafka uses numbers of an aborted transaction again for "
    "other records if it took a batch for not stored, and they would be lost",
)


@in_versions(*VERSIONS)
def one_transaction_after_another(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    begun(t, me, topic)
    t.ask("the first batch", me.produce(topic, 0, b"a", b"b"))
    t.ask("the next", me.produce(topic, 2, b"c"))
    t.ask("with acks=1", me.produce(topic, 3, b"d", acks=1))
    t.silent("with acks=0", me.produce(topic, 4, b"e", acks=0))
    ended(t, me)
    begun(t, me, topic)
    t.ask("the second transaction", me.produce(topic, 5))
    ended(t, me, commit=False)
    begun(t, me, topic)
    t.ask("the third", me.produce(topic, 6))
    t.ask("what is there", fetch(topic), FETCH)


@in_versions(*VERSIONS)
def unverified(t: Teller) -> None:
    topic, me = new_topic(t, partitions=3), started(t)
    t.ask("nothing begun", me.produce(topic, 0))
    begun(t, me, topic, 0)
    t.ask("another partition", me.produce(topic, 0, partition=1))
    t.ask("the one that was added", me.produce(topic, 0))
    t.ask("both", of({topic: [me.batch(1), me.batch(0)]}, me.name))
    ended(t, me)
    t.ask("after the end", me.produce(topic, 2))
    begun(t, me, topic, 1)
    t.ask("in the next transaction, where it is not", me.produce(topic, 2))
    t.ask("where it is", me.produce(topic, 0, partition=1))
    for partition in range(3):
        t.ask(f"what is in partition {partition}", fetch(topic, 0, partition), FETCH)


@in_versions(*VERSIONS)
def of_others(t: Teller) -> None:
    topic, me = new_topic(t), twice_started(t)
    begun(t, me, topic)
    for what, producer in mistaken(t, me).items():
        t.ask(f"before the first batch, {what}", producer.produce(topic, 0))
    t.ask("the right one", me.produce(topic, 0))
    for what, producer in mistaken(t, me).items():
        if what != "an epoch to come":
            t.ask(f"after it, {what}", producer.produce(topic, 1))
    t.ask("what is there", fetch(topic), FETCH)
    t.ask("an epoch to come", me.but(epoch=me.epoch + 1).produce(topic, 0), but=EPOCH_IS_VERIFIED)


@in_versions(3, 8, 11)
def sequences(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    begun(t, me, topic, 0, 1)
    t.ask("not from 0 on", me.produce(topic, 7, partition=1))
    t.ask("sequence 0", me.produce(topic, 0, b"a", b"b"))
    t.ask("sequence 0 again", me.produce(topic, 0, b"a", b"b"))
    t.ask("a gap", me.produce(topic, 5))
    t.ask("half of one again", me.produce(topic, 0, b"a"))
    t.ask("the one that was due", me.produce(topic, 2))
    ended(t, me)
    t.ask("the last again, after the end", me.produce(topic, 2))
    t.ask("the one that is due, after the end", me.produce(topic, 3))
    begun(t, me, topic, 0)
    t.ask("the last again, in the next", me.produce(topic, 2), but=NO_DUPLICATE)
    t.ask("a gap in the next", me.produce(topic, 4))
    t.ask("the one that is due", me.produce(topic, 3))
    t.ask("what is there", fetch(topic), FETCH)


@in_versions(3, 8, 11)
def sequences_of_the_next_epoch(t: Teller) -> None:
    topic, old = new_topic(t), started(t)
    wrote(t, old, topic, 0)
    new = restarted(t, old.name)
    begun(t, new, topic)
    t.ask("not from 0 on", new.produce(topic, 1))
    t.ask("from 0 on", new.produce(topic, 0))
    t.ask("the old one", old.produce(topic, 1))
    t.ask("the old one's last again", old.produce(topic, 0))
    t.ask("what is there", fetch(topic), FETCH)
    t.ask("an epoch to come", new.but(epoch=new.epoch + 1).produce(topic, 0), but=EPOCH_IS_VERIFIED)


@in_versions(3, 8, 11)
def mixtures(t: Teller) -> None:
    topic, a, b = new_topic(t, partitions=4), started(t, "a"), started(t, "b")
    begun(t, a, topic, 0, 1, 2, 3)
    begun(t, b, topic, 0, 1, 2, 3)
    plain, idempotent = batch(b"plain"), numbered(new_producer(t), 0, 0)
    t.ask("plain records under its name", of({topic: [plain]}, a.name))
    t.ask("plain beside its own", of({topic: [a.batch(0), plain]}, a.name))
    t.ask("an idempotent producer's beside its own", of({topic: [a.batch(1), idempotent]}, a.name))
    t.ask("another transaction's beside its own", of({topic: [a.batch(2), b.batch(0)]}, a.name))
    t.ask("of two epochs", of({topic: [a.batch(3), a.but(epoch=a.epoch + 1).batch(0)]}, a.name))
    t.ask("its own, not transactional", of({topic: [a.batch(2, transactional=False)]}, a.name))
    t.ask("its own, not transactional, without a name", of({topic: [a.batch(2, transactional=False)]}, None))
    t.ask("transactional, without a name", of({topic: [a.batch(2)]}, None))
    t.ask("transactional, with an empty name", of({topic: [a.batch(2)]}, ""))
    t.ask("under the other's name", of({topic: [a.batch(3)]}, b.name))
    t.ask("without a producer id", of({topic: [batch(b"x", transactional=True)]}, a.name))
    for partition in range(4):
        t.ask(f"what is in partition {partition}", fetch(topic, 0, partition), FETCH)


@in_versions(3, 8, 11)
def not_transactional_within_a_transaction(t: Teller) -> None:
    """The same producer id and epoch, without the transactional bit, while its transaction is open and after it."""
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.ask("while it is open", produce(topic, me.batch(1, transactional=False)))
    ended(t, me)
    t.ask("after it", produce(topic, me.batch(1, transactional=False)))
    begun(t, me, topic)
    t.ask("the next", me.produce(topic, 2))
    t.ask("what is there", fetch(topic), FETCH)


@in_versions(3, 8, 11)
def where_there_is_nothing(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    begun(t, me, topic, 0)
    t.ask("an unknown topic", me.produce(t.name("none"), 0))
    t.ask("an unknown partition", me.produce(topic, 0, partition=9))
    t.ask("a good one beside it", of({topic: [me.batch(0)], t.name("none"): [me.batch(0)]}, me.name))
    t.ask("the groups' topic", me.produce("__consumer_offsets", 0))
    t.ask("the transactions' topic", me.produce("__transaction_state", 0))
    t.ask("what is there", fetch(topic), FETCH)


@in_versions(3, 8, 11)
def bad_batches(t: Teller) -> None:
    topic, me = new_topic(t, partitions=5), started(t)
    begun(t, me, topic, *range(5))
    good = me.batch(0)
    for partition, (label, records) in enumerate(
        (
            ("a control batch", bad(good, attributes=0x30)),
            ("a wrong checksum", bad(good, crc=1)),
            ("no sequence", bad(good, base_sequence=-1)),
            ("no epoch", bad(good, producer_epoch=-1)),
            ("two batches", bytes(good) + bytes(me.batch(1))),
        )
    ):
        t.ask(label, produce(topic, records, partition=partition, transactional_id=me.name))
        t.ask(f"{label}, without a name", produce(topic, records, partition=partition))
        t.ask(f"{label}: nobody has begun", producers_of(topic, partition), 0)
        t.ask(f"{label}, then a good one", me.produce(topic, 0, partition=partition))


@in_versions(3, 8, 11)
def a_batch_that_is_refused_leaves_no_transaction(t: Teller) -> None:
    topic, me = new_topic(t, max_message_bytes=200), started(t)
    begun(t, me, topic)
    t.ask("too large", me.produce(topic, 0, b"x" * 300))
    t.ask("what the log knows", producers_of(topic), 0)
    t.ask("what is stable", fetch(topic, isolation_level=1), FETCH)
    t.ask("small enough", me.produce(topic, 0))
    t.ask("what is stable then", fetch(topic, isolation_level=1), FETCH)


@in_versions(3, 8, 11)
def compressed(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    begun(t, me, topic)
    t.ask("gzip", produce(topic, me.batch(0, b"x" * 50, codec=1), transactional_id=me.name))
    t.ask("a topic that is compacted", me.produce(new_topic(t, "c", cleanup_policy="compact"), 0))
    stamped = new_topic(t, "s", message_timestamp_type="LogAppendTime")
    begun(t, me, stamped)
    t.ask("a topic that stamps", me.produce(stamped, 0))
    t.ask("what is there", fetch(topic, isolation_level=1), FETCH)


@in_versions(3, 8, 11)
def after_all_was_deleted(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.aside(delete_before(topic, -1), 2)
    t.ask("the transaction goes on", me.produce(topic, 1))
    ended(t, me)
    t.aside(delete_before(topic, -1), 2)
    begun(t, me, topic)
    t.ask("the next one, too", me.produce(topic, 2))
    t.ask("what the log knows", producers_of(topic), 0)


@once
def of_a_newer_kafka(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    t.ask("Produce 12", me.produce(topic, 0), 12, but=NEWER)
    t.ask("Produce 12 without a transaction", produce(topic, batch(b"a")), 12, but=NEWER)


@once
def what_a_producer_leaves(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("what the log knows", producers_of(topic), 0)
    ended(t, me)
    t.ask("how it stands after the end", describe(me.name), 0)
    t.ask("what the log knows after the end", producers_of(topic), 0)
    t.ask("late, and not transactional", produce(topic, me.batch(1, transactional=False)), PRODUCE)
