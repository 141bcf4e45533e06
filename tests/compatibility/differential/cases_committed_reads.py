"""Fetch and ListOffsets at both isolation levels: the last stable offset, aborted transactions, markers."""

from __future__ import annotations

from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.compatibility.differential.asking import BEGINNING_MS, batch, delete_before, fetch, list_offsets, produce
from tests.compatibility.differential.asking_transactions import (
    END,
    FETCH,
    PRODUCE,
    Producer,
    ended,
    new_topic,
    restarted,
    started,
    wrote,
)
from tests.compatibility.differential.engine import Explained, Teller, in_versions, once

VERSIONS = (4, 5, 7, 11, 12, 13, 17)
COMMITTED = 1
NO_LATER_ONES = Explained(
    "aborted transactions are named that begin before the end of the records of the answer, and no later ones",
    "Kafka goes by its sparse index, and names those up to the next entry or the end of the segment",
    "responses.*.partitions.*.aborted_transactions.*",
)
ONCE = Explained(
    "a reader of old that begins at a marker gets each record behind it once",
    "Kafka gives it the first of them twice",
    "responses.*.partitions.*.records.*",
)


def plain(t: Teller, topic: str, *values: bytes, **more: int) -> None:
    t.aside(produce(topic, batch(*(values or (b"plain",)), **more)), PRODUCE)


def look(t: Teller, topic: str, when: str, offset: int = 0, but: Explained | None = None) -> None:
    t.ask(f"{when}: all", fetch(topic, offset))
    t.ask(f"{when}: what is committed", fetch(topic, offset, isolation_level=COMMITTED), but=but)


@in_versions(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
def as_transactions_end(t: Teller) -> None:
    topic, a, b = new_topic(t), started(t, "a"), started(t, "b")
    look(t, topic, "empty")
    plain(t, topic)
    wrote(t, a, topic, 0, b"a", b"b")
    look(t, topic, "one open")
    wrote(t, b, topic, 0)
    plain(t, topic)
    look(t, topic, "two open")
    ended(t, b, commit=False)
    look(t, topic, "the second aborted", but=NO_LATER_ONES)
    ended(t, a)
    look(t, topic, "the first committed")
    plain(t, topic)
    look(t, topic, "the end")


def history(t: Teller) -> tuple[str, Producer]:
    """Offsets 0 a, 1-2 b, 3 plain, 4 a, 5 a aborted, 6 b, 7 b committed, 8 a, 9 a aborted, 10 plain, 11 b open."""
    topic, a, b = new_topic(t), started(t, "a"), started(t, "b")
    wrote(t, a, topic, 0)
    wrote(t, b, topic, 0, b"b", b"c")
    plain(t, topic)
    wrote(t, a, topic, 1)
    ended(t, a, commit=False)
    wrote(t, b, topic, 2)
    ended(t, b)
    wrote(t, a, topic, 2)
    ended(t, a, commit=False)
    plain(t, topic)
    wrote(t, b, topic, 3)
    return topic, b


@in_versions(*VERSIONS)
def from_every_offset(t: Teller) -> None:
    topic, open_one = history(t)
    for offset in range(13):
        t.ask(f"from {offset} on", fetch(topic, offset, isolation_level=COMMITTED))
    t.ask("behind the end", fetch(topic, 13, isolation_level=COMMITTED))
    t.ask("before the start", fetch(topic, -1, isolation_level=COMMITTED))
    ended(t, open_one, commit=False)
    for offset in (0, 10, 11, 12, 13):
        t.ask(f"from {offset} on, all ended", fetch(topic, offset, isolation_level=COMMITTED))


@in_versions(*VERSIONS)
def a_little_at_a_time(t: Teller) -> None:
    """Aborted transactions are named up to the end of what is given."""
    topic, _ = history(t)
    one = len(batch(b"0"))
    for offset in (0, 2, 4, 5, 8, 9, 10):
        for size in (1, one, 2 * one, 3 * one):
            asked = fetch(topic, offset, isolation_level=COMMITTED, partition_max_bytes=size)
            t.ask(f"from {offset} on, {size} bytes", asked, but=NO_LATER_ONES if offset < 8 else None)
    in_all = fetch(topic, 0, isolation_level=COMMITTED, max_bytes=one)
    t.ask("no more than a batch in all", in_all, but=NO_LATER_ONES)


@in_versions(4, 11, 12, 17)
def long_transactions(t: Teller) -> None:
    """One that began long before what is read, others within it, and producers that were replaced.

    Markers and records are years apart, so that each has a segment of its own.
    """
    topic, long, short = t.topic(), started(t, "long"), started(t, "short")
    wrote(t, long, topic, 0)
    for number in range(3):
        wrote(t, short, topic, number)
        ended(t, short, commit=number == 1)
    plain(t, topic)
    look(t, topic, "open", 5)
    restarted(t, long.name)
    look(t, topic, "replaced", 5)
    look(t, topic, "replaced, from the start")
    for offset in (7, 8, 9):
        t.ask(f"from {offset} on", fetch(topic, offset, isolation_level=COMMITTED))


@in_versions(4, 11, 13)
def several_partitions(t: Teller) -> None:
    topic, me = new_topic(t, partitions=3), started(t)
    wrote(t, me, topic, 0, partition=0)
    wrote(t, me, topic, 0, partition=1)
    t.aside(produce(topic, batch(b"plain"), partition=2), PRODUCE)

    def ask(label: str) -> None:
        asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in range(3)]
        topics = [FetchTopic(topic=topic, partitions=asked)]
        t.ask(label, FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=COMMITTED, topics=topics))

    ask("open")
    ended(t, me, commit=False)
    ask("aborted")


