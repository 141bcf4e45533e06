"""Groups of the consumer protocol (KIP-848): heartbeats step by step, and every older API on such a group."""

from __future__ import annotations

from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.codec import versioned
from kafkalite.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kafkalite.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kafkalite.protocol.records import ConsumerProtocolSubscription, TopicPartitions, encode_assignment
from tests.compatibility.differential.engine import Explained, Teller, in_versions_of_4_3, once_in_4_3, tries

NO_ASSIGNMENT_YET = Explained(
    "DescribeGroups shows no assignments while a classic group rebalances, as Kafka 3.9 does",
    "Kafka 4 shows those of the last generation",
    "groups.*.members.*.member_assignment",
)

SOONER = Explained(
    "a member that waits for partitions or tasks of others, for its target (of a share group, too) or for the topics "
    "of a new regular expression is to send its next heartbeat after a tenth of the interval, or when the next target "
    "may be made",
    "only a heartbeat can tell it, and Kafka leaves it, and what it is to get, its whole interval",
    "heartbeat_interval_ms",
)

Owned = dict[str, list[int]]


def beat(t: Teller, group: str, member: str, epoch: int, owns: Owned | None = None, **fields: Any) -> Any:
    """A heartbeat that says nothing but this."""
    rows = None
    if owns is not None:
        rows = [HeartbeatTopicPartitions(topic_id=t.id_of(name), partitions=some) for name, some in owns.items()]
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, topic_partitions=rows, **fields
    )


def known_topic(t: Teller, stem: str = "t", partitions: int = 1) -> str:
    """A topic that coordinators know: Kafka's hear of it a moment after it is made."""
    topic = t.topic(stem, partitions)
    group = t.group(f"knows-{stem}")
    for _ in tries(f"{topic} in assignments"):
        answer = t.aside(join(t, group, "m", topic), 1)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return topic
    raise AssertionError("unreachable")


def join(t: Teller, group: str, member: str, *topics: str, **fields: Any) -> Any:
    """The first heartbeat of a member. The range assignor places partitions by the ids of members."""
    fields = {"rebalance_timeout_ms": 60_000, "server_assignor": "range"} | fields
    return beat(t, group, member, 0, {}, subscribed_topic_names=list(topics), **fields)


def describe(*groups: str, **fields: Any) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), **fields)


@in_versions_of_4_3(0, 1)
def share_and_leave(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=4)
    t.ask("joins", join(t, group, "m1", topic))
    t.ask("alone", describe(group))
    t.ask("nothing to tell", beat(t, group, "m1", 2))
    t.ask("another joins", join(t, group, "m2", topic), but=SOONER)
    t.ask("it waits", beat(t, group, "m2", 3, {}), but=SOONER)
    t.ask("reconciling", describe(group))
    t.ask("the first has to give up", beat(t, group, "m1", 2))
    t.ask("it has not yet", beat(t, group, "m1", 2))
    t.ask("it says so", beat(t, group, "m1", 2, {topic: [0, 1, 2, 3]}))
    t.ask("revoking", describe(group))
    t.ask("given up", beat(t, group, "m1", 2, {topic: [0, 1]}))
    t.ask("once more, for the answer was lost", beat(t, group, "m1", 2, {topic: [0, 1]}))
    t.ask("the other gets it", beat(t, group, "m2", 3))
    t.ask("stable", describe(group))
    t.ask("all is said again", full(t, group, "m2", 3, topic))
    t.ask("one leaves", beat(t, group, "m1", -1))
    t.ask("assigning", describe(group))
    t.ask("the other takes over", beat(t, group, "m2", 3))
    t.ask("the last leaves", beat(t, group, "m2", -1))
    t.ask("empty", describe(group, include_authorized_operations=True))
    t.ask("and again", beat(t, group, "m2", -1))
    t.ask("back again", join(t, group, "m1", topic))


def full(t: Teller, group: str, member: str, epoch: int, *topics: str) -> Any:
    names = list(topics)
    return beat(t, group, member, epoch, {}, subscribed_topic_names=names, rebalance_timeout_ms=60_000)


