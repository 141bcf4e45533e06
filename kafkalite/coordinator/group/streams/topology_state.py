"""The topology of one group as the topics of the cluster allow it now; computed, and not stored.

It is computed anew for another topology, and when the topics that it needs have changed.
Source: org.apache.kafka.coordinator.group.streams.StreamsGroup (configuredTopology, metadataRefreshDeadline; 4.3).
"""

from __future__ import annotations

from kafkalite.coordinator.group.streams.configured_topology import ConfiguredTopology, configure
from kafkalite.coordinator.group.streams.streams_tables import StreamsGroupTables
from kafkalite.coordinator.group.streams.topology import Topology
from kafkalite.coordinator.group.topics import MetadataRefresh, Topics


class TopologyState:
    """`configured` is None before the first heartbeat since the group was loaded."""

    __slots__ = ("_metadata_hash", "_topics", "_topology", "configured", "refresh")

    def __init__(self, topics: Topics) -> None:
        self.configured: ConfiguredTopology | None = None
        self.refresh = MetadataRefresh(topics)
        self._topics = topics
        self._topology: Topology | None = None  # the one that is configured, with the hash of its topics
        self._metadata_hash = 0

    def update(self, tables: StreamsGroupTables, topology: Topology) -> tuple[ConfiguredTopology, int]:
        """The topology as the topics allow it, and their hash. Raises KafkaError(STREAMS_INVALID_TOPOLOGY) if it does
        not say how many partitions a topic has."""
        names, configured = tables.subscribed_topics, self.configured
        is_other = configured is None or self._topology is not topology
        metadata_hash = tables.metadata.metadata_hash
        if is_other or self.refresh.is_due(tables):
            metadata_hash = self._topics.hash_of(names)
        if configured is None or is_other or metadata_hash != self._metadata_hash:
            configured = configure(topology, self._topics.partition_counts_by_name(names))
            self.configured, self._topology, self._metadata_hash = configured, topology, metadata_hash
        return configured, metadata_hash
