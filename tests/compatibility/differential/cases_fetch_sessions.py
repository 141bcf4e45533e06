"""Fetch: sessions (KIP-227)."""

from __future__ import annotations

from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.compatibility.differential.asking import BEGINNING_MS, batch, fetch, forgotten, produce
from tests.compatibility.differential.cases_fetch import NULL_FOR_NONE
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once


def add(t: Teller, topic: str, partition: int = 0, time: int = 0) -> None:
    t.aside(produce(topic, batch(b"value", time=BEGINNING_MS + time), partition=partition), 8)


def nothing_new(session: int, epoch: int, **more: object) -> FetchRequest:
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "session_id": session, "session_epoch": epoch, "topics": []} | more
    )


@in_versions(7, 11, 12, 13, 17)
def a_session(t: Teller) -> None:
    topic = t.topic(partitions=3)
    add(t, topic)
    asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in range(2)]
    first = FetchRequest(min_bytes=1, session_id=0, session_epoch=0, topics=[FetchTopic(topic=topic, partitions=asked)])
    session = t.ask("opened", first).session_id
    t.ask("read on", fetch(topic, 1, session_id=session, session_epoch=1))
    t.ask("nothing new", nothing_new(session, 2))
    add(t, topic, 1)
    t.ask("news of partition 1", nothing_new(session, 3))
    t.ask("one more partition", fetch(topic, 0, 2, session_id=session, session_epoch=4))
    t.ask("partition 1 forgotten", nothing_new(session, 5, forgotten_topics_data=forgotten(topic, 1)))
    t.ask("forgotten what was not known", nothing_new(session, 6, forgotten_topics_data=forgotten(topic, 77)))
    t.ask("an unknown partition", fetch(topic, 0, 9, session_id=session, session_epoch=7), but=NULL_FOR_NONE)
    t.ask("it stays unknown", nothing_new(session, 8), but=NULL_FOR_NONE)
    t.ask("closed", nothing_new(session, -1))
    t.ask("it is gone", nothing_new(session, 9))


@in_versions(7, 11, 12, 13, 17)
def ids_and_epochs_that_cannot_be(t: Teller) -> None:
    topic = t.topic()
    t.ask("no such session", fetch(topic, session_id=123456, session_epoch=1))
    t.ask("no session, epoch 1", fetch(topic, session_id=0, session_epoch=1))
    t.ask("negative session", fetch(topic, session_id=-5, session_epoch=3))
    t.ask("epoch -2", fetch(topic, session_id=0, session_epoch=-2))
    session = t.ask("opened", fetch(topic, session_id=0, session_epoch=0)).session_id
    t.ask("an epoch ahead", nothing_new(session, 2))
    t.ask("the right one still goes", nothing_new(session, 1))
    t.ask("the same again", nothing_new(session, 1))
    t.ask("opened anew in its place", fetch(topic, session_id=session, session_epoch=0))
    t.ask("the old one is gone", nothing_new(session, 2))


@every_version("Fetch")
def without_a_session(t: Teller) -> None:
    topic = t.topic()
    add(t, topic)
    t.ask("epoch -1", fetch(topic, session_id=0, session_epoch=-1))


NO_EMPTY_SESSION = Explained(
    "no session is opened for no partitions",
    "Kafka opens one, and clients go on with whatever id they are given",
    "session_id",
)


@in_versions(7, 12, 13, 16)
def a_session_of_nothing(t: Teller) -> None:
    t.ask("opened without partitions", nothing_new(0, 0), but=NO_EMPTY_SESSION)


@in_versions(7, 12, 13, 16)
def offsets_that_cannot_be_in_a_session(t: Teller) -> None:
    topic = t.topic()
    add(t, topic)
    session = t.ask("opened behind the end", fetch(topic, 99, session_id=0, session_epoch=0)).session_id
    t.ask("again", nothing_new(session, 1))
    t.ask("put right", fetch(topic, 0, session_id=session, session_epoch=2))
    t.ask("and on", fetch(topic, 1, session_id=session, session_epoch=3))


