"""The partitions behind the endpoints of members, for interactive queries: each client learns who has which state.

Source: org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager (4.3), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.common.text import java_order
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology


def input_partitions(
    tasks: Mapping[str, Collection[int]],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partition_counts: Mapping[str, int],
) -> list[tuple[str, list[int]]]:
    """The partitions of each input topic that the tasks read, of a subtopology and a topic after the other.

    A topic with fewer partitions than the subtopology has tasks here gets as many of the lowest, as in Kafka; topics
    that do not exist any more are left out.
    """
    rows = []
    for key, partitions in tasks.items():
        lowest = sorted(partitions)
        for topic in sorted(set(subtopologies[key].input_topics), key=java_order):
            if (count := partition_counts.get(topic)) is not None:
                rows.append((topic, lowest[:count]))
    return rows
