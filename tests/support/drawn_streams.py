"""Draws topologies of Kafka Streams, with topics that fit more or less, and groups as their assignor sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from kafkalite.coordinator.group.streams.sticky_assignor import MemberSpec
from kafkalite.coordinator.group.streams.tasks import Tasks
from kafkalite.coordinator.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology

COUNTS = (1, 2, 3, 4, 4, 4, 8)
SUBTOPOLOGIES_MAX = 15
MEMBERS_MAX = 20

Group = tuple[dict[str, MemberSpec], dict[str, ConfiguredSubtopology], int]
"""Members, subtopologies and the number of standby replicas."""


# --- topologies


def drawn_topology(random: Random) -> tuple[Topology, dict[str, int]]:
    """A topology and the partitions of the topics that exist. Most can be configured."""
    ids = [str(each) for each in range(random.randrange(1, random.choice((3, 6, SUBTOPOLOGIES_MAX))))]
    sources = [f"in-{number}" for number in range(random.randrange(1, 6))]
    shuffles = [
        InternalTopic(f"app-{number}-repartition", random.choice((0, 0, 0, 4, 3)), random.choice((0, 0, 1)))
        for number in range(random.randrange(4))
    ]
    sinks: dict[str, list[str]] = {each: [] for each in ids}
    for topic in shuffles:
        if random.random() < 0.95:
            sinks[random.choice(ids)].append(topic.name)
    subtopologies = tuple(_drawn_subtopology(random, each, sources, shuffles, sinks[each]) for each in sorted(ids))
    is_even = random.random() < 0.6
    counts = {name: 4 if is_even else random.choice(COUNTS) for name in sources if random.random() < 0.95}
    for each in subtopologies:
        for topic in (*each.changelog_topics, *each.repartition_source_topics):
            if random.random() < 0.2:
                counts[topic.name] = random.choice((4, 4, 4, 4, 3))
    return Topology(random.randrange(5), subtopologies), counts


def _drawn_subtopology(
    random: Random, subtopology_id: str, sources: list[str], shuffles: list[InternalTopic], sinks: list[str]
) -> Subtopology:
    read = random.sample(sources, random.randrange(min(3, len(sources)) + 1))
    read_shuffles = random.sample(shuffles, random.randrange(min(2, len(shuffles)) + 1))
    if not read and not read_shuffles and random.random() < 0.97:
        read = sources[:1]
    together = CopartitionGroup(
        tuple(random.sample(range(len(read)), random.randrange(len(read) + 1))),
        (),
        tuple(random.sample(range(len(read_shuffles)), random.randrange(len(read_shuffles) + 1))),
    )
    changelogs = tuple(
        InternalTopic(f"app-{subtopology_id}-{number}-changelog", 0, 0, (("cleanup.policy", "compact"), ("k", "v")))
        for number in range(random.randrange(3))
    )
    groups = (together,) if random.random() < 0.7 else ()
    return Subtopology(subtopology_id, tuple(read), (), changelogs, tuple(sinks), tuple(read_shuffles), groups)


def topology_as_json(topology: Topology, counts: Mapping[str, int]) -> dict[str, Any]:
    """A case for `streams_parts`, without its kind."""
    return {
        "epoch": topology.epoch,
        "counts": counts,
        "subtopologies": [
            {
                "id": each.subtopology_id,
                "sources": each.source_topics,
                "sinks": each.repartition_sink_topics,
                "repartitions": each.repartition_source_topics,
                "changelogs": each.changelog_topics,
                "copartition groups": [
                    [group.source_topics, group.repartition_source_topics] for group in each.copartition_groups
                ],
            }
            for each in topology.subtopologies
        ],
    }


def topology_of_json(case: Mapping[str, Any]) -> tuple[Topology, dict[str, int]]:
    """The inverse of `topology_as_json`."""
    subtopologies = tuple(
        Subtopology(
            each["id"],
            tuple(each["sources"]),
            (),
            _topics_of_json(each["changelogs"]),
            tuple(each["sinks"]),
            _topics_of_json(each["repartitions"]),
            tuple(CopartitionGroup(tuple(one), (), tuple(other)) for one, other in each["copartition groups"]),
        )
        for each in case["subtopologies"]
    )
    return Topology(case["epoch"], subtopologies), case["counts"]


def _topics_of_json(rows: Iterable[list[Any]]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(name, partitions, factor, tuple((key, value) for key, value in configs))
        for name, partitions, factor, configs in rows
    )


def configuration_as_json(configured: ConfiguredTopology) -> dict[str, Any]:
    """As `streams_parts` answers."""
    answer: dict[str, Any] = {"missing": _rows(configured.missing_topics, default_factor=-1)}
    if configured.fault is not None:
        answer["fault"] = [configured.fault.status, configured.fault.detail]
    if configured.subtopologies is not None:
        answer["subtopologies"] = {
            key: [
                each.task_count,
                list(each.source_topics),
                _rows(each.repartition_source_topics),
                list(each.repartition_sink_topics),
                _rows(each.changelog_topics),
            ]
            for key, each in configured.subtopologies.items()
        }
    return answer


def _rows(topics: Iterable[InternalTopic], default_factor: int = 0) -> list[Any]:
    return [
        [each.name, each.partitions, each.replication_factor or default_factor, dict(each.configs)] for each in topics
    ]


# --- groups


def drawn_streams_group(random: Random) -> Group:
    """Targets are what an earlier assignment may have left, and partly of tasks that are no more."""
    subtopologies = {
        str(number): ConfiguredSubtopology(
            random.choice((1, 2, 3, 4, 7, 12)),
            ("source",),
            changelog_topics=(InternalTopic("changelog", 1),) if random.random() < 0.6 else (),
        )
        for number in range(random.randrange(1, 5))
    }
    ids = [random.randbytes(random.choice((2, 8))).hex() for _ in range(random.randrange(1, MEMBERS_MAX))]
    processes = [random.randbytes(4).hex() for _ in range(random.randrange(1, len(ids) + 1))]
    owners: dict[str, tuple[dict[str, set[int]], dict[str, set[int]]]] = {each: ({}, {}) for each in ids}
    share_active, share_standby = random.choice((0.0, 0.5, 1.0)), random.choice((0.0, 0.3, 1.0))
    favourites = random.sample(sorted(owners), random.randrange(1, len(owners) + 1))
    for key, each in [*subtopologies.items(), ("gone", ConfiguredSubtopology(2))]:
        for partition in range(each.task_count):
            if random.random() < share_active:
                owners[random.choice(favourites)][0].setdefault(key, set()).add(partition)
            for _ in range(2):
                if random.random() < share_standby:
                    owners[random.choice(favourites)][1].setdefault(key, set()).add(partition)
    members = {
        each: MemberSpec(
            random.choice(processes),
            Tasks(*({key: frozenset(some) for key, some in tasks.items()} for tasks in owners[each])),
        )
        for each in owners
    }
    return members, subtopologies, random.choice((0, 0, 1, 1, 2))


def streams_group_as_json(group: Group) -> dict[str, Any]:
    """A case for `streams_parts`, without its kind."""
    members, subtopologies, replicas = group
    return {
        "replicas": replicas,
        "subtopologies": {key: [each.task_count, each.is_stateful] for key, each in subtopologies.items()},
        "members": [
            [name, each.process_id, tasks_as_json(each.target.active), tasks_as_json(each.target.standby)]
            for name, each in members.items()
        ],
    }


def streams_group_of_json(case: Mapping[str, Any]) -> Group:
    """The inverse of `streams_group_as_json`."""
    subtopologies = {
        key: ConfiguredSubtopology(
            count, ("source",), changelog_topics=(InternalTopic("changelog", 1),) if is_stateful else ()
        )
        for key, (count, is_stateful) in case["subtopologies"].items()
    }
    members = {
        name: MemberSpec(
            process, Tasks(*({key: frozenset(some) for key, some in tasks.items()} for tasks in (active, standby)))
        )
        for name, process, active, standby in case["members"]
    }
    return members, subtopologies, case["replicas"]


def assigned_as_json(assigned: Mapping[str, Tasks]) -> dict[str, Any]:
    """As `streams_parts` answers."""
    return {name: [tasks_as_json(each.active), tasks_as_json(each.standby)] for name, each in assigned.items()}


def tasks_as_json(tasks: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    return {key: sorted(partitions) for key, partitions in tasks.items()}
