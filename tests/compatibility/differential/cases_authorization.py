"""Each API as a user meets it that has all permissions, or lacks one; and lists that show what may be seen.

Users are loopback addresses, and the entries of the access control lists are for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kafkalite.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from kafkalite.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kafkalite.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from kafkalite.security.acl.acl import ANY_NAME, CLUSTER_NAME, Operation, Permission, Resource
from tests.compatibility.differential.asking_streams import describe, join, owning, prompt_group, word_count
from tests.compatibility.differential.cases_consumer_groups import known_topic
from tests.compatibility.differential.engine import Explained, Story, Teller, once, once_in_4_3
from tests.support.authorization_cases import CASES, CLUSTER, GROUP, NEWER, OWN, TOPIC, TRANSACTIONAL_ID, Names

ADMIN = "127.0.0.1"
AS_KRAFT = Explained(
    "answers as Kafka's KRaft controller",
    "AclAuthorizer needs ZooKeeper, and that controller leaves elections of nothing out and tells empty messages",
)
AS_KRAFT_IN = ("elections", "list reassignments")
NOT_TOLD = (
    *OWN,
    *("update features", "the quorum"),  # the message of one is an address in memory, the other is refused to all here
    *("subscriptions to metrics", "push metrics"),  # Kafka has them with a plug-in only
)


def closed_to_others(t: Teller) -> None:
    """Let the address of everything else do all, and so nobody else anything."""
    for type_, name in ((TOPIC, ANY_NAME), (GROUP, ANY_NAME), (TRANSACTIONAL_ID, ANY_NAME), (CLUSTER, CLUSTER_NAME)):
        t.acl(ADMIN, Operation.ALL, Resource(type_, name))


def case(title: str) -> Story:
    """The request of one case: with all that it needs, and without each of it."""
    make, version, needs = CASES[title]

    def tell(t: Teller) -> None:
        closed_to_others(t)
        group, transactional_id = t.group(), t.transactional_id()
        for number, missing in enumerate((None, *needs)):
            topic = t.name(f"t{number}") if title == "create a topic" else t.topic(f"t{number}")
            names = Names(topic, group, transactional_id, "1")
            user = t.address(f"user {number}")
            for operation, type_ in needs:
                if (operation, type_) != missing:
                    t.acl(user, operation, Resource(type_, names.of(type_)))
            label = "with all" if missing is None else f"without {missing[0].name} {missing[1].name}"
            but = AS_KRAFT if title in AS_KRAFT_IN and missing is None else None
            t.ask(label, make(names), version, by=user, but=but)

    tell.__name__ = title.replace(", ", "_").replace(" ", "_")
    return once_in_4_3(tell) if title in NEWER else once(tell)


globals().update({f"_{title}": case(title) for title in CASES if title not in NOT_TOLD})


@once
def what_is_listed(t: Teller) -> None:
    closed_to_others(t)
    seen, hidden = t.topic("seen"), t.topic("hidden")
    group, other = t.group("seen"), t.group("other")
    transactional_id, another = t.transactional_id("seen"), t.transactional_id("another")
    for one in (group, other):
        offsets = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
            )
            for topic in (seen, hidden)
        ]
        t.aside(OffsetCommitRequest(group_id=one, topics=offsets), 7)
    for one in (transactional_id, another):
        t.aside(InitProducerIdRequest(transactional_id=one, transaction_timeout_ms=60_000), 4)
    user, nobody = t.address("user"), t.address("nobody")
    for type_, name in ((TOPIC, seen), (GROUP, group), (TRANSACTIONAL_ID, transactional_id)):
        t.acl(user, Operation.DESCRIBE, Resource(type_, name))
    for by in (user, nobody):
        who = "user" if by == user else "nobody"
        t.ask(f"all topics, {who}", MetadataRequest(topics=None), 9, by=by)
        named = [MetadataRequestTopic(name=name) for name in (seen, hidden, t.name("none"))]
        t.ask(f"topics by name, {who}", MetadataRequest(topics=named), 9, by=by)
        t.ask(f"in the first version, {who}", MetadataRequest(topics=named), 0, by=by)
        ids = [MetadataRequestTopic(name=None, topic_id=t.id_of(name)) for name in (seen, hidden, t.name("none"))]
        t.ask(f"topics by id, {who}", MetadataRequest(topics=ids), 12, by=by)
        t.ask(f"groups, {who}", ListGroupsRequest(), 4, by=by)
        described = DescribeGroupsRequest(groups=[group, other], include_authorized_operations=True)
        t.ask(f"described groups, {who}", described, 4, by=by)
        t.ask(f"all offsets, {who}", OffsetFetchRequest(group_id=group, topics=None), 7, by=by)
        groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (group, other)]
        t.ask(f"all offsets of groups, {who}", OffsetFetchRequest(groups=groups), 8, by=by)
        t.ask(f"transactions, {who}", ListTransactionsRequest(), 0, by=by)
        both = DescribeTransactionsRequest(transactional_ids=[transactional_id, another])
        t.ask(f"described transactions, {who}", both, 0, by=by)


@once
def what_is_allowed_is_told(t: Teller) -> None:
    closed_to_others(t)
    topic, group = t.topic(), t.group()
    user = t.address("user")
    t.acl(user, Operation.READ, Resource(TOPIC, topic))
    t.acl(user, Operation.ALTER_CONFIGS, Resource(TOPIC, topic))
    t.acl(user, Operation.DELETE, Resource(GROUP, group))
    t.acl(user, Operation.WRITE, Resource(TOPIC, topic), Permission.DENY)
    named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], include_topic_authorized_operations=True)
    named.include_cluster_authorized_operations = True
    t.ask("a topic", named, 9, by=user)
    t.ask("a group", DescribeGroupsRequest(groups=[group], include_authorized_operations=True), 4, by=user)
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    t.ask("the cluster, undescribed", cluster, 0, by=user)
    t.acl(user, Operation.ALTER, Resource(CLUSTER, CLUSTER_NAME))
    t.ask("the cluster", cluster, 0, by=user)
    t.ask("the cluster, with topics", named, 9, by=user)


@once
def topics_that_are_made_and_deleted(t: Teller) -> None:
    closed_to_others(t)
    user = t.address("user")
    mine, seen, hidden = t.topic("mine"), t.topic("seen"), t.topic("hidden")
    for operation, name in (
        (Operation.DELETE, mine),
        (Operation.DESCRIBE, seen),
        (Operation.CREATE, t.name("new")),
        (Operation.DESCRIBE, t.name("asked")),
    ):
        t.acl(user, operation, Resource(TOPIC, name))
    asked = [MetadataRequestTopic(name=t.name(stem)) for stem in ("asked", "refused")]
    t.ask("automatically", MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9, by=user)
    wanted = [CreatableTopic(name=t.name(stem), num_partitions=1, replication_factor=1) for stem in ("new", "refused")]
    t.ask("made", CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, by=user)
    ids = [DeleteTopicState(name=None, topic_id=t.id_of(name)) for name in (mine, seen, hidden, t.name("none"))]
    t.ask("deleted by id", DeleteTopicsRequest(topics=ids, timeout_ms=10_000), 6, by=user)
    names = [DeleteTopicState(name=name) for name in (seen, hidden, t.name("none"))]
    t.ask("deleted by name", DeleteTopicsRequest(topics=names, timeout_ms=10_000), 6, by=user)


@once_in_4_3
def groups_of_streams(t: Teller) -> None:
    closed_to_others(t)
    group, topic = prompt_group(t), known_topic(t)
    sent = word_count(t, topic)
    inner = [t.name("by-word"), t.name("counts")]
    user, other = t.address("user"), t.address("other")
    joins = join(group, "m", sent)

    def says(code: int, text: str = "") -> Callable[[Any], bool]:
        return lambda answer: answer.error_code == code and all(text in each.status_detail for each in answer.status)

    t.ask("nothing is allowed", joins, 0, by=user, until=says(30))
    t.acl(user, Operation.READ, Resource(GROUP, group))
    t.ask("the group is", joins, 0, by=user, until=says(29))
    for name in (topic, *inner):
        t.acl(user, Operation.DESCRIBE, Resource(TOPIC, name))
    t.ask("topics may be described", joins, 0, by=user, until=says(0))
    t.acl(user, Operation.CREATE, Resource(TOPIC, inner[0]))
    t.ask("one may be created", owning(group, "m", 2, {}), 0, by=user, until=says(0, f"on topics {inner[1]}."))
    t.acl(user, Operation.CREATE, Resource(TOPIC, inner[1]))
    t.ask(
        "both may be", owning(group, "m", 2, {}), 0, by=user, until=lambda answer: not says(0, "Unauthorized")(answer)
    )
    t.ask("described by another", describe(group), 0, by=other)
    t.acl(other, Operation.DESCRIBE, Resource(GROUP, group))
    t.ask("without the topics", describe(group), 0, by=other, until=lambda answer: answer.groups[0].error_code == 29)
