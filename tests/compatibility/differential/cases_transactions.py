"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of clients: from a transaction's first partition to its end."""

from __future__ import annotations

from kafkalite.protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.compatibility.differential.asking import fetch
from tests.compatibility.differential.asking_transactions import (
    ADD,
    END,
    FETCH,
    PRODUCE,
    Producer,
    begun,
    describe,
    ended,
    init,
    is_settled,
    listed,
    markers,
    new_topic,
    restarted,
    settled,
    started,
    wrote,
)
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

NEWER = Explained(
    "EndTxn 5, TxnOffsetCommit 5 and Produce 12 are served",
    "they are those of KIP-890's second part, which Kafka has from 4.0 on; 3.9.1 closes the connection",
)
NO_RETRY = Explained(
    "an epoch that InitProducerId gave to another producer is not the result of its predecessor's EndTxn 5",
    "Kafka answers an end of that one as if it came again, with the id and epoch of its successor",
    "error_code",
    "producer_id",
    "producer_epoch",
)
ENDS_FIRST = Explained(
    "a producer of any id or epoch that adds a partition before the last transaction's markers are written asks again",
    "the producer may have an id or epoch that counts only then, as Kafka 4 has it; 3.9 looks at both first",
    "results_by_topic_v3_and_below.*.results_by_partition.*.partition_error_code",
)


def mistaken(t: Teller, me: Producer) -> dict[str, Producer]:
    """Producers that are not quite this one, by what is wrong with them. Of this one there was an epoch before."""
    return {
        "an old epoch": me.but(epoch=me.epoch - 1),
        "an epoch to come": me.but(epoch=me.epoch + 1),
        "no epoch": me.but(epoch=-1),
        "another's producer id": me.but(id=me.id + 1000),
        "no producer id": me.but(id=-1),
        "a name that nobody has used": me.but(name=t.transactional_id("nobody")),
        "no name": me.but(name=""),
    }


def twice_started(t: Teller, stem: str = "tx") -> Producer:
    return restarted(t, started(t, stem).name)


# --- EndTxn


@every_version("EndTxn")
def ends(t: Teller) -> None:
    topic, me = new_topic(t, partitions=3), started(t)
    t.ask("nothing begun, commit", me.end())
    me = me.after(t.ask("nothing begun, abort", me.end(commit=False)))
    t.ended(me.name)
    for commit in (True, False):
        word, other = ("committed", "aborted") if commit else ("aborted", "committed")
        begun(t, me, topic, 0, 1)
        ended = t.ask(word, me.end(commit=commit))
        t.ended(me.name)
        t.ask(f"{word} again", me.end(commit=commit))
        t.ask(f"{word}, then {other}", me.end(commit=not commit))
        me = me.after(ended)
        t.ask(f"{word}: how it stands", describe(me.name), 0)
    for partition in range(3):
        t.ask(f"the markers in partition {partition}", fetch(topic, 0, partition), FETCH)


@every_version("EndTxn")
def ends_of_others(t: Teller) -> None:
    topic, me = new_topic(t), twice_started(t)
    for state in ("nothing begun", "a transaction open", "a transaction committed"):
        if state == "a transaction open":
            begun(t, me, topic)
        if state == "a transaction committed":
            ended(t, me)
        for what, producer in mistaken(t, me).items():
            is_taken_for_retry = t.v >= 5 and (state, what) == ("a transaction committed", "an old epoch")
            for commit in (True, False):
                end = producer.end(commit=commit)
                t.ask(f"{state}, {what}, {commit=}", end, but=NO_RETRY if is_taken_for_retry else None)
    t.ask("how it stands", describe(me.name), 0)


@every_version("EndTxn")
def ends_by_the_next_producer(t: Teller) -> None:
    """The last transaction of the producer before is not the next one's to repeat."""
    topic, me = new_topic(t), started(t)
    for commit in (True, False):
        wrote(t, me, topic, 0)
        ended(t, me, commit=commit)
        me = restarted(t, me.name)
        t.ask(f"{commit=}, committed again", me.end())
        me = me.after(t.ask(f"{commit=}, aborted again", me.end(commit=False)))
        t.ended(me.name)


@in_versions(0, 3)
def an_end_without_records(t: Teller) -> None:
    """Partitions were added, and nothing was written: they get their markers all the same."""
    topic, me = new_topic(t, partitions=2), started(t)
    begun(t, me, topic, 0, 1)
    wrote(t, me, topic, 0, partition=1)
    t.ask("committed", me.end())
    t.ended(me.name)
    for partition in range(2):
        t.ask(f"partition {partition}", fetch(topic, 0, partition, isolation_level=1), FETCH)


