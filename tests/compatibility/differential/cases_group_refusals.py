"""JoinGroup and SyncGroup: what is refused."""

from __future__ import annotations

from kafkalite.protocol.messages.groups import JoinGroupRequestProtocol
from tests.compatibility.differential.asking import join, sync
from tests.compatibility.differential.cases_groups import joined, stable
from tests.compatibility.differential.engine import Explained, Teller, in_versions, once


@in_versions(0, 1, 2, 3, 4, 5, 6, 7, 9)
def joins_that_cannot_be(t: Teller) -> None:
    group = t.group()
    for timeout in (999, 0, -1, 1_800_001):
        t.ask(f"a session of {timeout} ms", join(group, session_timeout_ms=timeout))
    t.ask("a group without a name", join(""))
    t.ask("an id that nobody gave", join(group, "nobody"))
    t.ask("no protocols", join(group, protocols=[]))
    t.ask("no protocol type", join(group, protocol_type=""))


@in_versions(0, 5, 7, 9)
def joins_that_do_not_fit_the_group(t: Teller) -> None:
    group = t.group()
    me = stable(t, group)
    t.ask("another protocol type", join(group, protocol_type="connect"), by="b")
    t.ask("no protocol in common", join(group, "", "sticky"), by="b")
    t.ask("an id that nobody gave", join(group, "nobody"), by="b")
    t.ask("a member with another type", join(group, me, protocol_type="connect"), by="b")
    t.ask("a member with another protocol", join(group, me, "sticky"), by="b")


@in_versions(0, 3, 4, 5)
def syncs_that_cannot_be(t: Teller) -> None:
    group = t.group()
    me = joined(t, group)
    t.ask("a stranger", sync(group, 1, "nobody"))
    t.ask("an old generation", sync(group, 0, me))
    t.ask("one to come", sync(group, 2, me))
    t.ask("generation -1", sync(group, -1, me))
    t.ask("an unknown group", sync(t.name("none"), 1, me))
    t.ask("a group without a name", sync("", 1, me))
    if t.v >= 5:
        t.ask("another protocol", sync(group, 1, me, protocol_name="sticky"))
        t.ask("another type", sync(group, 1, me, protocol_type="connect"))
        t.ask("no protocol", sync(group, 1, me, protocol_name=None))
        t.ask("no type", sync(group, 1, me, protocol_type=None))
    t.ask("and the right one", sync(group, 1, me, me))


@in_versions(4, 5, 9)
def an_id_that_was_given_but_not_used(t: Teller) -> None:
    group = t.group()
    given = t.ask("given", join(group)).member_id
    t.ask("syncs before it joins", sync(group, 0, given), 3)
    t.ask("another one joins", join(group), by="b")
    t.ask("joins", join(group, given))
    t.ask("joins in another group", join(t.group("other"), given))


UNREAD = Explained(
    "a member's subscription is not read, and may be anything",
    "Kafka's broker reads those of consumers, fails on a count that cannot be, and never answers",
)


@once
def odd_members(t: Teller) -> None:
    group = t.group()
    t.ask("no rebalance timeout", join(group, rebalance_timeout_ms=-1), 3)
    t.ask("a group with a name of 300 letters", join(t.name("d" * 300)), 3)
    t.ask("a group with a strange name", join(t.name("\u00e9 / *")), 3)
    unread = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\x7f\xff\xff\xff")]
    t.ask("a subscription to 2^31-1 topics", join(t.group("h"), protocols=unread), 3, but=UNREAD, may_hang=True)