@in_versions_of_4_3(0, 1)
def refusals(t: Teller) -> None:
    group, topic = t.group(), known_topic(t)
    t.ask("without an id", join(t, group, "", topic))
    t.ask("without an id, later", beat(t, group, "", 1))
    t.ask("a blank id", join(t, group, " ", topic), but=None if t.v else SOONER)  # a member in version 0
    t.ask("a group without a name", join(t, "", "m", topic))
    t.ask("a blank group", join(t, " ", "m", topic))
    t.ask("a blank instance", join(t, group, "m", topic, instance_id=""))
    t.ask("a blank rack", join(t, group, "m", topic, rack_id=" "))
    t.ask("no timeout", join(t, group, "m", topic, rebalance_timeout_ms=-1))
    t.ask("nothing owned is not said", beat(t, group, "m", 0, rebalance_timeout_ms=1, subscribed_topic_names=[]))
    owner = beat(t, group, "m", 0, {topic: [0]}, rebalance_timeout_ms=1, subscribed_topic_names=[])
    t.ask("something owned", owner)
    t.ask("no topics", beat(t, group, "m", 0, {}, rebalance_timeout_ms=1))
    t.ask("away without an instance", beat(t, group, "m", -2))
    t.ask("an epoch that there is not", beat(t, group, "m", -3))
    t.ask("an assignor that there is not", join(t, group, "m", topic, server_assignor="magic"))
    t.ask("an unknown group", beat(t, t.name("none"), "m", 1))
    t.ask("leaving an unknown group", beat(t, t.name("none"), "m", -1))
    t.ask("joins", join(t, group, "m", topic))
    t.ask("an unknown member", beat(t, group, "other", 1))
    t.ask("an unknown one leaves", beat(t, group, "other", -1))
    t.ask("a greater epoch", beat(t, group, "m", 7))
    t.ask("a smaller epoch", beat(t, group, "m", 1))
    t.ask("a topic that there is not", join(t, group, "m2", t.name("no such topic")))
    t.ask("no topics at all", join(t, group, "m3"))


