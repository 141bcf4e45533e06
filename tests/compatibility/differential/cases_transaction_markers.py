"""WriteTxnMarkers: what a coordinator sends to the brokers that lead a transaction's partitions."""

from __future__ import annotations

from kafkalite.protocol.messages.transactions import WriteTxnMarkersRequest
from tests.compatibility.differential.asking import fetch
from tests.compatibility.differential.asking_transactions import (
    END,
    FETCH,
    PRODUCE,
    Producer,
    describe,
    markers,
    new_topic,
    producers_of,
    restarted,
    started,
    wrote,
)
from tests.compatibility.differential.engine import Explained, Teller, every_version, once_in_4_3

NO_EPOCH = Explained(
    "a marker without an epoch is refused with INVALID_PRODUCER_EPOCH",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "markers.*.topics.*.partitions.*.error_code",
)
ANSWERED_ONCE = Explained(
    "a partition that is named twice in a marker is answered once, and both markers are written",
    "Kafka counts it twice and never answers",
)


def look(t: Teller, topic: str, when: str, partition: int = 0) -> None:
    t.ask(f"{when}: what is there", fetch(topic, 0, partition), FETCH)
    t.ask(f"{when}: what is committed", fetch(topic, 0, partition, isolation_level=1), FETCH)
    t.ask(f"{when}: what the log knows", producers_of(topic, partition), 0)


@every_version("WriteTxnMarkers")
def written(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    wrote(t, me, topic, 0)
    wrote(t, me, topic, 0, partition=1)
    t.ask("committed in partition 0", markers((me, True, {topic: [0]}, 0)))
    t.ask("aborted in partition 1", markers((me, False, {topic: [1]}, 0)))
    look(t, topic, "partition 0")
    look(t, topic, "partition 1", 1)
    t.ask("the coordinator knows nothing of it", describe(me.name), 0)
    t.ask("and commits all", me.end(), END)
    t.ended(me.name)
    look(t, topic, "partition 1 in the end", 1)


@every_version("WriteTxnMarkers")
def without_a_transaction(t: Teller) -> None:
    topic, me = new_topic(t, partitions=3), started(t)
    t.ask("commit", markers((me, True, {topic: [0]}, 0)))
    t.ask("abort", markers((me, False, {topic: [0]}, 0)))
    t.ask("of a producer that nobody knows", markers((Producer("", 6_000_000, 3), True, {topic: [1]}, 0)))
    look(t, topic, "partition 0")
    look(t, topic, "partition 1", 1)


@every_version("WriteTxnMarkers")
def epochs_of_coordinators(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    sequences = iter(range(2))
    for epoch in (5, 4, 5, 6, -1):
        wrote(t, me, topic, next(sequences)) if epoch == 5 else None
        t.ask(f"epoch {epoch}", markers((me, True, {topic: [0]}, epoch)))
    look(t, topic, "afterwards")


@every_version("WriteTxnMarkers")
def epochs_of_producers(t: Teller) -> None:
    topic, old = new_topic(t), started(t)
    new = restarted(t, old.name)
    wrote(t, new, topic, 0)
    t.ask("an old epoch", markers((old, True, {topic: [0]}, 0)))
    t.ask("no epoch", markers((new.but(epoch=-1), True, {topic: [0]}, 0)), but=NO_EPOCH)
    look(t, topic, "still open")
    newer = new.but(epoch=new.epoch + 4)
    t.ask("an epoch to come", markers((newer, False, {topic: [0]}, 0)))
    look(t, topic, "aborted")
    t.ask("the producer goes on", new.produce(topic, 1), 12 if t.v >= 2 else PRODUCE)
    t.ask("the producer of that epoch", newer.produce(topic, 0), PRODUCE)


@every_version("WriteTxnMarkers")
def where_there_is_nothing(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.ask("an unknown topic", markers((me, True, {t.name("none"): [0]}, 0)))
    t.ask("an unknown partition", markers((me, True, {topic: [9]}, 0)))
    t.ask("one good, one not", markers((me, True, {topic: [0, 9], t.name("none"): [0]}, 0)))
    look(t, topic, "afterwards")
    t.ask("the groups' topic", markers((me, True, {"__consumer_offsets": [0]}, 0)))


@once_in_4_3
def late_copies(t: Teller) -> None:
    """Of markers of transaction.version 2, which have an epoch of their own."""
    topic, me = new_topic(t, partitions=2), started(t)
    following = me.but(epoch=me.epoch + 1)
    wrote(t, me, topic, 0)
    for version in (2, 3):
        late = markers((me, True, {topic: [0]}, 0), transaction_version=version)
        t.ask(f"the epoch of the transaction, version {version}", late, 2)
    look(t, topic, "open")
    for label in ("the next epoch", "the next epoch again"):
        t.ask(label, markers((following, True, {topic: [0]}, 0), transaction_version=2), 2)
    t.ask("an epoch before", markers((me, True, {topic: [0]}, 0), transaction_version=2), 2)
    t.ask("a coordinator before", markers((following, True, {topic: [0]}, -1), transaction_version=2), 2)
    t.ask("a version below 0", markers((following, True, {topic: [0]}, 0), transaction_version=-2), 2)
    t.ask("version 1, of an epoch before", markers((me, True, {topic: [0]}, 0), transaction_version=1), 2)
    last = me.but(epoch=32767)
    t.ask("the last epoch", markers((last, True, {topic: [0]}, 0), transaction_version=2), 2)
    t.ask("the last epoch again", markers((last, False, {topic: [0]}, 0), transaction_version=2), 2)
    look(t, topic, "afterwards")
    look(t, topic, "partition 1", 1)


@every_version("WriteTxnMarkers")
def several(t: Teller) -> None:
    topic, other, a, b = new_topic(t, partitions=2), new_topic(t, "other"), started(t, "a"), started(t, "b")
    for producer in (a, b):
        wrote(t, producer, topic, 0)
    wrote(t, a, other, 0)
    t.ask("of two producers", markers((a, True, {topic: [0], other: [0]}, 0), (b, False, {topic: [0]}, 0)))
    look(t, topic, "afterwards")
    t.ask("two of one producer", markers((a, True, {topic: [0]}, 0), (a, False, {topic: [1]}, 0)))
    look(t, topic, "partition 1", 1)
    t.ask("no markers", WriteTxnMarkersRequest(markers=[]), may_hang=True)
    t.ask("no topics", markers((a, True, {}, 0)), may_hang=True, by="b")
    t.ask("no partitions", markers((a, True, {topic: []}, 0)), may_hang=True, by="c")
    t.ask("a partition twice", markers((a, True, {topic: [0, 0]}, 0)), may_hang=True, by="d", but=ANSWERED_ONCE)
