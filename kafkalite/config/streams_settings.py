"""Settings of groups of Kafka Streams, one line each (KIP-1071).

The bounds are also those of the settings that a group has for itself (`group_config`).
Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig (4.3).
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.config.group_settings import bounds_conflict
from kafkalite.config.settings import INT_MAX, integer, section
from kafkalite.config.share_settings import ShareSettings


class StreamsSettings(ShareSettings):
    """Values of the lines below."""

    # fmt: off
    _streams_groups = section("Groups of Kafka Streams (KIP-1071)")
    group_streams_session_timeout_ms: int = integer(45_000, "Session timeout of members; a group may have its own.", at_least=1)
    group_streams_min_session_timeout_ms: int = integer(45_000, "Shortest session timeout that may be set.", at_least=1)
    group_streams_max_session_timeout_ms: int = integer(60_000, "Longest session timeout that may be set.", at_least=1)
    group_streams_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of a member; a group may have its own.", at_least=1)
    group_streams_min_heartbeat_interval_ms: int = integer(5_000, "Shortest time between heartbeats that may be set.", at_least=1)
    group_streams_max_heartbeat_interval_ms: int = integer(15_000, "Longest time between heartbeats that may be set.", at_least=1)
    group_streams_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments of a group; a group may have its own.", at_least=0, dynamic=True)
    group_streams_min_assignment_interval_ms: int = integer(0, "Lowest value of that time.", at_least=0)
    group_streams_max_assignment_interval_ms: int = integer(15_000, "Highest value of that time.", at_least=0)
    group_streams_initial_rebalance_delay_ms: int = integer(3_000, "How long a new group waits for more members; a group may have its own.", at_least=0)
    group_streams_num_standby_replicas: int = integer(0, "Standby copies of each task with state; a group may have its own number.", at_least=0)
    group_streams_max_standby_replicas: int = integer(2, "Highest such number that may be set.", at_least=0)
    group_streams_max_size: int = integer(INT_MAX, "Members of one group.", at_least=1)
    # fmt: on


def streams_conflict(values: Mapping[str, Any]) -> str | None:
    """The conflict between settings of groups of Kafka Streams that are each valid by themselves, if there is one."""
    names = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    if found := bounds_conflict(values, "group.streams", names):
        return found
    if values["group_streams_heartbeat_interval_ms"] >= values["group_streams_session_timeout_ms"]:
        return "group.streams.heartbeat.interval.ms must be less than group.streams.session.timeout.ms"
    if values["group_streams_num_standby_replicas"] > values["group_streams_max_standby_replicas"]:
        return "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"
    return None
