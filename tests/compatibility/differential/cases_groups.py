"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: groups whose members behave."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from tests.compatibility.differential.asking import join, sync
from tests.compatibility.differential.engine import Teller, every_version, in_versions, once


def beat(group: str, generation: int, member_id: str, **more: Any) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, **more)


def leave(t: Teller, group: str, *members: str, **more: Any) -> LeaveGroupRequest:
    """In the words of version 3 and of those before it."""
    identities = [MemberIdentity(member_id=member, **more) for member in members]
    return LeaveGroupRequest(group_id=group, member_id=members[0], members=identities)


def joined(t: Teller, group: str, *protocols: str, by: str = "a", version: int = 5) -> str:
    """A member that has joined alone, in a version of its own; nothing is noted."""
    first = t.aside(join(group, "", *protocols), version, by=by)
    if first.error_code == 79:
        first = t.aside(join(group, first.member_id, *protocols), version, by=by)
    assert first.error_code == 0, first
    return str(first.member_id)


def stable(t: Teller, group: str, by: str = "a") -> str:
    """The one member of a stable group in generation 1."""
    me = joined(t, group, by=by)
    assert t.aside(sync(group, 1, me, me), 3, by=by).error_code == 0
    return me


@every_version("JoinGroup")
def alone(t: Teller) -> None:
    group = t.group()
    answer = t.ask("joined", join(group))
    if answer.error_code == 79:
        answer = t.ask("joined with the id", join(group, answer.member_id))
    me = answer.member_id
    t.ask("synced", sync(group, 1, me, me), 5)
    t.ask("joined again", join(group, me))
    t.ask("in the new generation", sync(group, 2, me, me), 5)


@every_version("SyncGroup")
def synced(t: Teller) -> None:
    group = t.group()
    me = joined(t, group)
    t.ask("before the assignment", beat(group, 1, me), 3)
    t.ask("assigned", sync(group, 1, me, me))
    t.ask("asked again", sync(group, 1, me))
    t.ask("assigned once more, which changes nothing", sync(group, 1, me, me))
    t.ask("heartbeat", beat(group, 1, me), 3)


@every_version("Heartbeat")
def heartbeats(t: Teller) -> None:
    group = t.group()
    me = stable(t, group)
    t.ask("as a member", beat(group, 1, me))
    t.ask("of an old generation", beat(group, 0, me))
    t.ask("of one to come", beat(group, 2, me))
    t.ask("of generation -1", beat(group, -1, me))
    t.ask("as a stranger", beat(group, 1, "nobody"))
    t.ask("as nobody", beat(group, 1, ""))
    t.ask("in an unknown group", beat(t.name("none"), 1, me))
    t.ask("in a group without a name", beat("", 1, me))


@every_version("LeaveGroup")
def left(t: Teller) -> None:
    group = t.group()
    me = stable(t, group)
    t.ask("a stranger", leave(t, group, "nobody"))
    t.ask("a member", leave(t, group, me))
    t.ask("again", leave(t, group, me))
    t.ask("of an unknown group", leave(t, t.name("none"), me))
    t.ask("of a group without a name", leave(t, "", me))
    t.ask("its heartbeat", beat(group, 1, me), 3)


@in_versions(3, 5)
def several_leave(t: Teller) -> None:
    group = t.group()
    me = stable(t, group)
    t.ask("a member, a stranger, the member again", leave(t, group, me, "nobody", me))
    t.ask("nobody", LeaveGroupRequest(group_id=group, members=[]))


def join_both(t: Teller, group: str, version: int, *protocols: tuple[str, ...]) -> tuple[Any, Any]:
    """Two members in one generation: the second one's join brings the first one's again."""
    first, second = protocols or (("range",), ("range",))
    a = joined(t, group, *first, by="a")
    t.aside(sync(group, 1, a, a), 3, by="a")
    b = t.aside(join(group, "", *second), 4, by="b").member_id
    t.send(join(group, b, *second), version, by="b")
    t.ask("the first is called", beat(group, 1, a), 3, until=lambda answer: answer.error_code == 27)
    return (
        t.ask("the first joins again", join(group, a, *first), version, by="a"),
        t.take("the second joins", by="b"),
    )


@every_version("JoinGroup")
def two_members(t: Teller) -> None:
    group = t.group()
    a, b = join_both(t, group, t.v)
    t.send(sync(group, 2, b.member_id), 3, by="b")
    t.ask("the leader assigns", sync(group, 2, a.member_id, a.member_id, b.member_id), 3)
    t.take("the follower has its own", by="b")
    t.ask("the leader leaves", leave(t, group, a.member_id), 3)
    t.ask("the follower is called", beat(group, 2, b.member_id), 3, by="b")
    t.ask("and leads", join(group, b.member_id), by="b")


@in_versions(3, 5)
def who_gets_no_assignment(t: Teller) -> None:
    group = t.group()
    a, b = join_both(t, group, 5)
    t.send(sync(group, 2, b.member_id), by="b")
    t.ask("the leader assigns to itself and to a stranger", sync(group, 2, a.member_id, a.member_id, "nobody"))
    t.take("the follower has nothing", by="b")


@in_versions(5, 7)
def protocols_are_voted_on(t: Teller) -> None:
    join_both(t, t.group(), t.v, ("range", "sticky"), ("sticky",))
    join_both(t, t.group("h"), t.v, ("range", "sticky", "rr"), ("sticky", "rr"))


@in_versions(0, 5, 9)
def a_sync_that_waits_for_a_leader_who_leaves(t: Teller) -> None:
    group = t.group()
    a, b = join_both(t, group, t.v)
    t.send(sync(group, 2, b.member_id), 3, by="b")
    t.ask("the leader leaves", leave(t, group, a.member_id), 3)
    t.take("the follower is told", by="b")


@once
def a_member_that_joins_again_without_change(t: Teller) -> None:
    group = t.group()
    a, b = join_both(t, group, 5)
    t.send(sync(group, 2, b.member_id), 5, by="b")
    t.ask("assigned", sync(group, 2, a.member_id, a.member_id, b.member_id), 5)
    t.take("the follower", by="b")
    t.ask("the follower joins with what it had", join(group, b.member_id), 5, by="b")


@once
def without_a_heartbeat(t: Teller) -> None:
    group = t.group()
    me = t.aside(join(group, session_timeout_ms=1000), 3).member_id
    t.aside(sync(group, 1, me, me), 3)
    gone = t.ask("described until it is gone", DescribeGroupsRequest(groups=[group]), 3, until=is_empty)
    assert gone.groups[0].members == []
    t.ask("its heartbeat", beat(group, 1, me), 3)


def is_empty(answer: Any) -> bool:
    return answer.groups[0].group_state == "Empty"
