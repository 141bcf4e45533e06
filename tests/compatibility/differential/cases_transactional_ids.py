"""InitProducerId with transactional ids: epochs, fencing, time-outs, and the coordinator of a transactional id."""

from __future__ import annotations

from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from tests.compatibility.differential.asking import fetch
from tests.compatibility.differential.asking_transactions import (
    ADD,
    END,
    FETCH,
    INIT,
    NO_START,
    PRODUCE,
    Producer,
    begun,
    describe,
    ended,
    init,
    is_settled,
    new_topic,
    restarted,
    settled,
    started,
    wrote,
)
from tests.compatibility.differential.engine import Teller, every_version, in_versions, once, tries

LONGEST_MS = 900_000  # transaction.max.timeout.ms


@every_version("InitProducerId")
def one_epoch_after_another(t: Teller) -> None:
    name = t.transactional_id()
    for turn in ("first", "second", "third"):
        t.ask(f"the {turn} producer", init(name))
    t.ask("another id", init(t.transactional_id("other")))
    t.ask("how it stands", describe(name, t.name("other")), 0)


@every_version("InitProducerId")
def timeouts(t: Teller) -> None:
    name = t.transactional_id()
    for timeout_ms in (0, -1, LONGEST_MS + 1, 0x7FFFFFFF):
        t.ask(f"a time-out of {timeout_ms} ms", init(name, timeout_ms))
    t.ask("nobody has begun", describe(name), 0)
    for timeout_ms in (1, LONGEST_MS):
        t.ask(f"a time-out of {timeout_ms} ms", init(name, timeout_ms))
        t.ask(f"{timeout_ms} ms are remembered", describe(name), 0)
    t.ask("without a name, and too long", init("", LONGEST_MS + 1))


@in_versions(3, 4, 5)
def with_the_epoch_it_had(t: Teller) -> None:
    """KIP-360: a producer goes on after an error, and may ask again when the answer was lost."""
    me = started(t)
    t.ask("goes on", me.init())
    t.ask("goes on, asked again", me.init())
    t.ask("goes on from the new epoch", me.but(epoch=me.epoch + 1).init())
    t.ask("goes on from the last epoch", me.but(epoch=me.epoch + 1).init())
    t.ask("from an epoch before that", me.init())
    t.ask("from an epoch to come", me.but(epoch=me.epoch + 9).init())
    t.ask("with another's id", me.but(id=me.id + 1000).init())
    t.ask("with an id but no epoch", me.but(epoch=-1).init())
    t.ask("with an epoch but no id", me.but(id=-1).init())
    t.ask("with numbers below zero", me.but(id=-2, epoch=-2).init())
    t.ask("how it stands", describe(me.name), 0)
    t.ask("an id that nobody has used", me.but(name=t.transactional_id("new")).init())
    t.ask("without knowing anything", init(me.name))


@in_versions(3, 4, 5)
def with_an_epoch_of_before_a_newer_producer(t: Teller) -> None:
    me = started(t)
    restarted(t, me.name)
    t.ask("one behind", me.init())
    restarted(t, me.name)
    t.ask("more behind", me.init())


@every_version("InitProducerId")
def while_a_transaction_is_open(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0, b"a", b"b")
    t.ask("the next producer", init(me.name))
    t.ended(me.name)
    t.ask("the transaction is aborted", describe(me.name), 0)
    t.ask("the next producer, asked again", init(me.name))
    t.ask("how it stands", describe(me.name), 0, but=NO_START)
    t.ask("what is left", fetch(topic, isolation_level=1), FETCH)
    t.ask("the old producer goes on", me.init(), max(t.v, 3))
    t.ask("and the next", init(me.name))


@in_versions(3, 4, 5)
def with_its_epoch_while_its_transaction_is_open(t: Teller) -> None:
    topic, me = new_topic(t), started(t)
    wrote(t, me, topic, 0)
    t.ask("goes on", me.init())
    t.ended(me.name)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("goes on, asked again", me.init())
    t.ask("how it stands then", describe(me.name), 0)
    t.ask("and again", me.init())
    t.ask("what is left", fetch(topic, isolation_level=1), FETCH)


@in_versions(3, 4, 5)
def mistaken_while_a_transaction_is_open(t: Teller) -> None:
    """Each in a transaction of its own: some are aborted, as if by the next producer."""
    topic, me = new_topic(t), started(t)
    for label, epochs, ids in (
        ("with the epoch before", -1, 0),
        ("with an epoch long ago", -3, 0),
        ("with an epoch to come", 1, 0),
        ("with another's id", 0, 1000),
        ("with another's id and the epoch before", -1, 1000),
    ):
        for _ in range(4):
            me = restarted(t, me.name)
        wrote(t, me, topic, 0)
        t.ask(label, me.but(epoch=me.epoch + epochs, id=me.id + ids).init())
        t.ended(me.name)
        t.ask(f"{label}: how it stands", describe(me.name), 0)
        t.ask(f"{label}: the commit", me.end(), END)
        t.ended(me.name)


