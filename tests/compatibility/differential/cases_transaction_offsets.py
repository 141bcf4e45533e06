"""TxnOffsetCommit, and OffsetFetch of what is stable: offsets that count when their transaction commits."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.compatibility.differential.asking import join, sync
from tests.compatibility.differential.asking_transactions import (
    ADD,
    END,
    EPOCH_IS_VERIFIED,
    Producer,
    begun,
    describe,
    ended,
    error_codes,
    new_topic,
    restarted,
    settled,
    started,
)
from tests.compatibility.differential.cases_groups import joined, leave, stable
from tests.compatibility.differential.cases_offsets import commit, fetch
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.cases_transactions import NEWER, mistaken, twice_started
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

LAST = 4  # the newest TxnOffsetCommit at Kafka
NO_EPOCH = Explained(
    "a commit without an epoch is refused with INVALID_PRODUCER_EPOCH also while a transaction is open",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR then",
    "topics.*.partitions.*.error_code",
)
NOT_FORGOTTEN = Explained(
    "a commit that is refused leaves the pending ones of its producer as they are",
    "Kafka forgets the pending offset of the partition, and has it again when it loads its log",
    "topics.*.partitions.*.*",
)
NO_GROUP_LEFT = Explained(
    "a group is gone with its last pending offset",
    "Kafka keeps an empty group until its transaction has ended and it looks for expired offsets",
    "groups.*.group_state",
    "groups.*.protocol_type",
)


def with_group(t: Teller, me: Producer, group: str) -> Producer:
    """The producer, with this group in its transaction."""
    settled(t, me.add_group(group), ADD)
    return me


def is_stable(answer: Any) -> bool:
    return 88 not in error_codes(answer)


def look(t: Teller, group: str, topic: str, when: str, *partitions: int, **more: Any) -> None:
    asked = {topic: list(partitions or (0,))}
    t.ask(f"{when}: what is stable", fetch(group, asked, require_stable=True), 7, **more)
    t.ask(f"{when}: what there is", fetch(group, asked), 7, **more)


@every_version("TxnOffsetCommit")
def committed(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t, partitions=3), started(t)
    t.aside(commit(group, topic, 1, 2), 7)
    with_group(t, me, group)
    t.ask("in the transaction", me.commit_offsets(group, topic, 11, 12))
    t.ask("with an epoch", me.commit_offsets(group, topic, 13, metadata="", epoch=0))
    t.ask("without a note", me.commit_offsets(group, topic, 13, metadata=None))
    look(t, group, topic, "open", 0, 1, 2)
    t.ask("open: all", fetch(group, None, require_stable=True), 7)
    ended(t, me)
    look(t, group, topic, "committed", 0, 1, 2, until=is_stable)
    with_group(t, me, group)
    t.ask("in the next", me.commit_offsets(group, topic, 21))
    ended(t, me, commit=False)
    look(t, group, topic, "aborted", 0, 1, 2, until=is_stable)


@every_version("TxnOffsetCommit")
def where_there_is_nothing(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    with_group(t, me, group)
    t.ask("unknown topic", me.commit_offsets(group, t.name("none"), 5))
    t.ask("one partition of three unknown", me.commit_offsets(group, topic, 1, 2, 3))
    t.ask("no topics", me.commit_offsets(group, topic, topics=[]))
    t.ask("no partitions", me.commit_offsets(group, topic))
    t.ask("offset -1", me.commit_offsets(group, topic, -1))
    t.ask("a long note", me.commit_offsets(group, topic, 7, metadata="x" * 4097))
    t.ask("the longest note", me.commit_offsets(group, topic, 7, metadata="x" * 4096))
    t.ask("a group without a name", me.commit_offsets("", topic, 1))
    look(t, group, topic, "open")
    ended(t, me)
    look(t, group, topic, "committed", until=is_stable)


@every_version("TxnOffsetCommit")
def unverified(t: Teller) -> None:
    """The group's partition must take part: AddOffsetsToTxn comes first."""
    group, topic, me = t.group(), new_topic(t), started(t)
    t.ask("nothing begun", me.commit_offsets(group, topic, 5))
    begun(t, me, topic)
    t.ask("a transaction without the group", me.commit_offsets(group, topic, 5))
    with_group(t, me, group)
    t.ask("with the group", me.commit_offsets(group, topic, 5))
    ended(t, me)
    t.ask("after the end", me.commit_offsets(group, topic, 6))
    look(t, group, topic, "in the end", until=is_stable if t.v < 5 else None)  # from 5 on the next one is open


