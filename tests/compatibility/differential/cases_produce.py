"""Produce: batches that are taken, and what an answer says of them."""

from __future__ import annotations

from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.compression import CODECS
from tests.compatibility.differential.asking import BEGINNING_MS, batch, fetch, is_verified, message_set, produce
from tests.compatibility.differential.engine import (
    Explained,
    Teller,
    every_version,
    in_versions,
    in_versions_of_4_3,
    once,
)


@every_version("Produce")
def a_batch(t: Teller) -> None:
    topic = t.topic(partitions=2)
    records = batch(b"a", b"b", b"c") if t.v >= 3 else message_set(t.v // 2, b"a", b"b", b"c")
    t.ask("three records", produce(topic, records))
    t.ask("acks=1", produce(topic, records, acks=1))
    t.ask("two partitions", produce(topic, records, records))
    t.ask("nothing", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]))
    empty = [TopicProduceData(name=topic, partition_data=[])]
    t.ask("a topic without partitions", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=empty))
    t.silent("acks=0", produce(topic, records, acks=0))
    t.ask("what is there now", fetch(topic), 11)


@in_versions(0, 3, 5, 8, 9, 10, 11)
def where_there_is_nothing(t: Teller) -> None:
    topic = t.topic()
    records = batch(b"a") if t.v >= 3 else message_set(0, b"a")
    t.ask("unknown topic", produce(t.name("none"), records))
    t.ask("unknown partition", produce(topic, records, partition=7))
    t.ask("partition -1", produce(topic, records, partition=-1))
    t.ask("topic without a name", produce("", records))
    t.ask("topic that cannot be", produce("d/x", records))
    t.ask("one good, one not", produce(topic, records, records))


OF_A_CORRUPT_BATCH = Explained(
    "an answer of versions 12 and 13 says of a corrupt batch that its checksum is wrong",
    "Kafka 3.9 says so, too; 4.3 has no message for it",
    "responses.**.error_message",
)


@in_versions_of_4_3(12, 13)
def where_there_is_nothing_today(t: Teller) -> None:
    topic, records = t.topic(), batch(b"a")
    t.ask("unknown topic", produce(t.name("none"), records))
    t.ask("unknown partition", produce(topic, records, partition=7))
    t.ask("partition -1", produce(topic, records, partition=-1))
    t.ask("one good, one not", produce(topic, records, records))
    both = ProduceRequest(acks=-1, timeout_ms=1000)
    for name in (t.name("none"), topic, t.name("neither")):
        both.topic_data += produce(name, records).topic_data
    t.ask("a good topic between unknown ones", both)
    t.ask("acks=2", produce(topic, records, acks=2))
    t.ask("a bad checksum", produce(topic, records[:-1] + b"x"), but=OF_A_CORRUPT_BATCH)
    t.silent("acks=0", produce(topic, records, acks=0))
    t.silent("acks=0, unknown topic", produce(t.name("none"), records, acks=0), by="b")
    t.ask("what is there now", fetch(topic), 11)


@in_versions_of_4_3(13)
def ids_and_names(t: Teller) -> None:
    topic = t.topic()
    t.ask("without an id", produce("", batch(b"a")))
    request = produce("", batch(b"a"))
    request.topic_data[0].topic_id = t.id_of(topic)
    t.ask("of an id", request)


@in_versions(0, 3, 9, 11)
def acks_that_cannot_be(t: Teller) -> None:
    topic = t.topic()
    records = batch(b"a") if t.v >= 3 else message_set(0, b"a")
    for acks in (2, -2, 100):
        t.ask(f"acks={acks}", produce(topic, records, acks=acks))
    t.ask("of no topics", ProduceRequest(acks=5, timeout_ms=1000, topic_data=[]))


@in_versions(3, 7, 9, 11)
def acks_0_with_an_error(t: Teller) -> None:
    t.silent("unknown topic", produce(t.name("none"), batch(b"a"), acks=0))
    topic = t.topic()
    t.silent("a bad checksum", produce(topic, batch(b"a")[:-1] + b"x", acks=0), by="b")
    t.silent("unknown partition", produce(topic, batch(b"a"), acks=0, partition=9), by="c")