@in_versions(3, 5)
def after_a_transaction(t: Teller) -> None:
    """The next epoch goes with the producer id also when a transaction was committed, aborted, or empty."""
    topic, me = new_topic(t), started(t)
    for commit in (True, False):
        wrote(t, me, topic, 0)
        ended(t, me, commit=commit)
        answer = t.ask(f"goes on, {commit=}", me.init())
        me = Producer(me.name, answer.producer_id, answer.producer_epoch)
    t.ask("how it stands", describe(me.name), 0, but=NO_START)
    t.ask("the next producer", init(me.name))


@in_versions(0, 1, 2, 3, 4, 5)
def zombies(t: Teller) -> None:
    """Every request of a producer that has been replaced, in the version of that number if its API has one."""
    topic, group, zombie = new_topic(t, partitions=2), t.group(), started(t)
    wrote(t, zombie, topic, 0)
    new = restarted(t, zombie.name)
    add, end = min(t.v, 3), min(t.v, 4)
    for but in (NO_START, None):
        t.ask("adds a partition", zombie.add(topic, 1), add)
        t.ask("adds a group", zombie.add_group(group), end)
        t.ask("commits", zombie.end(), end)
        t.ask("aborts", zombie.end(commit=False), end)
        t.ask("writes", zombie.produce(topic, 1), 6 + t.v)
        t.ask("commits offsets", zombie.commit_offsets(group, topic, 5), end)
        t.ask("how it stands", describe(zombie.name), 0, but=but)
        begun(t, new, topic, 1)
    t.ask("the new one writes", new.produce(topic, 0, partition=1), PRODUCE)
    t.ask("the zombie writes beside it", zombie.produce(topic, 1, partition=1), 6 + t.v)
    ended(t, new)
    t.ask("what is there", fetch(topic, 0, 1, isolation_level=1), FETCH)


@once
def too_slow(t: Teller) -> None:
    topic, me = new_topic(t), started(t, timeout_ms=1000)
    wrote(t, me, topic, 0)
    for _ in tries("the coordinator to abort it"):
        if t.aside(describe(me.name), 0).transaction_states[0].transaction_state == "CompleteAbort":
            break
    t.ask("aborted", describe(me.name), 0)
    t.ask("adds a partition", me.add(topic), ADD)
    t.ask("adds a partition in version 1", me.add(topic), 1)
    t.ask("commits", me.end(), END)
    t.ask("commits in version 1", me.end(), 1)
    t.ask("aborts", me.end(commit=False), END)
    t.ask("writes", me.produce(topic, 1), PRODUCE)
    t.ask("writes in version 11", me.produce(topic, 1), 11)
    t.ask("what is there", fetch(topic), FETCH)
    t.ask("what is committed", fetch(topic, isolation_level=1), FETCH)
    t.ask("goes on", me.init(timeout_ms=60_000), INIT)
    t.ask("goes on, asked again", me.init(timeout_ms=60_000), INIT)
    t.ask("how it stands", describe(me.name), 0)


@once
def empty_and_slow(t: Teller) -> None:
    """A time-out counts from the first partition on; a producer that has begun nothing has time."""
    topic, me = new_topic(t), started(t, timeout_ms=1000)
    late = started(t, "late", timeout_ms=1000)
    settled(t, late.add(topic), ADD)
    for _ in tries("the coordinator to abort the other's"):
        if t.aside(describe(late.name), 0).transaction_states[0].transaction_state == "CompleteAbort":
            break
    t.ask("how it stands", describe(me.name, late.name), 0)
    t.ask("begins", me.add(topic), ADD)
    t.ask("commits", me.end(), END)


def find(*names: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=names[0] if names else "", key_type=1, coordinator_keys=list(names))


@in_versions(1, 2, 3, 4, 5, 6)
def coordinators(t: Teller) -> None:
    t.ask("of a name", find(t.name("tx")), until=is_settled)
    t.ask("of no name", find(""))
    if t.v >= 4:
        t.ask("of several", find(t.name("b"), t.name("a"), ""))
        t.ask("of none", find())


@in_versions(0, 2, 5)
def names_of_every_kind(t: Teller) -> None:
    for label, name in (
        ("long", "x" * 249),
        ("longer than a topic's", "y" * 300),
        ("strange", "a b/c\u00e9\U0001f600"),
    ):
        name = t.transactional_id(name)
        t.ask(f"a {label} name", InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
        t.ask(f"a {label} name described", describe(name), 0)