@in_versions(4, 11, 12, 13)
def waiting_for_the_end(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    for number, commit in enumerate((True, False)):
        wrote(t, me, topic, number)
        offset = 2 * number
        t.send(fetch(topic, offset, isolation_level=COMMITTED, max_wait_ms=20_000), by="waiting")
        t.ask(f"what it waits for, {commit=}", fetch(topic, offset, isolation_level=COMMITTED))
        t.ask(f"ended, {commit=}", me.end(commit=commit), END)
        t.take(f"what has come, {commit=}", by="waiting")
        t.ended(me.name)


@in_versions(4, 12)
def waiting_in_vain(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    plain(t, topic)
    wrote(t, me, topic, 0)
    one = len(batch(b"plain"))
    asked = {"isolation_level": COMMITTED, "max_wait_ms": 50}
    t.ask("at the last stable offset", fetch(topic, 1, **asked))
    t.ask("behind it", fetch(topic, 2, **asked))
    t.ask("more than is stable", fetch(topic, 0, min_bytes=one + 1, **asked))
    t.ask("as much as is stable", fetch(topic, 0, min_bytes=one, isolation_level=COMMITTED, max_wait_ms=20_000))


def nothing_new(session: int, epoch: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, isolation_level=COMMITTED, session_id=session, session_epoch=epoch, topics=[]
    )


@in_versions(7, 11, 12, 13, 17)
def sessions(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    plain(t, topic)
    first = fetch(topic, 0, isolation_level=COMMITTED, session_id=0, session_epoch=0)
    session = t.ask("opened", first).session_id
    t.ask("read on", fetch(topic, 1, isolation_level=COMMITTED, session_id=session, session_epoch=1))
    wrote(t, me, topic, 0)
    t.ask("a transaction is open", nothing_new(session, 2))
    t.ask("and nothing has changed", nothing_new(session, 3))
    ended(t, me, commit=False)
    t.ask("it is aborted", nothing_new(session, 4))
    t.ask("read on then", fetch(topic, 3, isolation_level=COMMITTED, session_id=session, session_epoch=5))
    t.ask("nothing more", nothing_new(session, 6))


@in_versions(4, 5, 11, 13)
def after_records_were_deleted(t: Teller) -> None:
    topic, open_one = history(t)
    for offset in (2, 4, 6):
        t.ask(f"deleted before {offset}", delete_before(topic, offset), 2)
        look(t, topic, f"deleted before {offset}", offset)
        t.ask(f"from what is deleted, {offset}", fetch(topic, offset - 1, isolation_level=COMMITTED))
    t.ask("deleted up to the last stable offset", delete_before(topic, 11), 2)
    look(t, topic, "nothing stable", 11)
    t.ask("all deleted, the open transaction with it", delete_before(topic, -1), 2)
    look(t, topic, "nothing", 12)
    plain(t, topic)
    look(t, topic, "more came", 12)
    ended(t, open_one, commit=False)
    look(t, topic, "the open one aborted", 12)


@in_versions(2, 3, 4, 5, 6, 7, 8, 9)
def ends_and_times(t: Teller) -> None:
    """ListOffsets at both levels, while a transaction is open and after its end."""
    topic, me = new_topic(t), started(t)
    plain(t, topic, b"a", b"b")
    wrote(t, me, topic, 0)
    plain(t, topic, time=BEGINNING_MS + 1000)
    for state in ("open", "ended"):
        for level in (0, COMMITTED):
            for label, timestamp in (
                ("the end", -1),
                ("the start", -2),
                ("the first time", BEGINNING_MS),
                ("the second", BEGINNING_MS + 1),
                ("a time of the transaction", BEGINNING_MS + 2),
                ("a time behind it", BEGINNING_MS + 1000),
                ("a time to come", BEGINNING_MS * 2),
            ):
                t.ask(f"{state}, {level=}, {label}", list_offsets(topic, timestamp, isolation_level=level))
            if t.v >= 7 and state == "open":
                t.ask(f"{state}, {level=}, the largest time", list_offsets(topic, -3, isolation_level=level))
        if state == "open":
            ended(t, me)


@in_versions(2, 5, 9)
def ends_of_an_empty_log(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    t.ask("empty", list_offsets(topic, -1, isolation_level=COMMITTED))
    wrote(t, me, topic, 0)
    for timestamp in (-1, -2, BEGINNING_MS):
        t.ask(f"open, {timestamp}", list_offsets(topic, timestamp, isolation_level=COMMITTED))
    ended(t, me, commit=False)
    for timestamp in (-1, -2, BEGINNING_MS):
        t.ask(f"aborted, {timestamp}", list_offsets(topic, timestamp, isolation_level=COMMITTED))


@in_versions(4, 12)
def isolation_levels_that_are_not(t: Teller) -> None:
    topic, _ = history(t)
    t.ask("with an epoch", fetch(topic, 0, isolation_level=COMMITTED, current_leader_epoch=0 if t.v >= 9 else -1))
    t.ask("with an epoch to come", fetch(topic, 0, isolation_level=COMMITTED, current_leader_epoch=9))


@in_versions(0, 1, 2, 3)
def readers_of_old(t: Teller) -> None:
    """They know no transactions: they get all records, and no markers."""
    topic, _ = history(t)
    for offset in (0, 3, 4, 5, 7, 8, 9, 11):
        t.ask(f"from {offset} on", fetch(topic, offset), but=ONCE if offset in (5, 7, 9) else None)


@once
def epochs_end_where_the_log_ends(t: Teller) -> None:
    topic, _ = history(t)
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    t.ask(
        "of a consumer", OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]), 4
    )


@once
def markers_in_a_compacted_log(t: Teller) -> None:
    topic, me = new_topic(t, cleanup_policy="compact"), started(t)
    for number in range(3):
        t.aside(me.add(topic), 3)
        records = me.batch(number, key=b"k")
        t.ask(f"written {number}", produce(topic, records, transactional_id=me.name), PRODUCE)
        ended(t, me, commit=number != 1)
    t.ask("what is there", fetch(topic, isolation_level=COMMITTED), FETCH)
