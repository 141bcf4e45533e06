"""Groups as their coordinators list and describe them: of the classic and of the consumer protocol (KIP-848), share
groups (KIP-932), and those of Kafka Streams (KIP-1071).

A reconciliation moves a group from the current assignment to the target assignment: a member gives a partition up, says
so in a heartbeat, and another one gets it with a heartbeat of its own. `steps_of` names each partition's next step.
Source: org.apache.kafka.clients.admin.{ConsumerGroupDescription, MemberDescription, ShareGroupDescription,
StreamsGroupDescription} (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.consumer_groups import DescribedAssignment, DescribedConsumerGroup
from kafkalite.protocol.messages.groups import DescribedGroup
from kafkalite.protocol.messages.share_groups import DescribedShareGroup
from kafkalite.protocol.messages.streams_groups import DescribedStreamsGroup, DescribedSubtopology, StreamsTasks
from kafkalite.protocol.records import CONSUMER_PROTOCOL_TYPE, assigned_partitions

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Types of groups, and the first two of members."""
_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


class ListedGroup(NamedTuple):
    """A group in the list of its coordinator, a broker id. `group_type` is classic, consumer or another protocol of
    the coordinator, None if the broker does not say; `protocol_type` what a classic group is for, such as consumer or
    connect, None for one that has only offsets."""

    group_id: str
    state: str
    group_type: str | None
    protocol_type: str | None
    coordinator: int