@in_versions_of_4_3(1)
def epochs(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    t.aside(join(t, group, "m1", topic), 1)
    t.aside(join(t, group, "m2", topic), 1)
    t.ask("a joined one joins again", join(t, group, "m1", topic))
    t.ask("what it was told to give up is given up", beat(t, group, "m1", 3, {topic: [0]}))
    t.ask("the epoch before, and it says nothing", beat(t, group, "m1", 2))
    t.ask("the epoch before, and too much", beat(t, group, "m1", 2, {topic: [0, 1]}))
    t.ask("the epoch before, and less", beat(t, group, "m1", 2, {}))
    t.ask("two epochs before", beat(t, group, "m1", 1, {topic: [0]}))
    t.ask("all of it", describe(group))


@in_versions_of_4_3(0, 1)
def static_members(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    t.ask("joins", join(t, group, "m1", topic, instance_id="i"))
    t.ask("another with its name", join(t, group, "m2", topic, instance_id="i"))
    t.ask("it joins again itself", join(t, group, "m1", topic, instance_id="i"))
    t.ask("an unknown name", beat(t, group, "m1", 2, instance_id="other"))
    t.ask("a name of another", beat(t, group, "m2", 2, instance_id="i"))
    t.ask("without its name", beat(t, group, "m1", 2))
    t.ask("a wrong id leaves", beat(t, group, "m2", -2, instance_id="i"))
    t.ask("goes away", beat(t, group, "m1", -2, instance_id="i"))
    t.ask("away", describe(group))
    t.ask("a sign of life from away", beat(t, group, "m1", 2, instance_id="i"))
    t.ask("back under another id", join(t, group, "m2", topic, instance_id="i"))
    t.ask("the old id", beat(t, group, "m1", 2, instance_id="i"))
    t.ask("back", describe(group))
    t.ask("away again", beat(t, group, "m2", -2, instance_id="i"))
    other = known_topic(t, "u")
    t.ask("back with another subscription", join(t, group, "m3", topic, other, instance_id="i"))
    t.ask("leaves for good", beat(t, group, "m3", -1, instance_id="i"))
    t.ask("nobody", describe(group))


@once_in_4_3
def regular_expressions(t: Teller) -> None:
    group = t.group()
    one, _ = known_topic(t, "re-1", partitions=2), known_topic(t, "re-2")
    known_topic(t, "other")
    stem = one.removesuffix("re-1")
    for number, bad in enumerate(("(", "a**", "[z-a]", "(?<n>a)", "(?=a)", "a{1001}", "\\1", "*")):
        but = SOONER if bad == "(?<n>a)" else None  # which is a good one
        t.ask(f"a bad one {number}", joins_by_regex(t, group, "m1", bad), 1, but=but)
    t.ask("joins", joins_by_regex(t, group, "m1", f"{stem}re-.*"), 1, but=SOONER)

    def is_assigned(answer: Any) -> bool:
        return answer.assignment is not None and len(answer.assignment.topic_partitions) == 2

    whole = beat(t, group, "m1", 1, {}, rebalance_timeout_ms=60_000, subscribed_topic_regex=f"{stem}re-.*")
    t.ask("resolved", whole, 1, until=is_assigned)
    t.ask("described", describe(group), 1)
    t.ask("another with the same", joins_by_regex(t, group, "m2", f"{stem}re-.*"), 1, but=SOONER)
    by_name = beat(t, group, "m2", 3, subscribed_topic_regex="", subscribed_topic_names=[one])
    t.ask("names instead", by_name, 1, but=SOONER)
    t.ask("described then", describe(group), 1)
    t.ask("a part of the name is no match", joins_by_regex(t, t.group("h"), "m1", "re-"), 1, but=SOONER)


def joins_by_regex(t: Teller, group: str, member: str, regex: str) -> Any:
    return beat(t, group, member, 0, {}, subscribed_topic_regex=regex, rebalance_timeout_ms=60_000)


@once_in_4_3
def topics_change(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=1)
    later = t.name("later")
    t.ask("joins", join(t, group, "m", topic, later), 1)
    wanted = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    t.aside(CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000), 3)
    t.led(topic, 2)

    def is_told(answer: Any) -> bool:
        return answer.assignment is not None

    t.ask("partitions are added", beat(t, group, "m", 2), 1, until=is_told)
    t.named_topic(later, "later", 2)
    t.ask("a topic comes", beat(t, group, "m", 3), 1, until=is_told)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=10_000)
    t.aside(gone, 5)
    t.ask("a topic goes", beat(t, group, "m", 4), 1, until=is_told)
    t.ask("given up", beat(t, group, "m", 4, {later: [0, 1]}), 1)
    t.ask("described", describe(group), 1)
    t.ask("another subscription", beat(t, group, "m", 5, subscribed_topic_names=[]), 1)
    t.ask("described then", describe(group), 1)
    t.ask("nothing left", beat(t, group, "m", 5, {}), 1)


@once_in_4_3
def offsets(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    t.aside(join(t, group, "m1", topic), 1)
    t.aside(join(t, group, "m2", topic), 1)
    t.aside(beat(t, group, "m1", 2), 1)
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
        ("unknown", "m9", 3, 0),
        ("by nobody", "", -1, 0),
    ):
        t.ask(f"commits {label}", commit(group, topic, index, member, epoch), 9)
    t.ask("commits in an old version", commit(group, topic, 0, "m1", 3), 8)
    t.ask("to an unknown group", commit(t.group("none"), topic, 0, "m", 3), 9)
    t.ask("to an unknown group, before", commit(t.group("none"), topic, 0, "m", 3), 8)
    for label, who, epoch in (
        ("its epoch", "m1", 3),
        ("an old epoch", "m1", 2),
        ("unknown", "m9", 3),
        ("nobody", None, -1),
        ("an empty id", "", -1),
    ):
        t.ask(f"fetches: {label}", fetch(group, topic, who, epoch), 9)
    t.ask("fetches of an unknown group", fetch(t.group("none"), topic, "m", 1), 9)
    t.ask("deletes", deletes(group, topic), 0)
    t.aside(beat(t, group, "m1", -1), 1)
    t.aside(beat(t, group, "m2", -1), 1)
    t.ask("an admin commits", commit(group, topic, 1, "", -1), 9)
    t.ask("deletes then", deletes(group, topic), 0)


