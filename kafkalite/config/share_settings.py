"""Settings of share groups and of their coordinator, one line each (KIP-932).

The bounds are also those of the settings that a group has for itself (`group_config`).
Source: org.apache.kafka.coordinator.group.{GroupCoordinatorConfig, modern.share.ShareGroupConfig},
org.apache.kafka.coordinator.share.ShareCoordinatorConfig (4.3).
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.config.group_settings import GroupSettings, bounds_conflict
from kafkalite.config.settings import integer, section, short, words

_MIB = 1 << 20
_ASSIGNORS = ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor")


def _parse_assignors(text: str) -> tuple[str, ...]:
    given = [word.strip() for word in text.split(",")]
    if not all(word in _ASSIGNORS for word in given):
        raise ValueError("must be: simple, since kafkalite runs no Java classes")
    return ("simple",)


class ShareSettings(GroupSettings):
    """Values of the lines below."""

    # fmt: off
    _share_groups = section("Share groups (KIP-932)")
    group_share_session_timeout_ms: int = integer(45_000, "Session timeout of members; a group may have its own.", at_least=1)
    group_share_min_session_timeout_ms: int = integer(45_000, "Shortest session timeout that may be set.", at_least=1)
    group_share_max_session_timeout_ms: int = integer(60_000, "Longest session timeout that may be set.", at_least=1)
    group_share_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of a member; a group may have its own.", at_least=1)
    group_share_min_heartbeat_interval_ms: int = integer(5_000, "Shortest time between heartbeats that may be set.", at_least=1)
    group_share_max_heartbeat_interval_ms: int = integer(15_000, "Longest time between heartbeats that may be set.", at_least=1)
    group_share_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments of a group; a group may have its own.", at_least=0, dynamic=True)
    group_share_min_assignment_interval_ms: int = integer(0, "Lowest value of that time.", at_least=0)
    group_share_max_assignment_interval_ms: int = integer(15_000, "Highest value of that time.", at_least=0)
    group_share_max_size: int = integer(200, "Members of one group.", at_least=1, at_most=1_000)
    group_share_assignors: tuple[str, ...] = words("simple", "The assignor; there is one.", convert=_parse_assignors)
    group_share_delivery_count_limit: int = integer(5, "How often a record may be delivered; a group may have its own limit.", at_least=2, at_most=10)
    group_share_min_delivery_count_limit: int = integer(2, "Lowest limit that may be set.", at_least=2, at_most=5)
    group_share_max_delivery_count_limit: int = integer(10, "Highest limit that may be set.", at_least=5, at_most=25)
    group_share_record_lock_duration_ms: int = integer(30_000, "Time for which a member holds a record; a group may have its own.", at_least=1_000, at_most=3_600_000)
    group_share_min_record_lock_duration_ms: int = integer(15_000, "Shortest such time that may be set.", at_least=1_000, at_most=30_000)
    group_share_max_record_lock_duration_ms: int = integer(60_000, "Longest such time that may be set.", at_least=30_000, at_most=3_600_000)
    group_share_partition_max_record_locks: int = integer(2_000, "Records of a partition that a group may have in flight; a group may have its own limit.", at_least=100, at_most=10_000)
    group_share_min_partition_max_record_locks: int = integer(100, "Lowest limit that may be set.", at_least=100, at_most=2_000)
    group_share_max_partition_max_record_locks: int = integer(4_000, "Highest limit that may be set.", at_least=2_000, at_most=10_000)
    group_share_max_share_sessions: int = integer(2_000, "Share sessions of this broker; more are refused.", at_least=1)

    _share_coordinator = section("Share coordinator")
    share_coordinator_state_topic_num_partitions: int = integer(50, "Partitions of __share_group_state.", at_least=1)
    share_coordinator_state_topic_replication_factor: int = short(3, "Replicas of __share_group_state; unset, no more than there are brokers when it is created.", at_least=1)
    share_coordinator_state_topic_min_isr: int = short(2, "Replicas of __share_group_state that must have a record; unset, no more than it has replicas.", at_least=1)
    share_coordinator_state_topic_segment_bytes: int = integer(100 * _MIB, "Size at which a segment of __share_group_state ends.", at_least=1)
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(500, "Updates of a share partition between two snapshots.", at_least=0, at_most=500)
    share_coordinator_write_timeout_ms: int = integer(5_000, "How long a write may wait for the replicas of its partition.", at_least=1)
    share_coordinator_state_topic_prune_interval_ms: int = integer(300_000, "How often records that no snapshot needs are deleted.", at_least=1, dynamic_only=True)
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(300_000, "Age of a snapshot after which an updated share partition gets a new one.", at_least=1, dynamic_only=True)
    # fmt: on


def share_conflict(values: Mapping[str, Any]) -> str | None:
    """The conflict between settings of share groups that are each valid by themselves, if there is one."""
    names = (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "assignment.interval.ms",
        "delivery.count.limit",
        "record.lock.duration.ms",
        "partition.max.record.locks",
    )
    if found := bounds_conflict(values, "group.share", names):
        return found
    if values["group_share_heartbeat_interval_ms"] >= values["group_share_session_timeout_ms"]:
        return "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms"
    if values["group_share_max_share_sessions"] < values["group_share_max_size"]:
        return "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
    return None