class Member(NamedTuple):
    """A member of a group of consumers. `partitions` is its current assignment, with what it gives up; in a share group
    other members may have the same ones.

    The rest is of other groups than classic ones: `target` is the assignment to come, in a consumer group;
    `member_type` the protocol that the member speaks, None if the broker does not say. A member of a group of Kafka
    Streams has `tasks` by subtopology, and those that are meant for it: `partitions` are what its active tasks read.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]
    epoch: int | None = None
    target: frozenset[TopicPartition] | None = None
    topics: tuple[str, ...] = ()
    topic_regex: str | None = None
    rack_id: str | None = None
    member_type: str | None = None
    tasks: Mapping[str, Sequence[int]] | None = None
    target_tasks: Mapping[str, Sequence[int]] | None = None

    @property
    def name(self) -> str:
        """The instance id of a static member, else the member id."""
        return self.instance_id or self.member_id


class Group(NamedTuple):
    """A group. `protocol` is the assignor; the epochs are None in a classic group. `topology` are lines for people
    about the subtopologies of a group of Kafka Streams. `operations` are those that the user may perform on it, None
    if unknown."""

    group_id: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]
    group_type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None
    topology: tuple[str, ...] = ()
    operations: list[str] | None = None


def of_classic(described: DescribedGroup, coordinator: int) -> Group:
    """A group as DescribeGroups has it."""
    is_consumers = described.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = (
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.member_assignment) if is_consumers else frozenset(),
        )
        for each in described.members
    )
    what = described.protocol_type, described.protocol_data
    return Group(described.group_id, coordinator, described.group_state, *what, tuple(members))


def of_consumer(described: DescribedConsumerGroup, coordinator: int) -> Group:
    """A group as ConsumerGroupDescribe has it."""
    members = (
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment),
            each.member_epoch,
            _partitions(each.target_assignment),
            tuple(each.subscribed_topic_names),
            each.subscribed_topic_regex or None,
            each.rack_id,
            _MEMBER_TYPES.get(each.member_type),
        )
        for each in described.members
    )
    return Group(
        described.group_id,
        coordinator,
        described.group_state,
        CONSUMER_PROTOCOL_TYPE,
        described.assignor_name,
        tuple(members),
        CONSUMER,
        described.group_epoch,
        described.assignment_epoch,
    )


def of_share(described: DescribedShareGroup, coordinator: int) -> Group:
    """A group as ShareGroupDescribe has it."""
    members = (
        Member(
            each.member_id,
            None,
            each.client_id,
            each.client_host,
            _partitions(each.assignment),
            each.member_epoch,
            None,
            tuple(each.subscribed_topic_names),
            None,
            each.rack_id,
        )
        for each in described.members
    )
    what = described.group_state, SHARE, described.assignor_name, tuple(members)
    return Group(described.group_id, coordinator, *what, SHARE, described.group_epoch, described.assignment_epoch)


def of_streams(
    described: DescribedStreamsGroup, coordinator: int, partition_count: Callable[[str], int] | None = None
) -> Group:
    """A group as StreamsGroupDescribe has it. `partition_count` gives that of a topic; without it the partitions of
    members are unknown."""
    subtopologies = (described.topology.subtopologies if described.topology is not None else None) or []
    inputs = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in subtopologies
    }
    count = partition_count or (lambda topic: 0)
    members = (
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            frozenset(
                (topic, index)
                for row in each.assignment.active_tasks
                for topic in inputs.get(row.subtopology_id, ())
                for index in row.partitions
                if index < count(topic)
            ),
            each.member_epoch,
            rack_id=each.rack_id,
            member_type=CLASSIC if each.is_classic else STREAMS,
            tasks=_tasks(each.assignment),
            target_tasks=_tasks(each.target_assignment),
        )
        for each in described.members
    )
    epochs = described.group_epoch, described.assignment_epoch
    what = described.group_state, STREAMS, "", tuple(members), STREAMS
    return Group(described.group_id, coordinator, *what, *epochs, tuple(map(_sentence_of, subtopologies)))


def _tasks(tasks: StreamsTasks) -> dict[str, list[int]]:
    """By subtopology; copies that are not active as well, under its id and their kind."""
    kinds = (("", tasks.active_tasks), (" standby", tasks.standby_tasks), (" warm-up", tasks.warmup_tasks))
    return {f"{row.subtopology_id}{kind}": list(row.partitions) for kind, rows in kinds for row in rows}


def _sentence_of(subtopology: DescribedSubtopology) -> str:
    repartitioned = [topic.name for topic in subtopology.repartition_source_topics]
    parts = (
        ("reads", [*subtopology.source_topics, *repartitioned]),
        ("writes", subtopology.repartition_sink_topics),
        ("keeps its state in", [topic.name for topic in subtopology.state_changelog_topics]),
    )
    text = ", ".join(f"{verb} {' '.join(topics)}" for verb, topics in parts if topics)
    return f"subtopology {subtopology.subtopology_id} {text}"


def _partitions(assignment: DescribedAssignment) -> frozenset[TopicPartition]:
    return frozenset((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


class ReconciliationStep(NamedTuple):
    """The next step of a partition, or of a member if `partition` is None. `holder` still owns the partition and has
    not confirmed its revocation, None if the partition is free; `heir` gets it then, None if it goes to no member. A
    member without a partition has yet to send a heartbeat for the target epoch."""

    partition: TopicPartition | None
    holder: Member | None
    heir: Member | None

    def sentence(self) -> str:
        """One line for people."""
        if self.partition is None:
            assert self.heir is not None
            return f"{self.heir.name} is at epoch {self.heir.epoch}, and takes the next one with a heartbeat"
        name = f"{self.partition[0]}-{self.partition[1]}"
        if self.holder is None:
            assert self.heir is not None
            return f"{name} goes to {self.heir.name} with its next heartbeat"
        waiting = "" if self.heir is None else f", for which {self.heir.name} waits"
        return f"{self.holder.name} has not confirmed the revocation of {name}{waiting}"


def steps_of(group: Group) -> list[ReconciliationStep]:
    """The steps that a reconciliation waits for; none in a group that is stable, or classic."""
    members = [member for member in group.members if member.target is not None]
    holders = {key: member for member in members for key in member.partitions}
    heirs = {key: member for member in members for key in member.target or ()}
    moving = sorted(key for key in {*holders, *heirs} if holders.get(key) is not heirs.get(key))
    steps = [ReconciliationStep(key, holders.get(key), heirs.get(key)) for key in moving]
    busy = {member.member_id for step in steps for member in (step.holder, step.heir) if member is not None}
    behind = [
        ReconciliationStep(None, None, member)
        for member in members
        if member.epoch is not None and 0 <= member.epoch < (group.target_epoch or 0) and member.member_id not in busy
    ]
    return steps + behind


def sentences_of(group: Group) -> list[str]:
    """Lines for people about what a rebalance of a consumer group waits for; none if it is stable."""
    found = [step.sentence() for step in steps_of(group)]
    if group.epoch is not None and group.members and group.epoch > (group.target_epoch or 0):
        found.insert(0, f"the target assignment of group epoch {group.epoch} is computed with a heartbeat to come")
    return found
