"""TxnOffsetCommit of members of a consumer group (KIP-848): the generation is the member epoch."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.compatibility.differential.asking_transactions import Producer, ended, started
from tests.compatibility.differential.cases_consumer_groups import (
    beat,
    classic_join,
    fetch,
    join,
    known_topic,
    sync,
)
from tests.compatibility.differential.cases_transaction_offsets import is_stable, with_group
from tests.compatibility.differential.engine import Teller, in_versions_of_4_3

FIRST_WITH_MEMBERS = 3
NOBODY: tuple[str, int] = "", -1


def commit(
    me: Producer, group: str, topic: str, index: int, member: tuple[str, int], metadata: str = "", **more: Any
) -> TxnOffsetCommitRequest:
    """`member`: its id and its epoch."""
    row = TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=5, committed_metadata=metadata, committed_leader_epoch=-1
    )
    return TxnOffsetCommitRequest(
        **me.identity,
        group_id=group,
        member_id=member[0],
        generation_id=member[1],
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        **more,
    )


@in_versions_of_4_3(2, 3, 4, 5)
def by_member_epoch(t: Teller) -> None:
    """The second member gets its partition in epoch 3, and the first one has its own since epoch 2."""
    group, topic = t.group(), known_topic(t, partitions=2)
    t.aside(join(t, group, "m1", topic), 1)
    t.aside(join(t, group, "m2", topic), 1)
    t.aside(beat(t, group, "m1", 2), 1)
    me = with_group(t, started(t), group)
    t.ask("of a partition that it is giving up", commit(me, group, topic, 1, ("m1", 2)))
    t.aside(beat(t, group, "m1", 2, {topic: [0]}), 1)
    t.aside(beat(t, group, "m2", 3), 1)
    for label, member, epoch, index in (
        ("by its epoch", "m1", 3, 0),
        ("by the epoch since when it has it", "m1", 2, 0),
        ("by an older one", "m1", 1, 0),
        ("of a partition of another", "m1", 2, 1),
        ("of that with the epoch of today", "m1", 3, 1),
        ("by an epoch to come", "m1", 4, 0),
        ("of the new one by an old epoch", "m2", 2, 1),
        ("by an unknown member", "m9", 3, 0),
        ("by a member without an epoch", "m1", -1, 0),
        ("by nobody of an epoch", "", 3, 0),
        ("by a stranger without an epoch", "m9", -1, 0),
        ("by nobody", "", -1, 0),
    ):
        t.ask(f"commits {label}", commit(me, group, topic, index, (member, epoch)))
    t.ask("with a long note, of a partition of another", commit(me, group, topic, 1, ("m1", 2), "x" * 4097))
    if t.v >= FIRST_WITH_MEMBERS:
        t.ask("under a name", commit(me, group, topic, 0, ("m1", 3), group_instance_id="x"))
        t.ask("nobody under a name", commit(me, group, topic, 0, NOBODY, group_instance_id="x"))
    t.aside(beat(t, group, "m1", -1), 1)
    t.aside(beat(t, group, "m2", -1), 1)
    t.ask("a member that has left", commit(me, group, topic, 0, ("m1", 3)))
    t.ask("nobody, when all have left", commit(me, group, topic, 1, NOBODY))
    t.ask("a stranger without an epoch then", commit(me, group, topic, 1, ("m9", -1)))
    ended(t, me)
    t.ask("in the end", fetch(group, topic, None, -1), 8, until=is_stable)


@in_versions_of_4_3(5)
def of_an_unknown_group(t: Teller) -> None:
    topic = known_topic(t)
    group, other = t.group("none"), t.group("neither")
    me = with_group(t, with_group(t, started(t), group), other)
    t.ask("a member", commit(me, group, topic, 0, ("m1", 3)))
    t.ask("nobody of an epoch", commit(me, group, topic, 0, ("", 3)))
    t.ask("a member without an epoch", commit(me, group, topic, 0, ("m1", -1)))
    t.ask("nobody", commit(me, other, topic, 0, NOBODY))
    ended(t, me)
    t.ask("in the end", fetch(group, topic, None, -1), 8, until=is_stable)
    t.ask("the other in the end", fetch(other, topic, None, -1), 8, until=is_stable)


@in_versions_of_4_3(3, 5)
def by_static_members(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    t.aside(join(t, group, "m1", topic, instance_id="i"), 1)
    me = with_group(t, started(t), group)
    t.ask("by its name", commit(me, group, topic, 0, ("m1", 2), group_instance_id="i"))
    t.ask("under another name", commit(me, group, topic, 0, ("m1", 2), group_instance_id="j"))
    t.ask("an unknown id by its name", commit(me, group, topic, 0, ("m9", 2), group_instance_id="i"))
    t.aside(beat(t, group, "m1", -2, instance_id="i"), 1)
    t.ask("away, by its last epoch", commit(me, group, topic, 0, ("m1", 2), group_instance_id="i"))
    t.ask("away, without an epoch", commit(me, group, topic, 0, ("m1", -1), group_instance_id="i"))
    t.ask("away, by the epoch of the absent", commit(me, group, topic, 0, ("m1", -2), group_instance_id="i"))
    t.aside(join(t, group, "m2", topic, instance_id="i"), 1)
    t.ask("the one that was replaced", commit(me, group, topic, 0, ("m1", 2), group_instance_id="i"))
    t.ask("its successor", commit(me, group, topic, 0, ("m2", 2), group_instance_id="i"))
    t.ask("its successor by the epoch before", commit(me, group, topic, 0, ("m2", 1), group_instance_id="i"))
    ended(t, me)
    t.ask("in the end", fetch(group, topic, None, -1), 8, until=is_stable)


@in_versions_of_4_3(3, 5)
def by_classic_members(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    old = str(t.aside(classic_join(group, "", topic), 3).member_id)
    t.aside(sync(group, old, 1, {old: {topic: [0, 1]}}), 5)
    t.aside(join(t, group, "zz", topic), 1)
    me = with_group(t, started(t), group)
    t.ask("before it joins again", commit(me, group, topic, 0, (old, 1)))
    t.aside(classic_join(group, old, topic, {topic: [0, 1]}), 9)
    t.aside(sync(group, old, 1), 5)
    t.ask("of what it gives up", commit(me, group, topic, 1, (old, 1)))
    t.aside(classic_join(group, old, topic, {topic: [0]}), 9)
    t.aside(sync(group, old, 2), 5)
    t.ask("in its generation", commit(me, group, topic, 0, (old, 2)))
    t.ask("in the one since when it has it", commit(me, group, topic, 0, (old, 1)))
    t.ask("of what it has given up", commit(me, group, topic, 1, (old, 1)))
    t.ask("in a generation to come", commit(me, group, topic, 0, (old, 3)))
    t.ask("the modern one by its generation", commit(me, group, topic, 1, ("zz", 2)))
    ended(t, me)
    t.ask("in the end", fetch(group, topic, None, -1), 8, until=is_stable)
