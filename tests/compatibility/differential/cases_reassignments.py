"""ListPartitionReassignments."""

from __future__ import annotations

from kafkalite.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.compatibility.differential.engine import Teller, every_version


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
