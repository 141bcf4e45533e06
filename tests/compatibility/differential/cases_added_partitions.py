"""AddPartitionsToTxn 4 and 5, as brokers ask: several transactions in a request, added or only verified (KIP-890)."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from tests.compatibility.differential.asking_transactions import begun, describe, ended, new_topic, started
from tests.compatibility.differential.cases_transactions import mistaken, twice_started
from tests.compatibility.differential.engine import Explained, Teller, in_versions

ALWAYS_ANSWERED = Explained("a request without transactions is answered", "Kafka's broker never answers it")

NO_PARTITIONS = Explained(
    "a topic without partitions is answered, also if its partitions are only verified",
    "Kafka leaves it out then, but not if they are added",
    "results_by_transaction.*.topic_results.*",
)


def of(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=list(transactions))


@in_versions(4, 5)
def added(t: Teller) -> None:
    topic, a, b = new_topic(t, partitions=3), started(t, "a"), started(t, "b")
    t.ask("one", a.add(topic, 0))
    t.ask("of two", of(a.adding({topic: [0, 1]}), b.adding({topic: [2]})))
    t.ask("how they stand", describe(a.name, b.name), 0)
    t.ask("one is mistaken", of(a.adding({topic: [2]}), b.but(epoch=9).adding({topic: [0]})))
    t.ask("one names what is not there", of(a.adding({topic: [0], t.name("none"): [0]}), b.adding({topic: [1]})))
    t.ask("no transactions", of(), may_hang=True, but=ALWAYS_ANSWERED, by="alone")
    t.ask("no topics", of(a.adding({})))
    t.ask("no partitions", of(a.adding({topic: []})))
    t.ask("a partition twice", of(a.adding({topic: [0, 0]})))
    t.ask("how they stand then", describe(a.name, b.name), 0)


@in_versions(4, 5)
def verified(t: Teller) -> None:
    topic, other, me = new_topic(t, partitions=3), new_topic(t, "other"), started(t)

    def verify(label: str, partitions: dict[str, list[int]], **more: Any) -> None:
        t.ask(label, of(me.adding(partitions, verify_only=True)), **more)

    verify("nothing begun", {topic: [0]})
    begun(t, me, topic, 0, 1)
    verify("all are there", {topic: [0, 1]})
    verify("one is, one is not", {topic: [0, 2]})
    verify("none is", {other: [0]})
    verify("of two topics", {topic: [0], other: [0]})
    verify("an unknown partition", {topic: [0, 9]})
    verify("an unknown topic", {t.name("none"): [0]})
    verify("no topics", {})
    verify("no partitions", {topic: []}, but=NO_PARTITIONS)
    t.ask("nothing was added", describe(me.name), 0)
    ended(t, me)
    verify("after the commit", {topic: [0]})
    begun(t, me, topic, 0)
    ended(t, me, commit=False)
    verify("after the abort", {topic: [0]})


@in_versions(4, 5)
def verified_and_added(t: Teller) -> None:
    topic, a, b = new_topic(t, partitions=2), started(t, "a"), started(t, "b")
    begun(t, a, topic, 0)
    asked = of(a.adding({topic: [0, 1]}, verify_only=True), b.adding({topic: [1]}))
    t.ask("one verified, one added", asked)
    t.ask("how they stand", describe(a.name, b.name), 0)


@in_versions(4, 5)
def of_others(t: Teller) -> None:
    topic, me = new_topic(t, partitions=2), twice_started(t)
    for state in ("nothing begun", "a transaction open"):
        if state == "a transaction open":
            begun(t, me, topic)
        for what, producer in mistaken(t, me).items():
            t.ask(f"{state}, {what}, added", of(producer.adding({topic: [0, 1]})))
            t.ask(f"{state}, {what}, verified", of(producer.adding({topic: [0, 1]}, verify_only=True)))
    t.ask("how it stands", describe(me.name), 0)


@in_versions(4, 5)
def of_internal_topics(t: Teller) -> None:
    """Brokers may add them: the offsets of a group are in one."""
    me = started(t)
    t.ask("not yet added", of(me.adding({"__consumer_offsets": [0]}, verify_only=True)))
    t.ask("added", of(me.adding({"__consumer_offsets": [0, 4]})))
    t.ask("verified", of(me.adding({"__consumer_offsets": [0, 1]}, verify_only=True)))
    t.ask("how it stands", describe(me.name), 0)
