"""The surroundings of a group of Kafka Streams: its settings, and the topics of the cluster.

Source: org.apache.kafka.coordinator.group.{GroupCoordinatorConfig, GroupConfig} (4.3).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.group_environment import INT_MAX, GroupTotals
from kafkalite.coordinator.group.topics import Topics


class StreamsGroupConfig(NamedTuple):
    """The settings of one group: those of the broker, or of the group itself where it has them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000
    max_size: int = INT_MAX


class StreamsEnvironment(NamedTuple):
    """The surroundings that all groups of Kafka Streams of a broker share."""

    topics: Topics
    config: Callable[[str], StreamsGroupConfig]  # by group id
    totals: GroupTotals
