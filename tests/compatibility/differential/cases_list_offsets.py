"""ListOffsets: earliest, latest, by time, the largest time."""

from __future__ import annotations

from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.record.compression import CODECS
from tests.compatibility.differential.asking import BEGINNING_MS, batch, delete_before, list_offsets, produce
from tests.compatibility.differential.engine import (
    Explained,
    Teller,
    every_version,
    in_versions,
    in_versions_of_4_3,
    once,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def filled(t: Teller, **config: object) -> str:
    """Three batches of three records; the times are 0..2, 100..102 and 50..52 after the beginning."""
    topic = t.topic(partitions=2, **config)
    for after, codec in ((0, "none"), (100, "gzip"), (50, "none")):
        records = batch(b"a", b"b", b"c", time=BEGINNING_MS + after, codec=CODECS.get(codec, 0))
        t.aside(produce(topic, records), 8)
    return topic


@every_version("ListOffsets")
def of_a_partition(t: Teller) -> None:
    topic = filled(t)
    t.ask("latest", list_offsets(topic, LATEST))
    t.ask("earliest", list_offsets(topic, EARLIEST))
    for after in (-1, 0, 1, 3, 50, 100, 101, 102, 103):
        t.ask(f"the beginning {after:+d} ms", list_offsets(topic, BEGINNING_MS + after))
    t.ask("time 0", list_offsets(topic, 0))
    t.ask("latest of an empty one", list_offsets(topic, LATEST, 1))
    t.ask("earliest of an empty one", list_offsets(topic, EARLIEST, 1))
    t.ask("by time of an empty one", list_offsets(topic, BEGINNING_MS, 1))
    t.ask("only what is committed", list_offsets(topic, LATEST, isolation_level=1))


@in_versions(1, 4, 5, 6, 7, 9)
def the_largest_time(t: Teller) -> None:
    topic = filled(t)
    t.ask("-3", list_offsets(topic, MAX_TIMESTAMP))
    t.ask("-3 of an empty one", list_offsets(topic, MAX_TIMESTAMP, 1))


@in_versions(1, 4, 7, 8, 9)
def times_of_other_places(t: Teller) -> None:
    topic = filled(t)
    for time in (EARLIEST_LOCAL, LATEST_TIERED, -6, -99, -(1 << 63)):
        t.ask(f"{time}", list_offsets(topic, time))
        t.ask(f"{time} of an empty one", list_offsets(topic, time, 1))
        t.ask(f"{time}, an epoch to come", list_offsets(topic, time, epoch=9))


@in_versions_of_4_3(10, 11)
def times_of_other_places_today(t: Teller) -> None:
    topic = filled(t)
    for time in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, -6, -7, -99, -(1 << 63)):
        t.ask(f"{time}", list_offsets(topic, time))
        t.ask(f"{time} of an empty one", list_offsets(topic, time, 1))
        t.ask(f"{time}, an epoch to come", list_offsets(topic, time, epoch=9))
    t.ask("unknown topic", list_offsets(t.name("none"), LATEST))


@in_versions(1, 4, 7, 9)
def where_there_is_nothing(t: Teller) -> None:
    topic = t.topic()
    t.ask("unknown topic", list_offsets(t.name("none"), LATEST))
    t.ask("unknown partition", list_offsets(topic, LATEST, 9))
    t.ask("partition -1", list_offsets(topic, LATEST, -1))
    t.ask("topic without a name", list_offsets("", LATEST))
    asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 0)]
    t.ask(
        "a partition twice", ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    )
    t.ask("nothing", ListOffsetsRequest(replica_id=-1, topics=[]))


@in_versions(4, 7, 9)
def leader_epochs(t: Teller) -> None:
    topic = filled(t)
    for epoch in (-1, 0, 1, 9, -2):
        t.ask(f"epoch {epoch}", list_offsets(topic, LATEST, epoch=epoch))
        t.ask(f"epoch {epoch}, by time", list_offsets(topic, BEGINNING_MS, epoch=epoch))


UNKNOWN_LEVEL = Explained(
    "an isolation level that there is not reads what is uncommitted",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "topics.**",
)


@in_versions(1, 7)
def who_asks(t: Teller) -> None:
    topic = filled(t)
    for replica in (-1, -2, 0, 1, -3):
        t.ask(f"replica {replica}", list_offsets(topic, LATEST, replica_id=replica))
    if t.v >= 2:
        for level in (2, -1):
            request = list_offsets(topic, LATEST, isolation_level=level)
            t.ask(f"isolation level {level}", request, but=UNKNOWN_LEVEL)


@in_versions(1, 7, 8)
def after_records_were_deleted(t: Teller) -> None:
    topic = filled(t)
    t.aside(delete_before(topic, 4), 1)
    for label, time in (("earliest", EARLIEST), ("by time", BEGINNING_MS), ("latest", LATEST)):
        t.ask(label, list_offsets(topic, time))
    if t.v >= 7:
        t.ask("the largest time", list_offsets(topic, MAX_TIMESTAMP))
    if t.v >= 8:
        t.ask("the earliest here", list_offsets(topic, EARLIEST_LOCAL))


@once
def stamped_by_the_broker(t: Teller) -> None:
    topic = t.topic(message_timestamp_type="LogAppendTime")
    t.aside(produce(topic, batch(b"a", b"b")), 8)  # one batch: two could be stamped with the same millisecond
    t.ask("the largest time", list_offsets(topic, MAX_TIMESTAMP), 7)
    t.ask("by time", list_offsets(topic, BEGINNING_MS), 7)
