"""Transactions of version 2 (KIP-890): records and offsets add their partitions, and each end gives another epoch."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.compatibility.differential.asking import fetch
from tests.compatibility.differential.asking_transactions import (
    FETCH,
    INIT,
    Producer,
    begun,
    describe,
    init,
    is_settled,
    new_topic,
    producers_of,
    started,
)
from tests.compatibility.differential.cases_transactions import mistaken, twice_started
from tests.compatibility.differential.engine import Teller, in_versions_of_4_3, once_in_4_3

END, COMMIT_OFFSETS = 5, 5


def ended(t: Teller, label: str, me: Producer, *, commit: bool = True) -> Producer:
    """The producer after its transaction."""
    answer: Any = t.ask(label, me.end(commit=commit), END)
    t.ended(me.name)
    return me.after(answer)


def look(t: Teller, topic: str, when: str, partition: int = 0) -> None:
    t.ask(f"{when}: what is committed", fetch(topic, 0, partition, isolation_level=1), FETCH)
    t.ask(f"{when}: what the log knows", producers_of(topic, partition), 0)


@in_versions_of_4_3(12, 13)
def one_after_another(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), started(t)
    for number, commit in enumerate((True, False, True)):
        t.ask(f"{number}: the first batch", me.produce(topic, 0, b"a", b"b"), until=is_settled)
        t.ask(f"{number}: it adds its partition", describe(me.name), 0)
        t.ask(f"{number}: the next batch", me.produce(topic, 2))
        t.ask(f"{number}: another partition", me.produce(topic, 0, partition=1))
        me = ended(t, f"{number}: ended", me, commit=commit)
        look(t, topic, f"{number}")
    t.ask("how it stands", describe(me.name), 0)


@in_versions_of_4_3(12, 13)
def sequences(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    t.ask("not from 0 on", me.produce(topic, 7))
    t.ask("how it stands then", describe(me.name), 0)
    t.ask("from 0 on", me.produce(topic, 0))
    t.ask("again", me.produce(topic, 0))
    t.ask("a gap", me.produce(topic, 2))
    old, me = me, ended(t, "committed", me)
    t.ask("the old epoch", old.produce(topic, 1))
    t.ask("the next epoch, not from 0 on", me.produce(topic, 1))
    t.ask("the next epoch, from 0 on", me.produce(topic, 0))
    look(t, topic, "then")


@in_versions_of_4_3(12, 13)
def of_others(t: Teller) -> None:
    topic, me = new_topic(t), twice_started(t)
    for state in ("nothing begun", "a transaction open"):
        if state == "a transaction open":
            t.ask("begun", me.produce(topic, 0))
        for what, producer in mistaken(t, me).items():
            if (state, what) != ("a transaction open", "an epoch to come"):
                t.ask(f"{state}, {what}", producer.produce(topic, 1))
    t.ask("how it stands", describe(me.name), 0)
    look(t, topic, "then")


@once_in_4_3
def ends_that_come_again(t: Teller) -> None:
    """An answer was lost: the producer asks once more with what it knows."""
    topic, me = new_topic(t), started(t)
    for commit in (True, False):
        begun(t, me, topic)
        after = ended(t, f"{commit=}", me, commit=commit)
        for label, other in (("it", commit), ("the contrary", not commit)):
            t.ask(f"{commit=}, {label} again", me.end(commit=other), END)
        t.ask(f"{commit=}, committed where nothing is open", after.end(), END)
        me = ended(t, f"{commit=}, aborted where nothing is open", after, commit=False)
        t.ask(f"{commit=}, a commit of two ends before", after.but(epoch=after.epoch - 1).end(), END)
        t.ask(f"{commit=}, how it stands", describe(me.name), 0)


@once_in_4_3
def the_next_producer(t: Teller) -> None:
    topic, old = new_topic(t), started(t)
    begun(t, old, topic)
    new = t.ask("while it is open", init(old.name), INIT)
    t.ended(old.name)
    new = t.ask("when it is aborted", init(old.name), INIT, until=is_settled)
    t.ask("the old one ends", old.end(), END)
    t.ask("the old one aborts", old.end(commit=False), END)
    me = old.but(id=new.producer_id, epoch=new.producer_epoch)
    begun(t, me, topic)
    me = ended(t, "the new one ends", me)
    t.ask("goes on with its epoch", me.init(), INIT)
    look(t, topic, "then")


@once_in_4_3
def offsets(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t, partitions=2), started(t)
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
    fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], require_stable=True)
    for number, commit in enumerate((True, False)):
        label = "committed" if commit else "aborted"
        t.ask(f"{label}: added by the offsets", me.commit_offsets(group, topic, 5 + number, 6), COMMIT_OFFSETS)
        t.ask(f"{label}: unstable", fetched, 9)
        t.ask(f"{label}: the transaction", describe(me.name), 0)
        old, me = me, ended(t, f"{label}: ended", me, commit=commit)
        t.ask(f"{label}: what is committed", fetched, 9)
        t.ask(f"{label}: of the old epoch", old.commit_offsets(group, topic, 7), COMMIT_OFFSETS)
    for what, producer in mistaken(t, me).items():
        t.ask(what, producer.commit_offsets(group, topic, 8), COMMIT_OFFSETS)
