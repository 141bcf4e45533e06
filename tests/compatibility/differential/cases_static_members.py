"""Groups whose members have names of their own (KIP-345)."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.groups import DescribeGroupsRequest, LeaveGroupRequest, MemberIdentity
from tests.compatibility.differential.asking import join, sync
from tests.compatibility.differential.cases_groups import beat
from tests.compatibility.differential.engine import Teller, in_versions

ME = "instance"


def static(t: Teller, group: str) -> str:
    answer = t.ask("joins at once", join(group, group_instance_id=ME))
    t.ask("assigned", sync(group, 1, answer.member_id, answer.member_id, group_instance_id=ME), 5)
    return str(answer.member_id)


@in_versions(5, 6, 7, 8, 9)
def comes_back(t: Teller) -> None:
    group = t.group()
    old = static(t, group)
    new = t.ask("back without its id", join(group, group_instance_id=ME), by="b").member_id
    t.ask("its assignment is still there", sync(group, 1, new, group_instance_id=ME), 5, by="b")
    t.ask("the old one's heartbeat", beat(group, 1, old, group_instance_id=ME), 3)
    t.ask("the old one without its name", beat(group, 1, old), 3)
    t.ask("the old one syncs", sync(group, 1, old, group_instance_id=ME), 5)
    t.ask("the old one joins", join(group, old, group_instance_id=ME))
    t.ask("the new one's heartbeat", beat(group, 1, new, group_instance_id=ME), 3, by="b")
    t.ask("the group", DescribeGroupsRequest(groups=[group]), 5)


@in_versions(5, 9)
def comes_back_with_another_mind(t: Teller) -> None:
    group = t.group()
    static(t, group)
    t.ask("another protocol", join(group, "", "sticky", group_instance_id=ME), by="b")


@in_versions(5, 9)
def names_and_ids(t: Teller) -> None:
    group = t.group()
    me = static(t, group)
    t.ask("an unknown name with a known id", beat(group, 1, me, group_instance_id="other"), 3)
    t.ask("a known name with an unknown id", beat(group, 1, "nobody", group_instance_id=ME), 3)
    t.ask("both unknown", beat(group, 1, "nobody", group_instance_id="other"), 3)
    t.ask("joins with an unknown id", join(group, "nobody", group_instance_id=ME), by="b")
    t.ask("a new name with an id", join(group, "nobody", group_instance_id="other"), by="b")
    t.ask("joins with its id", join(group, me, group_instance_id=ME))


def leave(group: str, *members: tuple[str, str | None], **more: Any) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=one, group_instance_id=name, **more) for one, name in members]
    )


@in_versions(5)
def leaves(t: Teller) -> None:
    for version in (3, 4, 5):
        group = t.group(f"g{version}")
        answer = t.aside(join(group, group_instance_id=ME), 5)
        t.aside(sync(group, 1, answer.member_id, answer.member_id, group_instance_id=ME), 5)
        t.ask(f"{version}: by a wrong id", leave(group, ("nobody", ME)), version)
        t.ask(f"{version}: by an unknown name", leave(group, ("", "other")), version)
        t.ask(
            f"{version}: an admin removes it and others",
            leave(group, ("", "other"), ("", ME), ("nobody", None)),
            version,
        )
        t.ask(f"{version}: the group", DescribeGroupsRequest(groups=[group]), 5)


@in_versions(5)
def an_empty_name(t: Teller) -> None:
    t.ask("is a name", join(t.group(), group_instance_id=""))
