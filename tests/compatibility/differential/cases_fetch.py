"""Fetch: offsets, sizes, waits, epochs."""

from __future__ import annotations

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.compatibility.differential.asking import BEGINNING_MS, batch, fetch, produce
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once


def filled(t: Teller, stem: str = "t", batches: int = 3, value: bytes = b"value") -> str:
    """A topic whose partition 0 holds batches of two records each."""
    topic = t.topic(stem, partitions=2)
    for i in range(batches):
        t.aside(produce(topic, batch(value, value, time=BEGINNING_MS + 10 * i)), 8)
    return topic


@every_version("Fetch")
def offsets(t: Teller) -> None:
    topic = filled(t)
    t.ask("from the start", fetch(topic, 0))
    t.ask("inside a batch", fetch(topic, 3))
    t.ask("the last record", fetch(topic, 5))
    t.ask("at the end", fetch(topic, 6))
    t.ask("behind the end", fetch(topic, 7))
    t.ask("before the start", fetch(topic, -1))
    t.ask("-2", fetch(topic, -2))
    t.ask("an empty partition", fetch(topic, 0, 1))
    t.ask("only what is committed", fetch(topic, 0, isolation_level=1))
    t.ask("no topics", FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))


NULL_FOR_NONE = Explained(
    "a partition that is not there has null for its aborted transactions, as any partition with an error",
    "Kafka has null for some errors and an empty list for others; clients take both",
    "responses.*.partitions.*.aborted_transactions",
)


@in_versions(4, 5, 7, 11, 12, 13, 17)
def where_there_is_nothing(t: Teller) -> None:
    topic = filled(t)
    t.ask("unknown topic", fetch(t.name("none")), but=NULL_FOR_NONE)
    t.ask("unknown partition", fetch(topic, 0, 9), but=NULL_FOR_NONE)
    t.ask("partition -1", fetch(topic, 0, -1), but=NULL_FOR_NONE)
    t.ask("topic without a name", fetch(""), but=NULL_FOR_NONE)
    both = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in (9, 0)]
    t.ask("one good, one not", FetchRequest(topics=[FetchTopic(topic=topic, partitions=both)]), but=NULL_FOR_NONE)


NEGATIVE = Explained(
    "a negative size is a size of 0",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "**",
)


@in_versions(4, 11, 12, 13)
def sizes(t: Teller) -> None:
    topic = filled(t)
    one = len(batch(b"value", b"value"))
    for size in (0, 1, one - 1, one, one + 1, 2 * one):
        t.ask(f"partition {size - one:+d} to a batch", fetch(topic, 0, partition_max_bytes=size))
        t.ask(f"answer {size - one:+d} to a batch", fetch(topic, 0, max_bytes=size))
    t.ask("partition of -1 bytes", fetch(topic, 0, partition_max_bytes=-1), but=NEGATIVE)
    t.ask("answer of -1 bytes", fetch(topic, 0, max_bytes=-1), but=NEGATIVE)
    t.ask("as many as there are", fetch(topic, 0, min_bytes=3 * one, max_wait_ms=10_000))
    t.ask("more than there are", fetch(topic, 0, min_bytes=3 * one + 1, max_wait_ms=50))
    t.ask("more than may be", fetch(topic, 0, min_bytes=1 << 30, max_bytes=one, max_wait_ms=10_000))


@in_versions(4, 12, 13)
def several_partitions(t: Teller) -> None:
    """The first that has data gets a batch whatever its size; the others what is left."""
    topic = filled(t)
    for i in range(2):
        t.aside(produce(topic, batch(b"other", time=BEGINNING_MS + i), partition=1), 8)
    one = len(batch(b"value", b"value"))

    def both(**more: int) -> FetchRequest:
        asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in (1, 0)]
        return FetchRequest(**{"min_bytes": 1} | more, topics=[FetchTopic(topic=topic, partitions=asked)])

    t.ask("room for all", both(max_bytes=1 << 20))
    t.ask("room for one batch", both(max_bytes=one))
    t.ask("room for nothing", both(max_bytes=1))
    t.ask("nothing", both(max_bytes=0))


@in_versions(4, 11, 13, 16)
def waiting(t: Teller) -> None:
    topic = filled(t)
    t.send(fetch(topic, 6, max_wait_ms=10_000), by="reader")
    t.ask("meanwhile", produce(topic, batch(b"late", time=BEGINNING_MS + 99)), 8)
    t.take("what came", by="reader")
    t.ask("nothing came", fetch(topic, 8, max_wait_ms=50))
    t.ask("not waiting for nothing", fetch(topic, 8, min_bytes=0, max_wait_ms=10_000))
    t.ask("an error does not wait", fetch(topic, 99, min_bytes=1 << 20, max_wait_ms=10_000))


