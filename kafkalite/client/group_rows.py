"""Groups with their members, offsets and lag, as rows for people.

Members are asked for many groups at a time, offsets for one.
A lag in offsets is that of Kafka's tool, the end less the committed offset, and negative where the group stands beyond
the end; a lag in records is what the group would get. The lag of a group is the sum over the partitions that there are,
and not known if that of one is not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.client.broker_reports import KnowsBrokers, record_counts
from kafkalite.client.group_admin import CLASSIC, Group, GroupAdmin, ListedGroup, Member, lag_of
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

_GROUPS_MAX = 5_000  # of which members and offsets are asked for
_ASK_S = 10.0

Offsets = dict[TopicPartition, int]
Row = dict[str, Any]


def group_rows(cluster: ClusterClient, pool: KnowsBrokers) -> list[Row]:
    """A row for each group that the user may see."""
    admin = GroupAdmin(cluster, _ASK_S)
    listed = admin.list_groups()
    described = admin.describe_many(listed[:_GROUPS_MAX])
    offsets = {one.group_id: _offsets(admin, one) for one in listed[:_GROUPS_MAX]}
    keys = {key for each in offsets.values() for key in each}
    ends = LogOffsets(cluster, _ASK_S).known_ends(key for key in keys if key in cluster.places).offsets
    counts = record_counts(cluster, pool, [(key, offset) for each in offsets.values() for key, offset in each.items()])
    return [
        _row(one, described.get(one.group_id), offsets.get(one.group_id, {}), ends, counts, cluster.places)
        for one in listed
    ]


def _offsets(admin: GroupAdmin, group: ListedGroup) -> Offsets:
    try:
        return admin.offsets(group.group_id, group.coordinator)
    except Unanswered:  # it may be listed and not read, or it moves
        return {}


def _row(
    one: ListedGroup,
    group: Group | None,
    offsets: Offsets,
    ends: Mapping[TopicPartition, int],
    counts: Mapping[tuple[TopicPartition, int], int],
    there: Container[TopicPartition],
) -> Row:
    lags = [lag_of(offset, ends.get(key)) for key, offset in offsets.items() if key in there]
    exact = [counts.get((key, offset)) for key, offset in offsets.items() if key in there]
    topics = {key[0] for key in offsets}
    if group is not None:
        topics |= {key[0] for member in group.members for key in member.partitions}
    return {
        "group_id": one.group_id,
        "state": one.state,
        "group_type": one.group_type,
        "protocol_type": one.protocol_type,
        "coordinator": one.coordinator,
        "members": None if group is None else len(group.members),
        "topics": sorted(topics),
        "lag": sum_known(lags) if lags else None,
        "lag_records": sum_known(exact) if exact else None,
        "beyond_end": sum(lag is not None and lag < 0 for lag in lags),
    }


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """None if one of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def group_detail(cluster: ClusterClient, pool: KnowsBrokers, group_id: str) -> Row:
    """Raises ConfigError for a group that is not there, Unanswered."""
    admin = GroupAdmin(cluster, _ASK_S)
    group = admin.describe(group_id)
    offsets = admin.offsets(group_id)
    owners: dict[TopicPartition, Member] = {key: member for member in group.members for key in member.partitions}
    keys = sorted({*offsets, *owners})
    of_logs = LogOffsets(cluster, _ASK_S)
    ends, starts = of_logs.known_ends(keys).offsets, of_logs.known_starts(keys).offsets
    stable = of_logs.known_ends(keys, committed=True).offsets
    counts = record_counts(cluster, pool, [(key, offset) for key, offset in offsets.items()])
    rows: list[Row] = []
    for key in keys:
        offset, end = offsets.get(key), ends.get(key)
        owner = owners.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "member_id": None if owner is None else owner.member_id,
                "committed_offset": offset,
                "start_offset": starts.get(key),
                "end_offset": end,
                "last_stable_offset": stable.get(key),
                "lag": lag_of(offset, end),
                "lag_records": None if offset is None else counts.get((key, offset)),
                "metadata": None,
            }
        )
    committed = [
        row
        for row in rows
        if row["committed_offset"] is not None and (row["topic"], row["partition"]) in cluster.places
    ]
    return {
        "group_id": group_id,
        "state": group.state,
        "group_type": CLASSIC,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [_member(member) for member in group.members],
        "lag": sum_known(row["lag"] for row in committed) if committed else None,
        "lag_records": sum_known(row["lag_records"] for row in committed) if committed else None,
        "partitions": rows,
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(member.partitions)],
    }
