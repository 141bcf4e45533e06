"""Settings of groups, one line each: the classic protocol, committed offsets, the consumer protocol (KIP-848), share
groups with their coordinator (KIP-932), groups of Kafka Streams (KIP-1071).

Those from the consumer protocol on are Kafka 4.3's, with its defaults and rules. The bounds are also those of the settings
that a group has for itself (`group_config`).
Source: org.apache.kafka.coordinator.group.{GroupCoordinatorConfig, OffsetConfig, modern.share.ShareGroupConfig},
org.apache.kafka.coordinator.share.ShareCoordinatorConfig.
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalite.config.security_settings import SecuritySettings
from kafkalite.config.settings import INT_MAX, integer, long, section, short, string, words

_MIB = 1 << 20
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_ASSIGNORS = {"uniform": "uniform", "range": "range"} | {
    f"{_PACKAGE}{name.capitalize()}Assignor": name for name in ("uniform", "range")
}
_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
PROTOCOLS = ("consumer", "classic", "share", "streams")


def parse_assignors(text: str) -> tuple[str, ...]:
    """The names of assignors, which may be given by the names of Kafka's classes; the first is the default."""
    given = [word.strip() for word in text.split(",")]
    unknown = [word for word in given if word not in _ASSIGNORS]
    if unknown:
        raise ValueError("must be a list of: uniform, range, since kafkalite runs no Java classes")
    return tuple(dict.fromkeys(_ASSIGNORS[word] for word in given))


def parse_migration_policy(text: str) -> str:
    word = text.strip().lower()
    if word not in _POLICIES:
        raise ValueError(f"must be one of: {', '.join(_POLICIES)}")
    return word


def parse_protocols(text: str) -> tuple[str, ...]:
    found = tuple(word.strip() for word in text.split(","))
    if not set(found) <= set(PROTOCOLS) or "classic" not in found:
        raise ValueError(f"must be a list of: {', '.join(PROTOCOLS)}, with classic among them")
    return found


class GroupSettings(SecuritySettings):
    """Values of the lines below."""

    # fmt: off
    _groups = section("Consumer groups")
    group_initial_rebalance_delay_ms: int = integer(3_000, "How long a new group waits for more members.", sample="0")
    group_min_session_timeout_ms: int = integer(6_000, "Shortest session timeout that a member may ask for.")
    group_max_session_timeout_ms: int = integer(1_800_000, "Longest session timeout that a member may ask for.")
    group_max_size: int = integer(INT_MAX, "Members of one group.", at_least=1)
    offset_metadata_max_bytes: int = integer(4096, "Largest metadata text that may be committed with an offset.")
    offsets_commit_required_acks: int = short(-1, "Replicas that must have a committed offset.", at_least=-1, idle=True)
    offsets_commit_timeout_ms: int = integer(5_000, "How long a commit may wait for the replicas of its partition.", at_least=1)
    offsets_load_buffer_size: int = integer(5 * _MIB, "Bytes read at a time when offsets are loaded.", at_least=1)
    offsets_retention_minutes: int = integer(10_080, "How long the offsets of a group without members are kept.", at_least=1)
    offsets_retention_check_interval_ms: int = long(600_000, "How often to check for expired offsets.", at_least=1)
    offsets_topic_num_partitions: int = integer(50, "Partitions of __consumer_offsets.", at_least=1)
    offsets_topic_replication_factor: int = short(3, "Replicas of __consumer_offsets; unset, no more than there are brokers when it is created.", at_least=1)
    offsets_topic_segment_bytes: int = integer(100 * _MIB, "Size at which a segment of __consumer_offsets ends.", at_least=1)
    offsets_topic_compression_codec: int = integer(0, "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", at_least=0, at_most=4)

    _consumer_groups = section("Groups of the consumer protocol (KIP-848)")
    group_coordinator_rebalance_protocols: tuple[str, ...] = words("classic,consumer,streams", "The protocols that groups may use. Share groups are on with the feature share.version.", convert=parse_protocols)
    group_consumer_session_timeout_ms: int = integer(45_000, "Session timeout of members; a group may have its own.", at_least=1)
    group_consumer_min_session_timeout_ms: int = integer(45_000, "Shortest session timeout that may be set.", at_least=1)
    group_consumer_max_session_timeout_ms: int = integer(60_000, "Longest session timeout that may be set.", at_least=1)
    group_consumer_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of a member; a group may have its own.", at_least=1)
    group_consumer_min_heartbeat_interval_ms: int = integer(5_000, "Shortest time between heartbeats that may be set.", at_least=1)
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, "Longest time between heartbeats that may be set.", at_least=1)
    group_consumer_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments of a group; a group may have its own.", at_least=0, dynamic=True)
    group_consumer_min_assignment_interval_ms: int = integer(0, "Lowest value of that time.", at_least=0)
    group_consumer_max_assignment_interval_ms: int = integer(15_000, "Highest value of that time.", at_least=0)
    group_consumer_max_size: int = integer(INT_MAX, "Members of one group.", at_least=1)
    group_consumer_assignors: tuple[str, ...] = words("uniform,range", "The assignors, the default one first.", convert=parse_assignors)
    group_consumer_migration_policy: str = string("bidirectional", "Whether groups with members change between the classic and the consumer protocol: bidirectional, upgrade, downgrade or disabled.", convert=parse_migration_policy)
    group_consumer_regex_refresh_interval_ms: int = integer(600_000, "How often topics are matched again with regular expressions of subscriptions.", at_least=10_000, dynamic_only=True)
    # fmt: on


def bounds_conflict(values: Mapping[str, Any], prefix: str, names: Iterable[str]) -> str | None:
    """The conflict between a setting and its bounds, such as group.share.min.session.timeout.ms and ...max... for
    session.timeout.ms, if there is one."""
    for what in names:
        name, low, high = (f"{prefix}.{word}{what}" for word in ("", "min.", "max."))
        value, lowest, highest = (values[each.replace(".", "_")] for each in (name, low, high))
        if highest < lowest:
            return f"{high}={highest} must be greater than or equal to {low}, {lowest}"
        if value < lowest:
            return f"{name}={value} must be greater than or equal to {low}, {lowest}"
        if value > highest:
            return f"{name}={value} must be less than or equal to {high}, {highest}"
    return None


def group_conflict(values: Mapping[str, Any]) -> str | None:
    """The conflict between settings of the consumer protocol that are each valid by themselves, if there is one."""
    names = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    if found := bounds_conflict(values, "group.consumer", names):
        return found
    interval_ms, timeout_ms = (
        values[f"group_consumer_{each}"] for each in ("heartbeat_interval_ms", "session_timeout_ms")
    )
    if interval_ms >= timeout_ms:
        return (
            f"group.consumer.heartbeat.interval.ms={interval_ms} must be less than group.consumer.session.timeout.ms, "
            f"{timeout_ms}"
        )
    return None


# -- share groups

_SHARE_ASSIGNORS = ("simple", f"{_PACKAGE}SimpleAssignor")


def _parse_share_assignors(text: str) -> tuple[str, ...]:
    given = [word.strip() for word in text.split(",")]
    if not all(word in _SHARE_ASSIGNORS for word in given):
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
    group_share_assignors: tuple[str, ...] = words("simple", "The assignor; there is one.", convert=_parse_share_assignors)
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


# -- groups of Kafka Streams


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
