"""The endpoints of a group's members, and the partitions behind them: where a client asks for which state.

The epoch of the map grows with each change of it, and a client that knows another gets the whole map. It is not stored.
Source: org.apache.kafka.coordinator.group.streams.StreamsGroup (buildEndpointToPartitions, endpointInformationEpoch;
4.3), topics.EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.common.text import java_order
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from kafkalite.coordinator.group.streams.streams_heartbeat import EndpointPartitions
from kafkalite.coordinator.group.streams.streams_member import StreamsMember
from kafkalite.coordinator.group.streams.tasks import AssignedTasks
from kafkalite.coordinator.group.topics import Topics


class EndpointMap:
    """The map of one group. What was computed of a member holds as long as its tasks and the topology are the same."""

    __slots__ = ("_known", "_topics", "epoch")

    def __init__(self, topics: Topics) -> None:
        self.epoch = 0
        self._topics = topics
        self._known: dict[str, tuple[AssignedTasks, ConfiguredTopology, EndpointPartitions]] = {}

    def of(self, members: Mapping[str, StreamsMember], configured: ConfiguredTopology) -> list[EndpointPartitions]:
        """The rows of all members that have an endpoint; none while the topology has no tasks."""
        if configured.subtopologies is None:
            return []
        for gone in self._known.keys() - members.keys():
            del self._known[gone]
        return [self._row(member, configured) for member in members.values() if member.metadata.user_endpoint]

    def _row(self, member: StreamsMember, configured: ConfiguredTopology) -> EndpointPartitions:
        assigned, endpoint = member.current.assigned, member.metadata.user_endpoint
        assert endpoint is not None
        known = self._known.get(member.member_id)
        if known is not None and known[0] is assigned and known[1] is configured and known[2].endpoint == endpoint:
            return known[2]
        subtopologies = configured.subtopologies or {}
        counts = self._topics.partition_counts_by_name(
            {topic for each in subtopologies.values() for topic in each.input_topics}
        )
        # tasks of a subtopology that is gone are left out, as those of a topology that another has replaced
        active, standby = (
            {key: some for key, some in tasks.items() if key in subtopologies}
            for tasks in (assigned.without_epochs().active, assigned.standby)
        )
        row = EndpointPartitions(
            endpoint,
            input_partitions(active, subtopologies, counts),
            input_partitions(standby, subtopologies, counts),
        )
        self._known[member.member_id] = assigned, configured, row
        return row


def input_partitions(
    tasks: Mapping[str, Collection[int]],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partition_counts: Mapping[str, int],
) -> list[tuple[str, list[int]]]:
    """The partitions of each input topic that the tasks read, of a subtopology and a topic after the other.

    They are for interactive queries: each client learns who has which state. A topic with fewer partitions than the
    subtopology has tasks here gets as many of the lowest, as in Kafka; topics that do not exist any more are left out.
    """
    rows = []
    for key, partitions in tasks.items():
        lowest = sorted(partitions)
        for topic in sorted(set(subtopologies[key].input_topics), key=java_order):
            if (count := partition_counts.get(topic)) is not None:
                rows.append((topic, lowest[:count]))
    return rows