@every_version("TxnOffsetCommit")
def of_others(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), twice_started(t)
    with_group(t, me, group)
    for when in ("before the first", "after it"):
        for what, producer in mistaken(t, me).items():
            if (when, what) != ("after it", "an epoch to come"):  # its own story: no marker follows
                but = NO_EPOCH if (when, what) == ("after it", "no epoch") and t.v < 5 else None
                t.ask(f"{when}, {what}", producer.commit_offsets(group, topic, 5), but=but)
        t.ask(f"{when}, the right one", me.commit_offsets(group, topic, 6))
    ended(t, me)
    look(t, group, topic, "in the end", until=is_stable)


@in_versions(0, 4)
def of_an_epoch_to_come(t: Teller) -> None:
    """In an open transaction no epoch is verified, and the log takes a newer one for true."""
    group, topic, me = t.group(), new_topic(t), started(t)
    with_group(t, me, group)
    t.ask("the right one", me.commit_offsets(group, topic, 6))
    newer = me.but(epoch=me.epoch + 1)
    t.ask("an epoch to come", newer.commit_offsets(group, topic, 5), but=EPOCH_IS_VERIFIED)
    t.ask("the right one again", me.commit_offsets(group, topic, 7), but=EPOCH_IS_VERIFIED)


@in_versions(0, 2, 3, 4)
def of_members(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    member = stable(t, group)
    with_group(t, me, group)

    def ask(label: str, group: str, member_id: str = "", generation: int = -1, **more: Any) -> None:
        who = {"member_id": member_id, "generation_id": generation}
        t.ask(label, me.commit_offsets(group, topic, 5, **who | more))

    ask("a member", group, member, 1)
    ask("of an old generation", group, member, 0)
    ask("of one to come", group, member, 2)
    ask("a member without a generation", group, member)
    ask("a stranger", group, "nobody", 1)
    ask("a stranger without a generation", group, "nobody")
    ask("not a member", group)
    ask("nobody, of a generation", group, "", 1)
    ask("under a name that is not its own", group, member, 1, group_instance_id="x")
    ask("in an unknown group", with_group(t, me, t.name("none")) and t.name("none"), member, 1)
    ask("a stranger in an unknown group", t.name("none"), "nobody")
    ask("nobody in an unknown group", t.name("none"))
    ended(t, me)
    look(t, group, topic, "in the end", until=is_stable)


@in_versions(3, 4)
def of_static_members(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    first = t.aside(join(group, group_instance_id="one"), 5)
    second = t.aside(join(group, group_instance_id="one"), 5, by="b")
    t.aside(sync(group, second.generation_id, second.member_id, second.member_id), 3, by="b")
    with_group(t, me, group)

    def ask(label: str, member: Any, instance: str | None) -> None:
        who = {"member_id": member.member_id, "generation_id": second.generation_id, "group_instance_id": instance}
        t.ask(label, me.commit_offsets(group, topic, 5, **who))

    ask("the member that was replaced", first, "one")
    ask("without its name", first, None)
    ask("under another name", second, "two")
    ask("the member", second, "one")
    ask("the member without its name", second, None)


@in_versions(0, 3, 4)
def before_the_assignment(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    member = joined(t, group)
    with_group(t, me, group)
    t.ask("a member", me.commit_offsets(group, topic, 5, member_id=member, generation_id=1))
    t.ask("not a member", me.commit_offsets(group, topic, 5))
    ended(t, me)
    look(t, group, topic, "in the end", until=is_stable)


@in_versions(7, 8, 9)
def fetched_while_it_is_open(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t, partitions=3), started(t)
    t.aside(commit(group, topic, 1, 2), 7)
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11), LAST)
    for stable_only in (True, False):
        for label, topics in (("some", {topic: [0, 1, 2, 9]}), ("all", None), ("an unknown topic", {"none": [0]})):
            t.ask(f"{label}, {stable_only=}", fetch(group, topics, require_stable=stable_only))
    t.ask("of another group", fetch(t.name("none"), {topic: [0]}, require_stable=True))
    ended(t, me)
    t.ask("when it is committed", fetch(group, None, require_stable=True), until=is_stable)


@once
def beside_a_plain_commit(t: Teller) -> None:
    """The one that came later counts, also if its transaction ends later still."""
    group, topic, me = t.group(), new_topic(t, partitions=2), started(t)
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11, 12), LAST)
    t.ask("a plain commit", commit(group, topic, 21), 7)
    look(t, group, topic, "open", 0, 1)
    ended(t, me)
    look(t, group, topic, "committed", 0, 1, until=is_stable)