def commit(group: str, topic: str, index: int, member: str, epoch: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


def fetch(group: str, topic: str, member: str | None, epoch: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
    one = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
    return OffsetFetchRequest(groups=[one])


def deletes(group: str, topic: str) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])


@once_in_4_3
def older_apis(t: Teller) -> None:
    group, topic = t.group(), known_topic(t)
    t.aside(join(t, group, "m", topic), 1)
    for version in (5, 6):
        t.ask(f"DescribeGroups {version}", DescribeGroupsRequest(groups=[group, t.name("none")]), version)
    t.ask("ListGroups 4", ListGroupsRequest(states_filter=["stable"]), 4)
    for types in ([], ["consumer"], ["Consumer"], ["classic"], ["share"], ["nonsense"]):
        t.ask(f"ListGroups of {types}", ListGroupsRequest(states_filter=["stable"], types_filter=types), 5)
    t.ask("ListGroups by state", ListGroupsRequest(states_filter=["STABLE"], types_filter=["consumer"]), 5)
    t.ask("Heartbeat", HeartbeatRequest(group_id=group, generation_id=2, member_id="m"), 4)
    t.ask("Heartbeat of nobody", HeartbeatRequest(group_id=group, generation_id=2, member_id="x"), 4)
    t.ask("SyncGroup", sync(group, "m", 2), 5)
    t.ask("LeaveGroup of nobody", leave(group, "x"), 5)
    t.ask("DeleteGroups", DeleteGroupsRequest(groups_names=[group]), 2)
    t.ask("LeaveGroup", leave(group, "m"), 5)
    t.ask("DeleteGroups then", DeleteGroupsRequest(groups_names=[group]), 2)
    t.ask("described", describe(group, "", t.name("none")), 1)
    classic = t.group("classic")
    t.aside(commit(classic, topic, 0, "", -1), 8)
    t.ask("a group of another kind", describe(classic), 1)
    t.ask("it becomes one of consumers", join(t, classic, "m", topic), 1)
    t.ask("and keeps its offsets", fetch(classic, topic, None, -1), 9)


def sync(group: str, member: str, generation: int, assignments: dict[str, Owned] | None = None) -> SyncGroupRequest:
    rows = [
        SyncGroupRequestAssignment(member_id=each, assignment=encode_assignment(some.items(), 1))
        for each, some in (assignments or {}).items()
    ]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=rows,
    )


def leave(group: str, *members: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=each) for each in members])


def classic_join(
    group: str, member: str, topic: str, owns: Owned | None = None, user_data: bytes | None = None
) -> JoinGroupRequest:
    rows = [TopicPartitions(topic=name, partitions=some) for name, some in (owns or {}).items()]
    subscription = ConsumerProtocolSubscription(topics=[topic], user_data=user_data, owned_partitions=rows)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=versioned(subscription, 1))],
    )


@once_in_4_3
def migration(t: Teller) -> None:
    group, topic = t.group(), known_topic(t, partitions=2)
    old = str(t.aside(classic_join(group, "", topic), 3).member_id)
    t.aside(sync(group, old, 1, {old: {topic: [0, 1]}}), 5)
    t.ask("a modern member joins", join(t, group, "zz", topic), 1, but=SOONER)
    t.ask("described", describe(group), 1)
    t.ask("the classic one is to join again", HeartbeatRequest(group_id=group, generation_id=1, member_id=old), 4)
    t.ask("it syncs", sync(group, old, 1), 5)
    t.ask("it joins again", classic_join(group, old, topic, {topic: [0, 1]}), 9)
    t.ask("it gets what it keeps", sync(group, old, 1), 5)
    t.ask("and has to come once more", HeartbeatRequest(group_id=group, generation_id=1, member_id=old), 4)
    t.ask("without the other half", classic_join(group, old, topic, {topic: [0]}), 9)
    t.ask("and gets it", sync(group, old, 2), 5)
    t.ask("now it may stay", HeartbeatRequest(group_id=group, generation_id=2, member_id=old), 4)
    t.ask("the modern one has its half", beat(t, group, "zz", 2), 1)
    t.ask("stable", describe(group), 1)
    t.ask("the classic one commits", commit(group, topic, 0, old, 2), 8)
    t.ask("in a wrong generation", commit(group, topic, 0, old, 1), 8)
    t.ask("of a protocol that others have not", other_protocol(group, topic), 9)
    t.ask("the modern one leaves", beat(t, group, "zz", -1), 1)
    t.ask("it is classic again", describe(group), 1)
    t.ask("its member is to join again", HeartbeatRequest(group_id=group, generation_id=2, member_id=old), 4)
    t.ask("it joins", classic_join(group, old, topic), 9)
    t.ask("described as before", DescribeGroupsRequest(groups=[group]), 5, but=NO_ASSIGNMENT_YET)