@in_versions(3, 7, 9, 11)
def every_codec(t: Teller) -> None:
    topic = t.topic()
    for name, codec in CODECS.items():
        if t.v >= 7 or name != "zstd":
            t.ask(name, produce(topic, batch(b"one" * 30, b"two" * 30, codec=codec)))
    t.ask("what is there now", fetch(topic), 11)


WHOLE_BATCH = Explained(
    "of a batch whose largest time is too late no single records are named",
    "the header tells of the largest time; no record is looked at",
    "responses.*.partition_responses.*.record_errors.*",
)


@in_versions(3, 8)
def times(t: Teller) -> None:
    topic, stamped = t.topic(), t.topic("stamped", message_timestamp_type="LogAppendTime")
    t.ask("of the producer", produce(topic, batch(b"a", time=BEGINNING_MS + 5)))
    t.ask("of the broker", produce(stamped, batch(b"a", b"b")))
    t.ask("its records", fetch(stamped), 11)
    t.ask("no time", produce(topic, batch(b"a", time=-1)))
    t.ask("time 0", produce(topic, batch(b"a", time=0)))
    late = t.topic("late", message_timestamp_after_max_ms=1000)
    but = WHOLE_BATCH if t.v >= 8 else None
    t.ask("too late", produce(late, batch(b"a", b"b", time=4_000_000_000_000)), but=but)
    early = t.topic("early", message_timestamp_before_max_ms=1000)
    t.ask("too early", produce(early, batch(b"a", b"b")))


@in_versions(3, 8)
def another_codec_on_disk(t: Teller) -> None:
    for name in ("gzip", "zstd", "uncompressed"):
        topic = t.topic(name, compression_type=name)
        t.ask(f"to {name}", produce(topic, batch(b"a" * 100, b"b" * 100, codec=CODECS["lz4"])))


@in_versions(3, 8, 9, 11)
def compacted_topics(t: Teller) -> None:
    topic = t.topic(cleanup_policy="compact")
    t.ask("with a key", produce(topic, batch(b"a", key=b"k")))
    t.ask("without", produce(topic, batch(b"a", b"b")))
    t.ask("a tombstone", produce(topic, batch(None, key=b"k")))


BOTH = Explained(
    "a topic or partition that is named twice in a request is answered twice, and both batches are appended",
    "Kafka drops the first batch without a word; no client sends such a request",
    "responses.**",
)


@once
def a_topic_or_partition_twice(t: Teller) -> None:
    topic = t.topic(partitions=2)

    def data(value: bytes, index: int = 0) -> PartitionProduceData:
        return PartitionProduceData(index=index, records=memoryview(batch(value)))

    one_topic = [TopicProduceData(name=topic, partition_data=[data(b"a"), data(b"b")])]
    t.ask("a partition", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=one_topic), 9, but=BOTH)
    two_topics = [TopicProduceData(name=topic, partition_data=[data(b"c", i)]) for i in range(2)]
    t.ask("a topic", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=two_topics), 9, but=BOTH)


@in_versions(3, 9, 11)
def with_a_transactional_id(t: Teller) -> None:
    topic = t.topic()
    t.aside(FindCoordinatorRequest(key=t.name("tx"), key_type=1), 2)
    records = batch(b"a", producer_id=777, producer_epoch=0, base_sequence=0, transactional=True)
    t.ask("never registered", produce(topic, records, transactional_id=t.name("tx")), until=is_verified)
    t.ask("but no transactional batch", produce(topic, batch(b"a"), transactional_id=t.name("tx")))


@in_versions(3, 9, 11)
def to_internal_topics(t: Teller) -> None:
    t.ask("the groups' topic", produce("__consumer_offsets", batch(b"a", key=b"k")))


@in_versions(3, 9, 11)
def fewer_replicas_than_asked(t: Teller) -> None:
    topic = t.topic(min_insync_replicas=2)
    t.ask("acks=all", produce(topic, batch(b"a")))
    t.ask("acks=1", produce(topic, batch(b"a"), acks=1))