@in_versions(9, 11, 12, 13, 16)
def leader_epochs(t: Teller) -> None:
    topic = filled(t)
    for epoch in (-1, 0, 1, 9, -2):
        t.ask(f"current epoch {epoch}", fetch(topic, 0, current_leader_epoch=epoch))


@in_versions(12, 13, 17)
def epochs_that_diverge(t: Teller) -> None:
    topic = filled(t)
    for epoch, offset in ((0, 0), (0, 6), (0, 7), (1, 0), (5, 6), (-1, 0), (-2, 0)):
        t.ask(f"last epoch {epoch} at {offset}", fetch(topic, offset, last_fetched_epoch=epoch))


UNKNOWN_LEVEL = Explained(
    "an isolation level that there is not reads what is uncommitted",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "**",
)


@in_versions(5, 11, 14, 15, 17)
def who_asks(t: Teller) -> None:
    def by_replica(replica_id: int) -> FetchRequest:
        if t.v < 15:
            return fetch(topic, 0, replica_id=replica_id)
        return fetch(topic, 0, replica_state=ReplicaState(replica_id=replica_id, replica_epoch=1))

    topic = filled(t)
    t.ask("a start offset of its own", fetch(topic, 0, log_start_offset=3))
    t.ask("replica -1", by_replica(-1))
    t.ask("replica -2, a debugger", by_replica(-2))
    t.ask("replica 1, the broker itself", by_replica(1))
    t.ask("replica 9, which there is not", by_replica(9))
    if t.v >= 11:
        t.ask("a rack", fetch(topic, 0, rack_id="nowhere"))
    t.ask("isolation level 2", fetch(topic, 0, isolation_level=2), but=UNKNOWN_LEVEL)


@once
def a_partition_twice(t: Teller) -> None:
    topic = filled(t)
    asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20) for offset in (0, 4)]
    t.ask("at two offsets", FetchRequest(min_bytes=1, topics=[FetchTopic(topic=topic, partitions=asked)]), 11)


OTHER_BYTES = Explained(
    "what the broker compresses has other bytes",
    "each has a zstd library of its own; the records are the same",
    "responses.*.partitions.*.records.*",
)
NEVER_NULL = Explained(
    "no records are sent as nothing, never as null",
    "librdkafka takes null for a broken answer",
    "responses.*.partitions.*.records",
)


@in_versions(4, 9, 10)
def zstd_and_old_readers(t: Teller) -> None:
    topic = t.topic(compression_type="zstd")
    t.aside(produce(topic, batch(b"value" * 20)), 8)
    t.ask("compressed by the broker", fetch(topic), but=OTHER_BYTES if t.v >= 10 else (NEVER_NULL, NULL_FOR_NONE))


@in_versions(13, 14, 15, 16, 17)
def by_id(t: Teller) -> None:
    topic, other = filled(t), filled(t, "other")
    t.ask("an id that no topic has", fetch(t.name("none")), but=NULL_FOR_NONE)
    t.ask("the id of nothing", fetch("", topic_id=ZERO_UUID), but=NULL_FOR_NONE)
    t.ask("no such partition", fetch(topic, 0, 9), but=NULL_FOR_NONE)

    def of(*names: str) -> FetchRequest:
        one = FetchPartition(partition=0, fetch_offset=4, partition_max_bytes=1 << 20)
        return FetchRequest(min_bytes=1, topics=[FetchTopic(topic=name, partitions=[one]) for name in names])

    t.ask("two topics", of(topic, other))
    t.ask("one good, one not", of(t.name("none"), other), but=NULL_FOR_NONE)


@in_versions(12, 13, 16)
def of_a_topic_that_was_made_again(t: Teller) -> None:
    topic = filled(t)
    old = t.id_of(topic)
    t.ask("at first", fetch(topic))
    t.aside(delete(topic), 5)
    gone_from(t, topic)
    t.ask("gone", fetch(topic), but=NULL_FOR_NONE)
    filled(t, batches=1)
    t.ask("by the id that it had", fetch(topic, topic_id=old), but=NULL_FOR_NONE if t.v >= 13 else None)
    t.ask("by the id that it has", fetch(topic))


