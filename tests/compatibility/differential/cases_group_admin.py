"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from tests.compatibility.differential.asking import join
from tests.compatibility.differential.cases_groups import joined, leave, stable
from tests.compatibility.differential.cases_offsets import commit
from tests.compatibility.differential.engine import (
    Explained,
    Teller,
    every_version,
    in_versions,
    in_versions_of_4_3,
    once,
)


def find(t: Teller, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=keys[0] if keys else "", key_type=key_type, coordinator_keys=list(keys))


@every_version("FindCoordinator")
def coordinators(t: Teller) -> None:
    t.ask("of a group", find(t, t.name()))
    t.ask("of a group without a name", find(t, ""))
    if t.v >= 4:
        t.ask("of several", find(t, t.name("b"), t.name("a"), ""))
        t.ask("one twice", find(t, t.name("b"), t.name("b")))
        t.ask("of none", find(t))


@in_versions(1, 3, 4, 5, 6)
def kinds_of_coordinators(t: Teller) -> None:
    for kind in (3, -1, 99):
        t.ask(f"kind {kind}", find(t, t.name(), key_type=kind))


NO_SHARE_PARTITION = Explained(
    "a key that names no share partition is refused with the reason",
    "Kafka leaves the message out",
    "coordinators.*.error_message",
)


@in_versions_of_4_3(6)
def of_share_partitions(t: Teller) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    for key in ("g", "g:t:0", f"g:{topic_id}:x", f":{topic_id}:0", f"g:{topic_id}:0:1"):
        t.ask(f"the key {key!r}", find(t, key, key_type=2), but=NO_SHARE_PARTITION)
    t.ask("a share partition", find(t, f"g:{topic_id}:0", key_type=2), until=is_found)


def is_found(answer: Any) -> bool:
    return (answer.coordinators[0] if answer.coordinators else answer).error_code != 15


@in_versions(1, 4, 6)
def of_transactions(t: Teller) -> None:
    t.ask("a name", find(t, t.name("tx"), key_type=1), until=is_found)


ONCE_IS_ENOUGH = Explained(
    "a group that is named twice in a request is described once",
    "clients file the answers by name, and a small request must not bring an answer of megabytes",
    "groups.* again",
)


@every_version("DescribeGroups")
def described(t: Teller) -> None:
    group, empty = t.group(), t.group("empty")
    t.aside(commit(empty, t.topic(), 5), 7)
    me = stable(t, group)
    t.ask("stable, empty, unknown", DescribeGroupsRequest(groups=[group, empty, t.name("none")]))
    t.ask("without a name", DescribeGroupsRequest(groups=[""]))
    t.ask("none", DescribeGroupsRequest(groups=[]))
    t.ask("one twice", DescribeGroupsRequest(groups=[group, group]), but=ONCE_IS_ENOUGH)
    if t.v >= 3:
        wanted = DescribeGroupsRequest(groups=[group, t.name("none")], include_authorized_operations=True)
        t.ask("with operations", wanted)
    t.aside(join(group, me), 5)
    t.ask("joined, not assigned", DescribeGroupsRequest(groups=[group]))
    t.aside(leave(t, group, me), 3)
    t.ask("left", DescribeGroupsRequest(groups=[group]))


@every_version("ListGroups")
def listed(t: Teller) -> None:
    group, empty = t.group(), t.group("empty")
    t.aside(commit(empty, t.topic(), 5), 7)
    t.ask("an empty one", ListGroupsRequest())
    stable(t, group)
    t.ask("all", ListGroupsRequest())
    if t.v >= 4:
        for states in (["Stable"], ["Empty"], ["stable"], ["EMPTY", "Stable"], ["Dead"], ["nonsense"], [""]):
            t.ask(f"{states}", ListGroupsRequest(states_filter=states))
    if t.v >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["consumer", "CLASSIC"], ["nonsense"], [""]):
            t.ask(f"of {types}", ListGroupsRequest(types_filter=types))
        t.ask("empty ones", ListGroupsRequest(types_filter=["classic"], states_filter=["Empty"]))


@every_version("DeleteGroups")
def deleted(t: Teller) -> None:
    group, empty = t.group(), t.group("empty")
    t.aside(commit(empty, t.topic(), 5), 7)
    me = stable(t, group)
    t.ask("stable, empty, unknown", DeleteGroupsRequest(groups_names=[group, empty, t.name("none")]))
    t.ask("again", DeleteGroupsRequest(groups_names=[empty]))
    t.ask("it is dead", DescribeGroupsRequest(groups=[empty]), 5)
    t.aside(leave(t, group, me), 3)
    t.ask("left by its member", DeleteGroupsRequest(groups_names=[group]))
    t.ask("without a name", DeleteGroupsRequest(groups_names=[""]))
    t.ask("none", DeleteGroupsRequest(groups_names=[]))
    t.ask("unknown, twice", DeleteGroupsRequest(groups_names=[t.name("none"), t.name("none")]))


@once
def on_the_way(t: Teller) -> None:
    group = t.group()
    me = joined(t, group)
    t.ask("listed while it awaits its assignment", ListGroupsRequest(states_filter=["CompletingRebalance"]), 4)
    t.ask("not deleted meanwhile", DeleteGroupsRequest(groups_names=[group]), 2)
    t.ask("members", DescribeGroupsRequest(groups=[group]), 5)
    t.aside(leave(t, group, me), 3)
