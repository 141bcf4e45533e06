"""AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from kafkalite.protocol.messages.partition_admin import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.compatibility.differential.brokers import BROKER_ID
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import Explained, Teller, every_version

NO_TIME = Explained(
    "a reassignment is answered at once, also with a timeout of 0 or less",
    "Kafka's controller is another thread, and answers REQUEST_TIMED_OUT before it has looked",
    "error_code",
    "responses.*.partitions.*.error_code",
)


def moving(*asked: tuple[str, list[int]], **more: int) -> ListPartitionReassignmentsRequest:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in asked]
    return ListPartitionReassignmentsRequest(topics=topics, **more)


@every_version("ListPartitionReassignments")
def nothing_moves(t: Teller) -> None:
    topic = t.topic(partitions=2)
    t.ask("all there is", ListPartitionReassignmentsRequest(topics=None))
    t.ask("two partitions", moving((topic, [0, 1])))
    t.ask("nothing asked for", moving())
    t.ask("a topic without partitions", moving((topic, [])))
    t.ask("unknown topic", moving((t.name("none"), [0])))
    t.ask("unknown partitions", moving((topic, [2, -1])))
    t.ask("one twice", moving((topic, [0, 0]), (topic, [0])))
    t.ask("a topic without a name", moving(("", [0])))
    t.ask("in no time", moving((topic, [0]), timeout_ms=0))
    t.ask("in less", moving((topic, [0]), timeout_ms=-1))


def reassign(*asked: tuple[str, dict[int, list[int] | None]], **more: int) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=index, replicas=one) for index, one in targets.items()],
        )
        for name, targets in asked
    ]
    return AlterPartitionReassignmentsRequest(topics=topics, **more)


@every_version("AlterPartitionReassignments")
def replicas_stay(t: Teller) -> None:
    topic, here = t.topic(partitions=2), [BROKER_ID]
    t.ask("one", reassign((topic, {0: here})))
    t.ask("two", reassign((topic, {1: here, 0: here})))
    t.ask("two topics", reassign((topic, {1: here}), (t.topic("other"), {0: here})))
    t.ask("the groups' topic", reassign(("__consumer_offsets", {0: here})))
    t.ask("in no time", reassign((topic, {0: here}), timeout_ms=0), but=NO_TIME)
    t.ask("in less", reassign((topic, {0: here}), timeout_ms=-1), but=NO_TIME)
    t.ask("nothing moves", ListPartitionReassignmentsRequest(topics=None), 0)


@every_version("AlterPartitionReassignments")
def targets_that_cannot_be(t: Teller) -> None:
    topic, here = t.topic(partitions=2), BROKER_ID
    for shown, target in {
        "empty": [],
        "unknown broker": [9],
        "this and an unknown one": [here, 9],
        "twice the same broker": [here, here],
        "twice an unknown one": [9, 9],
        "negative": [-1],
        "this and a negative one": [here, -1],
        "many": list(range(here, 1000)),
    }.items():
        t.ask(shown, reassign((topic, {0: target})))
    t.ask("good and bad", reassign((topic, {0: [here], 1: [9]})))
    t.ask("of the groups' topic", reassign(("__consumer_offsets", {0: [9]})))
    t.ask("nothing moves", ListPartitionReassignmentsRequest(topics=None), 0)


@every_version("AlterPartitionReassignments")
def nothing_to_cancel(t: Teller) -> None:
    topic = t.topic(partitions=2)
    t.ask("one", reassign((topic, {0: None})))
    t.ask("two", reassign((topic, {0: None, 1: None})))
    t.ask("beside one that stays", reassign((topic, {0: None, 1: [BROKER_ID]})))
    t.ask("the groups' topic", reassign(("__consumer_offsets", {0: None})))


@every_version("AlterPartitionReassignments")
def of_what_is_not_there(t: Teller) -> None:
    topic, here = t.topic(partitions=2), [BROKER_ID]
    t.ask("unknown topic", reassign((t.name("none"), {0: here})))
    t.ask("unknown partitions", reassign((topic, {2: here, -1: here})))
    t.ask("to where it cannot be", reassign((t.name("none"), {0: [], 1: [9], 2: [1, 1], 3: [-1]})))
    t.ask("cancelled", reassign((t.name("none"), {0: None}), (topic, {2: None})))
    t.ask("nothing asked for", reassign())
    t.ask("a topic without partitions", reassign((topic, {})))
    t.ask("a topic without a name", reassign(("", {0: here})))
    t.ask("a name that cannot be", reassign(("d/x", {0: here})))
    t.aside(delete(topic), 6)
    gone_from(t, topic)
    t.ask("deleted", reassign((topic, {0: here, 1: None})))


@every_version("AlterPartitionReassignments")
def said_twice(t: Teller) -> None:
    topic, here = t.topic(partitions=2), [BROKER_ID]
    twice = reassign((topic, {0: here}), (topic, {0: here, 1: here}))
    t.ask("a topic", twice)
    twice.topics[1].partitions[1].partition_index = 0
    t.ask("a partition", twice)
    twice.topics[1].partitions[1].replicas = [9]
    t.ask("a partition, with another target", twice)
