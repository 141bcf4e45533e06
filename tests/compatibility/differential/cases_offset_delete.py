"""OffsetDelete."""

from __future__ import annotations

import struct
from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.protocol.messages.groups import DescribeGroupsRequest, JoinGroupRequest, JoinGroupRequestProtocol
from tests.compatibility.differential.asking import join, sync
from tests.compatibility.differential.cases_groups import beat, leave
from tests.compatibility.differential.cases_offsets import as_member, commit, fetch
from tests.compatibility.differential.engine import Teller, every_version, once


def delete(group: str, *asked: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
            for name, partitions in asked
        ],
    )


def reading(group: str, member_id: str, *topics: str, **more: Any) -> JoinGroupRequest:
    """To join as a consumer that is subscribed to these topics."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    subscription = struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]
    return join(group, member_id, protocols=protocols, **more)


def member(t: Teller, request: JoinGroupRequest) -> str:
    """The id of a member that joins alone and awaits its assignment."""
    answer = t.aside(request, 3)
    assert answer.error_code == 0, answer
    return str(answer.member_id)


@every_version("OffsetDelete")
def of_a_group_without_members(t: Teller) -> None:
    group, one, other = t.group(), t.topic("one", 2), t.topic("other")
    t.aside(commit(group, one, 5, 6), 7)
    t.aside(commit(group, other, 7), 7)
    t.ask("one offset", delete(group, (one, [0])))
    t.ask("the others are left", fetch(group, None), 7)
    t.ask("it is gone already", delete(group, (one, [0])))
    t.ask("all", delete(group, (one, [0, 1]), (other, [0])))
    t.ask("and the group with them", DescribeGroupsRequest(groups=[group]), 5)
    t.ask("which is unknown now", delete(group, (one, [0])))
    t.ask("nothing is left", fetch(group, None), 7)


@every_version("OffsetDelete")
def what_is_not_there(t: Teller) -> None:
    group, topic, none = t.group(), t.topic(partitions=2), t.name("none")
    t.ask("unknown group", delete(group, (topic, [0])))
    t.ask("unknown group and topic", delete(group, (none, [0])))
    t.ask("unknown group, nothing asked for", delete(group))
    t.ask("a group without a name", delete("", (topic, [0])))
    t.aside(commit(group, topic, 5), 7)
    t.ask("unknown topic", delete(group, (none, [0, 1])))
    t.ask("unknown partitions", delete(group, (topic, [2, -1])))
    t.ask("without an offset", delete(group, (topic, [1])))
    t.ask("nothing asked for", delete(group))
    t.ask("a topic without partitions", delete(group, (topic, [])))
    t.ask("it is still there", fetch(group, None), 7)
    t.ask("one good, others not", delete(group, (none, [0]), (topic, [0, 7])))
    t.ask("gone", fetch(group, None), 7)


@once
def one_twice(t: Teller) -> None:
    group, topic = t.group(), t.topic(partitions=2)
    t.aside(commit(group, topic, 5, 6), 7)
    t.ask("a partition", delete(group, (topic, [0, 0])))
    t.ask("a topic", delete(group, (topic, [0]), (topic, [1])))
    t.ask("all are gone", fetch(group, None), 7)


@once
def of_consumers(t: Teller) -> None:
    group, read, other = t.group(), t.topic("read"), t.topic("other")
    t.aside(commit(group, other, 7), 7)
    me = member(t, reading(group, "", read))
    t.ask("read, before the assignment", delete(group, (read, [0])), 0)
    t.ask("not read, before the assignment", delete(group, (other, [0])), 0)
    assert t.aside(sync(group, 1, me, me), 3).error_code == 0
    t.aside(commit(group, read, 5, **as_member(me)), 7)
    t.aside(commit(group, other, 7, **as_member(me)), 7)
    t.ask("stable", delete(group, (read, [0]), (other, [0]), (t.name("none"), [0])), 0)
    t.ask("what is read is left", fetch(group, None), 7)
    t.ask("unknown partition of what is read", delete(group, (read, [1])), 0)
    t.aside(leave(t, group, me), 3)
    t.ask("left by all", delete(group, (read, [0])), 0)
    t.ask("dead", DescribeGroupsRequest(groups=[group]), 5)


@once
def while_consumers_rebalance(t: Teller) -> None:
    """Only the subscription of the last generation counts."""
    group, read, other = t.group(), t.topic("read"), t.topic("other")
    me = member(t, reading(group, "", read))
    assert t.aside(sync(group, 1, me, me), 3).error_code == 0
    t.aside(commit(group, read, 5, **as_member(me)), 7)
    t.aside(commit(group, other, 7, **as_member(me)), 7)
    t.send(reading(group, "", other), 3, by="b")
    t.ask("another comes", beat(group, 1, me), 3, until=lambda answer: answer.error_code == 27)
    t.ask("what the first reads", delete(group, (read, [0])), 0)
    t.ask("what the second will read", delete(group, (other, [0])), 0)
    t.aside(reading(group, me, read), 3)
    t.take("the second has joined", by="b")
    t.ask("in the new generation", delete(group, (read, [0]), (other, [0])), 0)


@once
def of_others(t: Teller) -> None:
    """The broker does not know what members of another kind read."""
    group, topic = t.group(), t.topic()
    me = member(t, join(group, protocol_type="workers"))
    t.ask("before the assignment", delete(group, (topic, [0])), 0)
    assert t.aside(sync(group, 1, me, me, protocol_type="workers"), 3).error_code == 0
    t.aside(commit(group, topic, 5, **as_member(me)), 7)
    t.ask("stable", delete(group, (topic, [0]), (t.name("none"), [0])), 0)
    t.ask("stable, nothing asked for", delete(group), 0)
    t.aside(leave(t, group, me), 3)
    t.ask("left by all", delete(group, (topic, [0])), 0)
    t.ask("gone", fetch(group, None), 7)
