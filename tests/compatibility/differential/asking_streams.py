"""Short words for the requests of groups of Kafka Streams, and the beginnings that their stories share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopology,
)
from tests.compatibility.differential.asking import SET, change
from tests.compatibility.differential.engine import Teller, tries

GROUP_RESOURCE = 32
HEARTBEAT, DESCRIBE = 0, 0
Owned = Mapping[str, list[int]]
NO_DELAYS = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


def beat(group: str, member: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """A heartbeat that says nothing but this."""
    return StreamsGroupHeartbeatRequest(**{"group_id": group, "member_id": member, "member_epoch": epoch} | fields)


def owning(group: str, member: str, epoch: int, active: Owned, standby: Owned | None = None, **fields: Any) -> Any:
    """With the tasks that the member has."""
    return beat(
        group,
        member,
        epoch,
        **{"active_tasks": tasks(active), "standby_tasks": tasks(standby or {}), "warmup_tasks": []} | fields,
    )


def tasks(owned: Owned) -> list[StreamsTaskIds]:
    return [StreamsTaskIds(subtopology_id=each, partitions=some) for each, some in owned.items()]


def join(group: str, member: str, topology: StreamsTopology | None, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """The first heartbeat of a member, in a process of its own."""
    more = {"topology": topology, "rebalance_timeout_ms": 60_000, "process_id": f"p-{member}", "client_tags": []}
    return owning(group, member, 0, {}, **more | fields)


def topology(*subtopologies: StreamsSubtopology, epoch: int = 0) -> StreamsTopology:
    return StreamsTopology(epoch=epoch, subtopologies=list(subtopologies))


def reading(*topics: str, key: str = "0", **fields: Any) -> StreamsSubtopology:
    """A subtopology that reads these topics."""
    return StreamsSubtopology(**{"subtopology_id": key, "source_topics": list(topics)} | fields)


def inner(name: str, partitions: int = 0, **configs: str) -> StreamsTopicInfo:
    """An internal topic."""
    rows = [StreamsKeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return StreamsTopicInfo(name=name, partitions=partitions, topic_configs=rows)


def word_count(t: Teller, topic: str, epoch: int = 0) -> StreamsTopology:
    """Two subtopologies, with a topic between them and one for the counts."""
    by_word = t.name("by-word")
    return topology(
        reading(topic, repartition_sink_topics=[by_word]),
        StreamsSubtopology(
            subtopology_id="1",
            repartition_source_topics=[inner(by_word, cleanup_policy="delete", retention_ms="-1")],
            state_changelog_topics=[inner(t.name("counts"), cleanup_policy="compact")],
        ),
        epoch=epoch,
    )


def prompt_group(t: Teller, stem: str = "g", **config: str) -> str:
    """A group that assigns at once. Before topics are made, so that the broker knows its settings by then."""
    group = t.group(stem)
    settings = NO_DELAYS | {key.replace("_", "."): value for key, value in config.items()}
    t.aside(change(GROUP_RESOURCE, group, *((key, SET, value) for key, value in settings.items())), 1)
    return group


def describe(*groups: str, **fields: Any) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=list(groups), **fields)


def has_started(t: Teller, group: str, member: str, sent: StreamsTopology, **fields: Any) -> int:
    """Join, and return the epoch with which the member has its first tasks: the internal topics are there."""
    request = join(group, member, sent, **fields)
    for _ in tries(f"tasks of {member}"):
        answer = t.aside(request, HEARTBEAT)
        assert not answer.error_code, answer
        if answer.active_tasks and not answer.status:
            return answer.member_epoch
        request = owning(group, member, answer.member_epoch, {})
    raise AssertionError("unreachable")
