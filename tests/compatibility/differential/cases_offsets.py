"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.compatibility.differential.asking import sync
from tests.compatibility.differential.cases_groups import joined, stable
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import (
    Explained,
    Teller,
    every_version,
    in_versions,
    in_versions_of_4_3,
    once,
)


def commit(group: str, topic: str, *offsets: int, metadata: str | None = "note", epoch: int = -1, **more: Any) -> Any:
    """`offsets` of the partitions from 0 on."""
    asked = [
        OffsetCommitRequestPartition(
            partition_index=i, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=epoch
        )
        for i, offset in enumerate(offsets)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)], **more)


def as_member(member_id: str, generation: int = 1) -> dict[str, Any]:
    return {"member_id": member_id, "generation_id_or_member_epoch": generation}


def fetch(group: str, topics: dict[str, list[int]] | None, **more: Any) -> OffsetFetchRequest:
    """In the words of version 8 and of those before it; None is all topics."""
    wanted = None
    if topics is not None:
        wanted = [OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in topics.items()]
    return OffsetFetchRequest(
        group_id=group, topics=wanted, groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], **more
    )


@every_version("OffsetCommit")
def committed(t: Teller) -> None:
    group, topic = t.group(), t.topic(partitions=2)
    t.ask("without being a member", commit(group, topic, 5, 6))
    t.ask("seen", fetch(group, {topic: [0, 1]}), 7)
    t.ask("back", commit(group, topic, 3, metadata=None))
    t.ask("with an epoch", commit(group, topic, 4, metadata="", epoch=0))
    t.ask("all of it", fetch(group, None), 7)
    t.ask("nothing", OffsetCommitRequest(group_id=group, topics=[]))
    t.ask("unknown topic", commit(group, t.name("none"), 5))
    t.ask("one partition of three unknown", commit(group, topic, 1, 2, 3))
    t.ask("offset -1", commit(group, topic, -1))
    t.ask("offset -5", commit(group, topic, -5))
    t.ask("a long note", commit(group, topic, 7, metadata="x" * 4097))
    t.ask("the longest note", commit(group, topic, 7, metadata="x" * 4096))
    t.ask("a group without a name", commit("", topic, 1))
    t.ask("seen at the end", fetch(group, {topic: [0, 1, 2]}), 7)


NO_SUCH_GROUP = Explained(
    "a member's commit to a group that does not exist is refused with GROUP_ID_NOT_FOUND from version 9 on",
    "Kafka 4 does so, and 3.9 answers ILLEGAL_GENERATION",
    "topics.*.partitions.*.error_code",
)