@in_versions(4, 12, 13, 16)
def deleted_while_it_was_waited_for(t: Teller) -> None:
    topic = t.topic()
    t.send(fetch(topic, 0, max_wait_ms=10_000), by="reader")
    t.ask("meanwhile", delete(topic), 5)
    t.take("what became of it", by="reader")


NEVER_OVER_MS = 2**31 - 1
MORE_THAN_THERE_IS = 1 << 19


def in_segments(t: Teller, stem: str = "t", batches: int = 3) -> str:
    """A topic whose partition 0 has a segment for each batch of two records."""
    one = len(batch(b"value", b"value"))
    topic = t.topic(stem, partitions=2, segment_bytes=one + one // 2)
    for i in range(batches):
        t.aside(produce(topic, batch(b"value", b"value", time=BEGINNING_MS + 10 * i)), 8)
    return topic


def patient(topic: str, offset: int, partition: int = 0, **more: int) -> FetchRequest:
    """A fetch that would wait for ever: that it is answered is what is asked."""
    return fetch(topic, offset, partition, **{"min_bytes": MORE_THAN_THERE_IS, "max_wait_ms": NEVER_OVER_MS} | more)


@in_versions(0, 1, 2, 3, 4, 11, 12, 13, 17)
def not_waiting_in_an_older_segment(t: Teller) -> None:
    topic = in_segments(t)
    t.ask("in the first segment", patient(topic, 0))
    t.ask("inside its batch", patient(topic, 1))
    t.ask("in the last but one", patient(topic, 2))
    t.ask("in the last", patient(topic, 4, max_wait_ms=50))
    t.ask("with room for nothing", patient(topic, 2, partition_max_bytes=0))
    t.ask("only what is committed", patient(topic, 0, isolation_level=1))


@in_versions(0, 3, 4, 11, 13, 17)
def a_new_segment_ends_the_wait(t: Teller) -> None:
    topic = in_segments(t, batches=1)
    t.send(patient(topic, 0), by="a reader of what is there")
    t.send(patient(topic, 2, max_wait_ms=3000), by="a reader at the end")  # which may come after the producer
    t.ask("meanwhile", produce(topic, batch(b"value", b"value", time=BEGINNING_MS + 99)), 8)
    t.take("from the start", by="a reader of what is there")
    t.take("from the end", by="a reader at the end")


@in_versions(4, 11, 13)
def a_partition_that_need_not_wait_answers_for_all(t: Teller) -> None:
    topic = in_segments(t)

    def of(*offsets: tuple[int, int], max_bytes: int = 1 << 20) -> FetchRequest:
        asked = [FetchPartition(partition=i, fetch_offset=at, partition_max_bytes=1 << 20) for i, at in offsets]
        topics = [FetchTopic(topic=topic, partitions=asked)]
        return FetchRequest(
            max_wait_ms=NEVER_OVER_MS, min_bytes=max_bytes if max_bytes < 1 << 20 else MORE_THAN_THERE_IS,
            max_bytes=max_bytes, topics=topics,
        )  # fmt: skip

    t.ask("behind one that waits", of((1, 0), (0, 0)))
    t.aside(produce(topic, batch(b"value", b"value", time=BEGINNING_MS), partition=1), 8)
    one = len(batch(b"value", b"value"))
    t.ask("more than fits into one answer", of((1, 0), (0, 4), max_bytes=one + one // 2))


@in_versions(7, 11, 13, 17)
def a_session_that_need_not_wait(t: Teller) -> None:
    topic = in_segments(t)
    opened = t.aside(fetch(topic, 6, session_epoch=0), t.v)
    session = {"session_id": opened.session_id}
    again = patient(topic, 0, session_epoch=1, **session)
    t.ask("in an older segment", again)
    t.ask("of the session alone", FetchRequest(
        max_wait_ms=NEVER_OVER_MS, min_bytes=MORE_THAN_THERE_IS, session_epoch=2, topics=[], **session
    ))  # fmt: skip


@in_versions(0, 3, 4, 11, 13)
def a_partition_counts_no_more_than_it_may_send(t: Teller) -> None:
    """More appends do not end the wait of a client that may not be sent more."""
    topic = filled(t, batches=1)
    one = len(batch(b"value", b"value"))
    t.send(patient(topic, 0, min_bytes=2 * one, partition_max_bytes=one, max_wait_ms=300), by="reader")
    for i in range(3):
        t.aside(produce(topic, batch(b"value", b"value", time=BEGINNING_MS + 50 + i)), 8)
    t.take("after the time", by="reader")
