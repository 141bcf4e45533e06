"""Rows of `kafkalite group describe` about share groups: positions with lag, and records in flight.

Who holds which records, and what became of others since their leader began, is reported by kafkalite's brokers only:
these columns are unknown at an Apache Kafka.
Source: org.apache.kafka.tools.consumer.group.ShareGroupCommand (4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafkalite.client.broker_reports import KnowsBrokers
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import Group
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_groups import ShareGroupAdmin, SharePosition, in_flight
from kafkalite.common.names import TopicPartition
from kafkalite.common.timestamps import format_timestamp

POSITION_COLUMNS = (
    "group", "topic", "partition", "start", "end", "lag", "acquired", "available", "acknowledged", "archived", "members"
)  # fmt: skip
RECORD_COLUMNS = (
    "group", "topic", "partition", "first", "last", "state", "deliveries", "member", "client", "host", "acquired at",
    "locked until",
)  # fmt: skip
_COUNTS = ("acquired", "available", "total_acknowledged", "total_archived")
_UNKNOWN = SharePosition(None, None)

Row = Sequence[object]


class ShareGroupRows:
    """Reads the rows of one cluster."""

    def __init__(self, cluster: ClusterClient, admin: GroupAdmin, timeout_s: float) -> None:
        self._cluster = cluster
        self._admin = ShareGroupAdmin(admin)
        self._offsets_of = LogOffsets(cluster, timeout_s)
        self._brokers = KnowsBrokers()

    def positions(self, group: Group) -> tuple[list[Row], Mapping[TopicPartition, str]]:
        """A row for each partition that the group has begun or a member is assigned; and why ends are not known."""
        positions = self._admin.positions(group.group_id)
        readers: dict[TopicPartition, int] = {}
        for member in group.members:
            for key in member.partitions:
                readers[key] = readers.get(key, 0) + 1
        keys = sorted({*positions, *readers})
        ends, faults = self._offsets_of.known_ends(keys)
        reported = in_flight(self._cluster, self._brokers, group.group_id)
        rows: list[Row] = []
        for key in keys:
            position = positions.get(key, _UNKNOWN)
            report = None if reported is None else reported.partitions.get(key)
            counts = [None if report is None else report[name] for name in _COUNTS]
            where = (group.group_id, *key, position.start_offset, ends.get(key), position.lag)
            rows.append((*where, *counts, readers.get(key, 0)))
        return rows, faults

    def records(self, group: Group, *, as_json: bool) -> tuple[list[Row], list[str]]:
        """A row for each run of records that are acquired or available again, and sentences about what is missing.
        Times are milliseconds in JSON."""
        reported = in_flight(self._cluster, self._brokers, group.group_id)
        if reported is None:
            return [], [f"the records in flight of {group.group_id} are not known: its brokers do not report them"]
        members = {member.member_id: member for member in group.members}

        def rows() -> Iterator[Row]:
            for key, partition in sorted(reported.partitions.items()):
                for run in partition["runs"]:
                    member = members.get(run["member_id"])
                    who = (None, None) if member is None else (member.client_id, member.host)
                    times = [run["acquired_ms"], run["locked_until_ms"]]
                    if not as_json:
                        times = [None if each is None else format_timestamp(each) for each in times]
                    where = group.group_id, *key, run["first_offset"], run["last_offset"]
                    yield (*where, run["state"], run["delivery_count"], run["member_id"], *who, *times)

        left_out = [f"{reported.left_out} more rows of {group.group_id} are left out"] if reported.left_out else []
        return list(rows()), left_out
