"""DeleteRecords."""

from __future__ import annotations

from kafkalite.protocol.messages.topics import DeleteRecordsRequest
from tests.compatibility.differential.asking import batch, delete_before, fetch, list_offsets, produce
from tests.compatibility.differential.engine import Teller, every_version, in_versions


def filled(t: Teller, stem: str = "t", **config: object) -> str:
    topic = t.topic(stem, partitions=2, **config)
    for _ in range(3):
        t.aside(produce(topic, batch(b"a", b"b", key=b"k")), 8)
    return topic


@every_version("DeleteRecords")
def from_the_front(t: Teller) -> None:
    topic = filled(t)
    t.ask("before 2", delete_before(topic, 2))
    t.ask("the start has moved", list_offsets(topic, -2), 5)
    t.ask("inside a batch", delete_before(topic, 3))
    t.ask("read before the start", fetch(topic, 2), 11)
    t.ask("read inside the batch", fetch(topic, 3), 11)
    t.ask("less than before", delete_before(topic, 1))
    t.ask("all", delete_before(topic, -1))
    t.ask("all of an empty one", delete_before(topic, -1, partition=1))
    t.ask("it goes on", produce(topic, batch(b"c", key=b"k")), 8)
    t.ask("nothing", DeleteRecordsRequest(topics=[], timeout_ms=1000))


@in_versions(0, 2)
def offsets_that_cannot_be(t: Teller) -> None:
    topic = filled(t)
    for offset in (7, 1 << 40, -2):
        t.ask(f"before {offset}", delete_before(topic, offset))
    t.ask("one good, one not", delete_before(topic, 1, 5))


@in_versions(0, 2)
def where_there_is_nothing(t: Teller) -> None:
    topic = filled(t)
    t.ask("unknown topic", delete_before(t.name("none"), 1))
    t.ask("unknown partition", delete_before(topic, 1, partition=9))
    t.ask("the groups' topic", delete_before("__consumer_offsets", 0))


@in_versions(0, 2)
def compacted_topics(t: Teller) -> None:
    t.ask("only compacted", delete_before(filled(t, cleanup_policy="compact"), 1))
    t.ask("compacted and deleted", delete_before(filled(t, "both", cleanup_policy="compact,delete"), 1))
