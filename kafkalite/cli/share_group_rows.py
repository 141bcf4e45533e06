"""Tables of `kafkalite group describe` about share groups: positions with lag, and records in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalite.client.broker_reports import KnowsBrokers
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import Group
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_group_detail import partition_rows, run_rows
from kafkalite.client.share_groups import ShareGroupAdmin, in_flight
from kafkalite.common.names import TopicPartition
from kafkalite.common.timestamps import format_timestamp

POSITION_COLUMNS = (
    "group", "topic", "partition", "start", "end", "lag", "acquired", "available", "acknowledged", "archived",
    "lock timeouts", "members",
)  # fmt: skip
RECORD_COLUMNS = (
    "group", "topic", "partition", "first", "last", "state", "deliveries", "member", "client", "host", "acquired at",
    "locked until",
)  # fmt: skip

Row = Sequence[object]


class ShareGroupRows:
    """Reads the rows of one cluster."""

    def __init__(self, cluster: ClusterClient, admin: GroupAdmin, timeout_s: float) -> None:
        self._cluster = cluster
        self._admin = ShareGroupAdmin(admin)
        self._offsets_of = LogOffsets(cluster, timeout_s)
        self._brokers = KnowsBrokers()

    def positions(self, group: Group) -> tuple[list[Row], Mapping[TopicPartition, str]]:
        """A row for each partition; and why ends are not known."""
        reported = in_flight(self._cluster, self._brokers, group.group_id)
        positions = self._admin.positions(group.group_id)
        rows, faults = partition_rows(group, positions, self._offsets_of, reported)
        return [(group.group_id, *row) for row in rows], faults

    def records(self, group: Group, *, as_json: bool) -> tuple[list[Row], list[str]]:
        """A row for each run of records, and sentences about what is missing. Times are milliseconds in JSON."""
        reported = in_flight(self._cluster, self._brokers, group.group_id)
        if reported is None:
            return [], [f"the records in flight of {group.group_id} are not known: its brokers do not report them"]
        rows: list[Row] = []
        for row in run_rows(group, reported):
            times: list[object] = [row.acquired_ms, row.locked_until_ms]
            if not as_json and row.acquired_ms is not None and row.locked_until_ms is not None:
                times = [format_timestamp(row.acquired_ms), format_timestamp(row.locked_until_ms)]
            rows.append((group.group_id, *row[:-2], *times))
        left_out = [f"{reported.left_out} more rows of {group.group_id} are left out"] if reported.left_out else []
        return rows, left_out