@once
def the_topic_is_deleted_meanwhile(t: Teller) -> None:
    topic, other, me = new_topic(t), new_topic(t, "other"), started(t)
    wrote(t, me, topic, 0)
    begun(t, me, other)
    t.aside(delete(topic), 3)
    gone_from(t, topic)
    t.ask("open without it", describe(me.name), 0)
    t.ask("committed", me.end(), END)
    t.ended(me.name)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("added again", me.add(topic), ADD)
    t.ask("the other one", fetch(other), FETCH)


@once
def the_topic_is_made_again_meanwhile(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.aside(delete(topic), 3)
    gone_from(t, topic)
    new_topic(t)
    t.ask("the transaction goes on", me.produce(topic, 1), PRODUCE)
    t.ask("committed", me.end(), END)
    t.ended(me.name)
    t.ask("what is there", fetch(topic, isolation_level=1), FETCH)


@once
def ends_of_a_newer_kafka(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.ask("EndTxn 5", me.end(), 5, but=NEWER)


# --- AddPartitionsToTxn


@in_versions(0, 1, 2, 3)
def partitions(t: Teller) -> None:
    topic, other, me = new_topic(t, partitions=3), new_topic(t, "other"), started(t)
    t.ask("none", me.add_all({}))
    t.ask("none of a topic", me.add_all({topic: []}))
    t.ask("how it stands then", describe(me.name), 0)
    t.ask("one", me.add(topic, 0))
    t.ask("it again", me.add(topic, 0))
    t.ask("it and another", me.add(topic, 0, 1))
    t.ask("of two topics", me.add_all({topic: [2], other: [0]}))
    t.ask("one twice", me.add(topic, 1, 1))
    t.ask("all of them", describe(me.name), 0)
    t.ask("committed", me.end(), END)
    t.ended(me.name)
    t.ask("none after the end", me.add_all({}))
    t.ask("how it stands after the end", describe(me.name), 0)
    t.ask("the next transaction", me.add(topic, 1))
    t.ask("its partitions", describe(me.name), 0)


@in_versions(0, 1, 2, 3)
def partitions_that_are_not_there(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    t.ask("an unknown topic", me.add(t.name("none")))
    t.ask("an unknown partition", me.add(topic, 9))
    t.ask("a partition below zero", me.add(topic, -1))
    t.ask("a topic without a name", me.add(""))
    t.ask("one good, one not", me.add(topic, 0, 9))
    t.ask("two topics, one unknown", me.add_all({topic: [0, 1], t.name("none"): [0]}))
    t.ask("nothing was added", describe(me.name), 0)
    t.ask("an unknown one of an unknown producer", me.but(name=t.name("nobody")).add(t.name("none")))


@in_versions(0, 1, 2, 3)
def partitions_of_internal_topics(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    for name in ("__consumer_offsets", "__transaction_state"):
        t.ask(name, me.add(name))
        t.ask(f"{name} and a good one", me.add_all({name: [0], topic: [0]}))
    t.ask("one that is not there", me.add("__consumer_offsets", 99))
    t.ask("nothing was added", describe(me.name), 0)


@in_versions(0, 1, 2, 3)
def partitions_of_others(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), twice_started(t)
    for state in ("nothing begun", "a transaction open", "a transaction aborted"):
        if state == "a transaction open":
            begun(t, me, topic)
        if state == "a transaction aborted":
            ended(t, me, commit=False)
        for what, producer in mistaken(t, me).items():
            t.ask(f"{state}, {what}", producer.add(topic))
            t.ask(f"{state}, {what}, two", producer.add(topic, 0, 1))
    t.ask("how it stands", describe(me.name), 0)


# --- AddOffsetsToTxn


@every_version("AddOffsetsToTxn")
def groups(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    t.ask("a group", me.add_group(group))
    t.ask("it again", me.add_group(group))
    t.ask("a group that is not there", me.add_group(t.name("none")))
    t.ask("a group without a name", me.add_group(""))
    t.ask("the transaction is open", me.end(), END)
    t.ended(me.name)
    t.ask("after partitions", begun(t, me, topic).add_group(group))
    ended(t, me, commit=False)
    t.ask("after the end", me.add_group(group))


@every_version("AddOffsetsToTxn")
def groups_of_others(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), twice_started(t)
    for state in ("nothing begun", "a transaction open"):
        if state == "a transaction open":
            begun(t, me, topic)
        for what, producer in mistaken(t, me).items():
            t.ask(f"{state}, {what}", producer.add_group(group))
    t.ask("how it stands", describe(me.name), 0)


# --- while markers are missing


def ending(t: Teller, topic: str, *, commit: bool) -> Producer:
    """A producer whose transaction cannot end: another coordinator has written to its partition, one of a later epoch,
    and the partition takes no marker of this one any more."""
    me = twice_started(t)
    t.aside(markers((me, commit, {topic: [0]}, 1000)), 1)
    wrote(t, me, topic, 0)
    settled(t, me.end(commit=commit), END)
    return me


@in_versions(0, 1, 2, 3, 4, 5)
def while_a_commit_ends(t: Teller) -> None:
    """Every request in the version of that number, if its API has one."""
    topic, group = new_topic(t, partitions=2), t.group()
    me = ending(t, topic, commit=True)
    add, end = min(t.v, 3), min(t.v, 4)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("listed", listed("PrepareCommit"), 1)
    t.ask("committed again", me.end(), end)
    t.ask("then aborted", me.end(commit=False), end)
    t.ask("a partition of it", me.add(topic, 0), add)
    t.ask("another partition", me.add(topic, 1), add)
    t.ask("a group", me.add_group(group), end)
    t.ask("written where it was", me.produce(topic, 1), 6 + t.v)
    t.ask("written elsewhere", me.produce(topic, 0, partition=1), 6 + t.v)
    t.ask("offsets committed", me.commit_offsets(group, topic, 5), end)
    t.ask("the next producer", init(me.name))
    t.ask("the next producer with another time-out", init(me.name, 1000))
    if t.v >= 3:
        t.ask("goes on", me.init())
        t.ask("goes on with an old epoch", me.but(epoch=me.epoch - 1).init())
    for what, other in mistaken(t, me).items():
        t.ask(f"{what}: committed", other.end(), end)
        is_known = other.name == me.name
        t.ask(f"{what}: a partition", other.add(topic, 1), add, but=ENDS_FIRST if is_known else None)
    t.ask("how it stands then", describe(me.name), 0)


@in_versions(4, 5)
def verified_while_it_ends(t: Teller) -> None:
    topic = new_topic(t, partitions=2)
    me = ending(t, topic, commit=False)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("aborted again", me.end(commit=False), 4)
    t.ask("then committed", me.end(), 4)
    for partition in (0, 1):
        wanted = me.adding({topic: [partition]}, verify_only=True)
        t.ask(f"partition {partition} verified", AddPartitionsToTxnRequest(transactions=[wanted]))
    t.ask("added", me.add(topic, 1))


# --- several at once


@once
def transactions_side_by_side(t: Teller) -> None:
    """Two producers in one partition, and one producer in two: each end is its own."""
    topic, a, b = new_topic(t, partitions=2), started(t, "a"), started(t, "b")
    wrote(t, a, topic, 0)
    wrote(t, b, topic, 0)
    wrote(t, b, topic, 0, partition=1)
    t.ask("a commits", a.end(), END)
    t.ended(a.name)
    t.ask("how they stand", describe(a.name, b.name), 0)
    t.ask("what is committed", fetch(topic, isolation_level=1), FETCH)
    t.ask("b aborts", b.end(commit=False), END)
    t.ended(b.name)
    t.ask("what is committed then", fetch(topic, isolation_level=1), FETCH)
    t.ask("and in partition 1", fetch(topic, 0, 1, isolation_level=1), FETCH)


@once
def many_in_a_row(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    for number in range(6):
        wrote(t, me, topic, number)
        ended(t, me, commit=number % 3 != 1)
    t.ask("what is there", fetch(topic), FETCH)
    t.ask("what is committed", fetch(topic, isolation_level=1), FETCH)
    t.ask("how it stands", describe(me.name), 0)


@once
def the_next_begins_at_once(t: Teller) -> None:
    """A request that comes before the markers are written is told to come again."""
    topic, me = new_topic(t), started(t)
    for number, commit in enumerate((True, False, True)):
        t.ask(f"begun {number}", me.add(topic), ADD, until=is_settled)
        t.ask(f"written {number}", me.produce(topic, number), PRODUCE)
        t.ask(f"ended {number}", me.end(commit=commit), END)
    t.ended(me.name)
    t.ask("what is committed", fetch(topic, isolation_level=1), FETCH)