@once
def of_two_transactions(t: Teller) -> None:
    group, topic, a, b = t.group(), new_topic(t), started(t, "a"), started(t, "b")
    for offset, producer in ((11, a), (22, b), (13, a)):
        with_group(t, producer, group)
        t.ask(f"offset {offset}", producer.commit_offsets(group, topic, offset), LAST)
    ended(t, a)
    look(t, group, topic, "the first committed")
    ended(t, b)
    look(t, group, topic, "both committed", until=is_stable)


@once
def of_a_producer_that_was_replaced(t: Teller) -> None:
    group, topic, old = t.group(), new_topic(t), started(t)
    with_group(t, old, group)
    t.ask("the old one", old.commit_offsets(group, topic, 11), LAST)
    new = restarted(t, old.name)
    look(t, group, topic, "aborted by the new one", until=is_stable)
    with_group(t, new, group)
    t.ask("the old one again", old.commit_offsets(group, topic, 12), LAST)
    t.ask("the new one", new.commit_offsets(group, topic, 13), LAST)
    t.ask("the old one after the new one", old.commit_offsets(group, topic, 14), LAST)
    ended(t, new)
    look(t, group, topic, "in the end", until=is_stable, but=NOT_FORGOTTEN)


def forget(group: str, topic: str, partition: int = 0) -> OffsetDeleteRequest:
    asked = [OffsetDeleteRequestPartition(partition_index=partition)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])


@once
def groups_with_only_pending_offsets(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    t.aside(commit("", topic, 1), 7)  # other stories leave a group without a name, and it is listed, too
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11), LAST)
    t.ask("described", DescribeGroupsRequest(groups=[group]), 5)
    t.ask("listed", ListGroupsRequest(), 4)
    t.ask("a member comes and goes", leave(t, group, joined(t, group)), 3)
    empty = lambda answer: answer.groups[0].group_state == "Empty"  # noqa: E731
    t.ask("described then", DescribeGroupsRequest(groups=[group]), 5, until=empty)
    t.ask("the offset deleted", forget(group, topic), 0)
    look(t, group, topic, "open")
    ended(t, me)
    look(t, group, topic, "committed", until=is_stable)
    t.ask("described in the end", DescribeGroupsRequest(groups=[group]), 5, but=NO_GROUP_LEFT)


@once
def a_group_deleted_meanwhile(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    t.aside(commit(group, topic, 1), 7)
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11), LAST)
    t.ask("deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    look(t, group, topic, "open")
    t.ask("the transaction commits", me.end(), END)
    t.ended(me.name)
    look(t, group, topic, "committed", until=is_stable)
    t.ask("described", DescribeGroupsRequest(groups=[group]), 5)


@once
def an_offset_deleted_meanwhile(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t, partitions=2), started(t)
    t.aside(commit(group, topic, 1, 2), 7)
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11), LAST)
    t.ask("deleted", forget(group, topic), 0)
    look(t, group, topic, "open", 0, 1)
    ended(t, me)
    look(t, group, topic, "committed", 0, 1, until=is_stable)


@once
def a_topic_deleted_meanwhile(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    with_group(t, me, group)
    t.aside(me.commit_offsets(group, topic, 11), LAST)
    t.aside(delete(topic), 3)
    gone_from(t, topic)
    ended(t, me)
    t.ask("how it stands", describe(me.name), 0)
    t.ask("another commit", with_group(t, me, group).commit_offsets(group, topic, 12), LAST)


@once
def of_a_newer_kafka(t: Teller) -> None:
    group, topic, me = t.group(), new_topic(t), started(t)
    with_group(t, me, group)
    t.ask("TxnOffsetCommit 5", me.commit_offsets(group, topic, 5), 5, but=NEWER)