@in_versions(2, 5, 7, 8, 9)
def committed_by_members(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    me = stable(t, group)
    t.ask("a member", commit(group, topic, 1, **as_member(me)))
    t.ask("of an old generation", commit(group, topic, 2, **as_member(me, 0)))
    t.ask("of one to come", commit(group, topic, 2, **as_member(me, 2)))
    t.ask("a member without a generation", commit(group, topic, 2, **as_member(me, -1)))
    t.ask("a stranger", commit(group, topic, 2, **as_member("nobody")))
    t.ask("not a member", commit(group, topic, 2))
    unknown = commit(t.name("none"), topic, 2, **as_member(me))
    t.ask("in an unknown group", unknown, but=NO_SUCH_GROUP if t.v >= 9 else None)
    t.ask("a stranger in an unknown group", commit(t.name("none"), topic, 2, **as_member("nobody", -1)))
    t.ask("what holds", fetch(group, {topic: [0]}), 7)
    if t.v >= 7:
        t.ask("under a name that is not its own", commit(group, topic, 2, group_instance_id="x", **as_member(me)))


@in_versions(2, 8, 9)
def committed_before_the_assignment(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    me = joined(t, group)
    t.ask("a member", commit(group, topic, 1, **as_member(me)))
    t.ask("not a member", commit(group, topic, 1))
    t.aside(sync(group, 1, me, me), 3)
    t.ask("afterwards", commit(group, topic, 1, **as_member(me)))


@in_versions(2, 4)
def with_a_retention_of_its_own(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    for retention in (-1, 0, 100_000):
        t.ask(f"{retention} ms", commit(group, topic, 5, retention_time_ms=retention))


NO_GROUPS = Explained(
    "a request for the offsets of no groups at all is answered with none",
    "Kafka's broker never answers it",
)


ONCE_IS_ENOUGH = Explained(
    "a group that is named twice in a request is answered once",
    "clients file the answers by group, and a small request must not bring an answer of megabytes",
    "groups.2",
)


@every_version("OffsetFetch")
def fetched(t: Teller) -> None:
    group, topic = t.group(), t.topic(partitions=3)
    t.aside(commit(group, topic, 5, 6, epoch=0), 7)
    t.ask("two of three", fetch(group, {topic: [0, 1, 2]}))
    t.ask("of an unknown partition", fetch(group, {topic: [77]}))
    t.ask("of an unknown topic", fetch(group, {t.name("none"): [0, 1]}))
    t.ask("of no topics", fetch(group, {}))
    t.ask("of no partitions", fetch(group, {topic: []}))
    t.ask("of a partition twice", fetch(group, {topic: [0, 0]}))
    t.ask("of an unknown group", fetch(t.name("none"), {topic: [0]}))
    t.ask("of a group without a name", fetch("", {topic: [0]}))
    if t.v >= 2:
        t.ask("of all topics", fetch(group, None))
        t.ask("all of an unknown group", fetch(t.name("none"), None))
    if t.v >= 7:
        t.ask("only what is stable", fetch(group, {topic: [0, 1]}, require_stable=True))
    if t.v >= 8:
        several = [OffsetFetchRequestGroup(group_id=one, topics=None) for one in (group, t.name("none"), group)]
        t.ask("of several groups, one twice", OffsetFetchRequest(groups=several), but=ONCE_IS_ENOUGH)
        t.ask("of no groups", OffsetFetchRequest(groups=[]), but=NO_GROUPS if t.v < 10 else None, may_hang=True)


@in_versions(9)
def fetched_by_members(t: Teller) -> None:
    """Version 9 has fields for the members of the consumer protocol (KIP-848)."""
    group, topic = t.group(), t.topic()
    me = stable(t, group)
    t.aside(commit(group, topic, 5, **as_member(me)), 8)
    asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    for label, one, who, epoch in (
        ("a member", group, me, 1),
        ("of another generation", group, me, 9),
        ("a stranger", group, "nobody", 1),
        ("a member without a generation", group, me, -1),
        ("nobody, of a generation", group, None, 1),
        ("of an unknown group", t.name("none"), me, 1),
    ):
        wanted = OffsetFetchRequestGroup(group_id=one, member_id=who, member_epoch=epoch, topics=asked)
        t.ask(label, OffsetFetchRequest(groups=[wanted]))


@once
def after_the_topic_is_deleted(t: Teller) -> None:
    from tests.compatibility.differential.cases_topics import delete

    group, topic = t.group(), t.topic()
    t.aside(commit(group, topic, 5), 7)
    t.aside(delete(topic), 3)

    def is_gone(answer: Any) -> bool:
        return all(one.committed_offset == -1 for found in answer.topics for one in found.partitions)

    t.ask("its offset is gone", fetch(group, {topic: [0]}), 7, until=is_gone)


@in_versions_of_4_3(10)
def by_ids_of_topics_that_are_made_again(t: Teller) -> None:
    group, topic = t.group(), t.topic(partitions=2)
    old = t.id_of(topic)
    by_old = [OffsetFetchRequestTopic(topic_id=old, partition_indexes=[0, 1])]
    fetch_old = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=by_old)])
    t.ask("committed", commit(group, topic, 5, 6))
    t.ask("fetched", fetch_old)
    t.aside(delete(topic), 3)
    gone_from(t, topic)
    t.ask("when it is deleted", fetch_old)
    t.ask("all, when it is deleted", fetch(group, None), until=lambda answer: not answer.groups[0].topics)
    t.topic(partitions=2)
    t.ask("when it is made again, by the old id", fetch_old)
    t.ask("by the new id", fetch(group, {topic: [0, 1]}))
    t.ask("by its name", fetch(group, {topic: [0, 1]}), 9)
    late = commit(group, topic, 7)
    late.topics[0].topic_id = old
    t.ask("committed for the old one", late)
    t.ask("committed for the new one", commit(group, topic, 8))
    t.ask("all", fetch(group, None))
