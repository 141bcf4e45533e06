"""DescribeTransactions, ListTransactions, DescribeProducers: transactions seen from outside."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    ListTransactionsRequest,
)
from tests.compatibility.differential.asking import produce
from tests.compatibility.differential.asking_transactions import (
    NO_START,
    PRODUCE,
    Producer,
    begun,
    describe,
    ended,
    listed,
    new_topic,
    producers_of,
    restarted,
    started,
    wrote,
)
from tests.compatibility.differential.cases_sequences import new_producer, numbered
from tests.compatibility.differential.engine import Teller, in_versions, in_versions_of_4_3, once


@once
def described(t: Teller) -> None:
    topic, other, me = new_topic(t, partitions=3), new_topic(t, "other"), started(t, timeout_ms=50_000)
    t.ask("nothing begun", describe(me.name), 0)
    begun(t, me, topic, 2, 0)
    begun(t, me, other)
    t.ask("a transaction open", describe(me.name), 0)
    ended(t, me)
    t.ask("committed", describe(me.name), 0)
    begun(t, me, other)
    ended(t, me, commit=False)
    t.ask("aborted", describe(me.name), 0)
    restarted(t, me.name, 40_000)
    t.ask("of the next producer", describe(me.name), 0, but=NO_START)


@once
def described_with_others(t: Teller) -> None:
    a, b = started(t, "a"), started(t, "b")
    t.ask("one that nobody has used", describe(t.transactional_id("none")), 0)
    t.ask("without a name", describe(""), 0)
    t.ask("none", describe(), 0)
    t.ask("several", describe(b.name, t.name("none"), a.name, ""), 0)
    t.ask("one twice", describe(a.name, a.name), 0)


def each_state(t: Teller) -> list[Producer]:
    """One producer in each state that lasts."""
    topic = new_topic(t)
    empty, open_one, committed, aborted = (started(t, stem) for stem in ("empty", "open", "committed", "aborted"))
    begun(t, open_one, topic)
    ended(t, begun(t, committed, topic))
    ended(t, begun(t, aborted, topic), commit=False)
    return [empty, open_one, committed, aborted]


@in_versions(0, 1)
def all_of_them(t: Teller) -> None:
    t.ask("none of this story", listed())
    each_state(t)
    t.ask("all", listed())
    for state in (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ):  # fmt: skip
        t.ask(f"those in state {state}", listed(state))
    t.ask("those in two states", listed("Empty", "Ongoing"))
    t.ask("in a state that there is not", listed("Sleeping"))
    t.ask("in one that there is and one that there is not", listed("Sleeping", "Ongoing"))
    t.ask("a state in small letters", listed("ongoing"))
    t.ask("a state without a name", listed(""))


@in_versions(0, 1)
def those_of_producers(t: Teller) -> None:
    empty, open_one, committed, _ = each_state(t)
    t.ask("of one", listed(producer_ids=[open_one.id]))
    t.ask("of two", listed(producer_ids=[empty.id, committed.id]))
    t.ask("of one that there is not", listed(producer_ids=[7_000_000]))
    t.ask("of one, in its state", listed("Ongoing", producer_ids=[open_one.id]))
    t.ask("of one, in another state", listed("Empty", producer_ids=[open_one.id]))


@in_versions(1)
def those_that_last(t: Teller) -> None:
    names = {one.name for one in each_state(t)}

    def lists_all(answer: Any) -> bool:  # the last ones are less than a millisecond old
        return names <= {one.transactional_id for one in answer.transaction_states}

    t.ask("for 0 ms", listed(duration=0), until=lists_all)
    for duration in (-1, -5, 3_600_000):
        t.ask(f"for {duration} ms", listed(duration=duration))


@in_versions_of_4_3(2)
def those_of_a_pattern(t: Teller) -> None:
    names = [one.name for one in each_state(t)]
    stem = names[0].removesuffix("empty")
    for pattern in (
        None, "", ".*", names[0], names[0].upper(), f"(?i){names[0].upper()}", f"{stem}(empty|open)", f"{stem}e",
        f"^{stem}.*$", f"{stem}[a-c]\\w+", "none", "(", "*", "a**", "(?=a)", "[b-a]", "\\",
    ):  # fmt: skip
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        t.ask(f"{pattern and pattern.replace(stem, '')}", request)
    t.ask("in a state", ListTransactionsRequest(state_filters=["Ongoing"], transactional_id_pattern=f"{stem}.*"))
    t.ask("in one that there is not", ListTransactionsRequest(state_filters=["No"], transactional_id_pattern=".*"))
    bad = ListTransactionsRequest(state_filters=["No", "Ongoing"], transactional_id_pattern="(")
    t.ask("a bad one, in a state that there is not", bad)


@once
def producers(t: Teller) -> None:
    topic, me = new_topic(t, partitions=3), started(t)
    t.ask("nobody", producers_of(topic), 0)
    idempotent = new_producer(t)
    for sequence in range(3):
        t.aside(produce(topic, numbered(idempotent, 0, sequence)), PRODUCE)
    t.ask("an idempotent one", producers_of(topic), 0)
    begun(t, me, topic)
    t.ask("one that has added the partition", producers_of(topic), 0)
    wrote(t, me, topic, 0, b"a", b"b")
    t.ask("one that has written", producers_of(topic), 0)
    t.ask("several partitions", producers_of(topic, 0, 1, 2), 0)
    ended(t, me)
    t.ask("one that has committed", producers_of(topic), 0)
    wrote(t, me, topic, 2)
    t.ask("in its next transaction", producers_of(topic), 0)
    ended(t, me, commit=False)
    t.ask("one that has aborted", producers_of(topic), 0)
    next_one = restarted(t, me.name)
    t.ask("replaced", producers_of(topic), 0)
    wrote(t, next_one, topic, 0)
    t.ask("the next one", producers_of(topic), 0)


@once
def producers_where_there_is_nothing(t: Teller) -> None:
    topic = new_topic(t)
    t.ask("an unknown topic", producers_of(t.name("none")), 0)
    t.ask("an unknown partition", producers_of(topic, 9), 0)
    t.ask("one good, one not", producers_of(topic, 0, 9, -1), 0)
    t.ask("a topic without a name", producers_of(""), 0)
    t.ask("a topic that cannot be", producers_of("a/b"), 0)
    t.ask("no partitions", DescribeProducersRequest(topics=[DescribeProducersTopicRequest(name=topic)]), 0)
    t.ask("no topics", DescribeProducersRequest(topics=[]), 0)
    t.ask("a partition twice", producers_of(topic, 0, 0), 0)
    twice = [DescribeProducersTopicRequest(name=topic, partition_indexes=[0]) for _ in range(2)]
    t.ask("a topic twice", DescribeProducersRequest(topics=twice), 0)