@once_in_4_3
def migration_amid_a_rebalance(t: Teller) -> None:
    """A cooperative member keeps its partitions while its group rebalances: once the group completes a rebalance, and
    once it has begun another one before the first was complete. Then the coordinator has forgotten its assignment, and
    gives the modern member its share at once: until the old one joins again, a partition has two owners, at Kafka as
    well."""
    topic = known_topic(t, partitions=2)
    for stem, rebalances in (("once", 1), ("twice", 2)):
        group, owns = t.group(stem), {topic: [0, 1]}
        old = str(t.aside(classic_join(group, "", topic), 3).member_id)
        t.aside(sync(group, old, 1, {old: owns}), 5)
        for number in range(rebalances):
            t.ask(f"it joins again, {stem} {number}", classic_join(group, old, topic, owns, b"%d" % number), 9)
        but = NO_ASSIGNMENT_YET if rebalances == 1 else None  # Kafka has none either: it begins anew
        t.ask(f"before, {stem}", DescribeGroupsRequest(groups=[group]), 5, but=but)
        sooner = SOONER if rebalances == 1 else None
        t.ask(f"a modern member joins, {stem}", join(t, group, "zz", topic), 1, but=sooner)
        t.ask(f"described, {stem}", describe(group), 1)
        generation = rebalances + 1
        t.ask(f"the old one syncs, {stem}", sync(group, old, generation), 5)
        beaten = HeartbeatRequest(group_id=group, generation_id=generation, member_id=old)
        t.ask(f"and beats, {stem}", beaten, 4)
        t.ask(f"it joins with what it owns, {stem}", classic_join(group, old, topic, owns), 9)
        t.ask(f"it gets what it keeps, {stem}", sync(group, old, generation), 5)
        t.ask(f"then, {stem}", describe(group), 1)
        t.ask(f"the modern one beats, {stem}", beat(t, group, "zz", generation + 1), 1, but=sooner)
        t.ask(f"the old one gives up, {stem}", classic_join(group, old, topic, {topic: [0]}), 9)
        t.ask(f"the modern one beats again, {stem}", beat(t, group, "zz", generation + 1), 1)
        t.ask(f"in the end, {stem}", describe(group), 1)


def other_protocol(group: str, topic: str) -> JoinGroupRequest:
    request = classic_join(group, "", topic)
    request.protocols[0].name = "sticky"
    return request


@once_in_4_3
def no_migration(t: Teller) -> None:
    group, topic = t.group(), known_topic(t)
    member = t.aside(classic_join(group, "", topic), 3).member_id
    t.ask("a modern member joins in the middle", join(t, group, "m", topic), 1)
    t.ask("the classic one syncs", sync(group, member, 1, {member: {topic: [0]}}), 5)
    other = t.group("connect")
    request = classic_join(other, "", topic)
    request.protocol_type = "connect"
    t.aside(request, 3)
    t.ask("a group of connect", join(t, other, "m", topic), 1)
    t.ask("its name", beat(t, other, "m", 1), 1)
    empty = t.group("empty")
    t.aside(join(t, empty, "m", topic), 1)
    t.aside(beat(t, empty, "m", -1), 1)
    answer = t.ask("a classic member joins an empty one", classic_join(empty, "", topic), 3)
    assert answer.error_code == ErrorCode.NONE
    t.ask("it is classic", describe(empty), 1)