@in_versions(7, 12, 13, 16)
def partitions_take_turns(t: Teller) -> None:
    """A partition that returned data moves to the end."""
    topic = t.topic(partitions=3)
    for i in range(3):
        add(t, topic, i)
        add(t, topic, i, 1)
    asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in range(3)]
    first = FetchRequest(min_bytes=1, max_bytes=1, session_id=0, session_epoch=0,
                         topics=[FetchTopic(topic=topic, partitions=asked)])  # fmt: skip
    session = t.ask("opened", first).session_id
    for epoch in range(1, 5):
        t.ask(f"turn {epoch}", nothing_new(session, epoch, max_bytes=1))


@in_versions(7, 12, 13)
def all_forgotten(t: Teller) -> None:
    topic = t.topic(partitions=2)
    asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in range(2)]
    first = FetchRequest(min_bytes=1, session_id=0, session_epoch=0, max_wait_ms=0,
                         topics=[FetchTopic(topic=topic, partitions=asked)])  # fmt: skip
    session = t.ask("opened", first).session_id
    t.ask("one forgotten", nothing_new(session, 1, forgotten_topics_data=forgotten(topic, 0)))
    t.ask("the other too", nothing_new(session, 2, forgotten_topics_data=forgotten(topic, 1)))
    t.ask("it is gone", nothing_new(session, 3))


@once
def names_and_ids_do_not_mix(t: Teller) -> None:
    topic = t.topic()
    for names, ids in ((7, 13), (12, 17)):
        of_names = t.ask("opened with a name", fetch(topic, session_id=0, session_epoch=0), names).session_id
        t.ask("an id", fetch(topic, session_id=of_names, session_epoch=1), ids)
        t.ask("nothing, but in the words of ids", nothing_new(of_names, 1), ids)
        t.ask("the session is as it was", nothing_new(of_names, 1), names)
        of_ids = t.ask("opened with an id", fetch(topic, session_id=0, session_epoch=0), ids).session_id
        t.ask("a name", fetch(topic, session_id=of_ids, session_epoch=1), names)
        t.ask("out of step too", fetch(topic, session_id=of_ids, session_epoch=5), names)
        t.ask("that session is as it was", nothing_new(of_ids, 1), ids)


@in_versions(12, 13, 16)
def a_topic_that_is_made_again(t: Teller) -> None:
    """A session of ids knows the topic as it was until its client says the new id."""
    topic = t.topic()
    add(t, topic)
    old = t.id_of(topic)
    session = t.ask("opened", fetch(topic, 0, session_id=0, session_epoch=0)).session_id
    t.aside(delete(topic), 5)
    gone_from(t, topic)
    t.ask("gone", nothing_new(session, 1), but=NULL_FOR_NONE)
    t.ask("still gone", nothing_new(session, 2), but=NULL_FOR_NONE)
    t.topic()
    add(t, topic)
    t.ask("another of its name", nothing_new(session, 3))
    if t.v >= 13:
        swap = fetch(
            topic, 0, session_id=session, session_epoch=4, forgotten_topics_data=forgotten(topic, 0, topic_id=old)
        )
        t.ask("the new for the old", swap)
        t.ask("and on", fetch(topic, 1, session_id=session, session_epoch=5))


@in_versions(13, 17)
def an_id_that_no_topic_has(t: Teller) -> None:
    topic, none = t.topic(), t.name("none")
    session = t.ask("opened", fetch(none, session_id=0, session_epoch=0), but=NULL_FOR_NONE).session_id
    t.ask("still none", nothing_new(session, 1), but=NULL_FOR_NONE)
    t.ask("one more, that there is", fetch(topic, session_id=session, session_epoch=2), but=NULL_FOR_NONE)
    t.ask("forgotten", nothing_new(session, 3, forgotten_topics_data=forgotten(none, 0)))
