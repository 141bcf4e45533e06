"""Rows about groups for people: the list with members and lag, and one group with its members and partitions.

Members are described for many groups in one request, offsets for one. A lag in offsets is that of Kafka's tool, the end
less the committed offset, negative if the group's offset is beyond the end; a lag in records is the number that the
group would get. The lag of a group is the sum over the existing partitions with a committed offset, unknown if one is;
the number of partitions without an offset that members read stands beside it.
Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafkalite.client.broker_reports import KnowsBrokers, record_counts
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import (
    SHARE,
    Group,
    ListedGroup,
    Member,
    ReconciliationStep,
    sentences_of,
    steps_of,
)
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_group_detail import partition_rows, run_rows
from kafkalite.client.share_groups import ShareGroupAdmin, SharePosition, in_flight, positions_of
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition

_GROUPS_MAX = 5_000  # of which members and offsets are read
_ASK_S = 10.0

Offsets = dict[TopicPartition, int]
Row = dict[str, Any]


def lag_of(offset: int | None, end: int | None) -> int | None:
    """The lag of a partition in offsets, as Kafka's tool has it: negative if the committed offset is beyond the end,
    and counted from the committed offset even if the log starts behind it. None if one of the two is unknown."""
    return None if offset is None or end is None else end - offset


def group_rows(cluster: ClusterClient, pool: KnowsBrokers) -> list[Row]:
    """A row for each group that the user may describe."""
    admin = GroupAdmin(cluster, _ASK_S)
    listed = admin.list_groups()
    described = admin.describe_many(listed[:_GROUPS_MAX])
    shares = _share_positions(cluster, listed[:_GROUPS_MAX])
    offsets = {one.group_id: _offsets(admin, one) for one in listed[:_GROUPS_MAX] if one.group_type != SHARE}
    keys = {key for each in offsets.values() for key in each}
    ends = LogOffsets(cluster, _ASK_S).known_ends(key for key in keys if key in cluster.places).offsets
    counts = record_counts(cluster, pool, [(key, offset) for each in offsets.values() for key, offset in each.items()])
    return [
        _share_row(one, described.get(one.group_id), shares.get(one.group_id, {}))
        if one.group_type == SHARE
        else _row(one, described.get(one.group_id), offsets.get(one.group_id, {}), ends, counts, cluster.places)
        for one in listed
    ]


def _share_positions(
    cluster: ClusterClient, listed: Iterable[ListedGroup]
) -> dict[str, dict[TopicPartition, SharePosition]]:
    by_coordinator: dict[int, list[str]] = {}
    for one in listed:
        if one.group_type == SHARE:
            by_coordinator.setdefault(one.coordinator, []).append(one.group_id)
    found: dict[str, dict[TopicPartition, SharePosition]] = {}
    for coordinator, group_ids in by_coordinator.items():
        with suppress(Unanswered):  # they may move
            found |= positions_of(cluster.client(coordinator), group_ids)
    return found


def _offsets(admin: GroupAdmin, group: ListedGroup) -> Offsets:
    try:
        return admin.offsets(group.group_id, group.coordinator)
    except Unanswered:  # it may be listed but not described, or it moves
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
    owned = {key for member in (group.members if group is not None else ()) for key in member.partitions}
    return {
        **_head(one, group, offsets),
        "lag": sum_known(lags) if lags else None,
        "lag_records": sum_known(exact) if exact else None,
        "uncommitted": sum(key in there and key not in offsets for key in owned),
        "beyond_end": sum(lag is not None and lag < 0 for lag in lags),
    }


def _share_row(one: ListedGroup, group: Group | None, positions: Mapping[TopicPartition, SharePosition]) -> Row:
    lag = sum_known(each.lag for each in positions.values()) if positions else None
    return {**_head(one, group, positions), "lag": lag, "lag_records": None, "uncommitted": 0, "beyond_end": 0}


def _head(one: ListedGroup, group: Group | None, known: Iterable[TopicPartition]) -> Row:
    """`known`: the partitions in which it has come somewhere."""
    topics = {key[0] for key in known}
    if group is not None:
        topics |= {key[0] for member in group.members for key in member.partitions | (member.target or frozenset())}
    return {
        "group_id": one.group_id,
        "state": one.state,
        "group_type": one.group_type,
        "protocol_type": one.protocol_type,
        "coordinator": one.coordinator,
        "members": None if group is None else len(group.members),
        "topics": sorted(topics),
    }


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def group_detail(cluster: ClusterClient, pool: KnowsBrokers, group_id: str) -> Row:
    """A group with its members and offsets; a share group has `records_in_flight` as well. Raises ConfigError for a
    group that does not exist, Unanswered."""
    admin = GroupAdmin(cluster, _ASK_S)
    group = admin.describe(group_id)
    if group.group_type == SHARE:
        return _share_detail(cluster, pool, admin, group)
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
        **_described(group),
        "lag": sum_known(row["lag"] for row in committed) if committed else None,
        "lag_records": sum_known(row["lag_records"] for row in committed) if committed else None,
        "uncommitted": sum(row["committed_offset"] is None for row in rows),
        "partitions": rows,
    }


def _described(group: Group) -> Row:
    return {
        "group_id": group.group_id,
        "state": group.state,
        "group_type": group.group_type,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol,
        "group_epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "topology": list(group.topology),
        "operations": group.operations,
        "coordinator": group.coordinator,
        "members": [_member(member) for member in group.members],
        "reconciliation": {"sentences": sentences_of(group), "steps": [_step(step) for step in steps_of(group)]},
    }


def _share_detail(cluster: ClusterClient, pool: KnowsBrokers, admin: GroupAdmin, group: Group) -> Row:
    """A share group. `records_in_flight` is null if the brokers do not report them; `left_out` counts the rows beyond
    the limit of a report."""
    reported = in_flight(cluster, pool, group.group_id)
    positions = ShareGroupAdmin(admin).positions(group.group_id)
    partitions, _ = partition_rows(group, positions, LogOffsets(cluster, _ASK_S), reported)
    return {
        **_described(group),
        "lag": sum_known(row.lag for row in partitions) if partitions else None,
        "lag_records": None,
        "partitions": [row._asdict() for row in partitions],
        "records_in_flight": None if reported is None else [row._asdict() for row in run_rows(group, reported)],
        "left_out": 0 if reported is None else reported.left_out,
    }


def _member(member: Member) -> Row:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "member_type": member.member_type,
        "member_epoch": member.epoch,
        "partitions": _places(member.partitions),
        "target": None if member.target is None else _places(member.target),
        "tasks": _tasks(member.tasks),
        "target_tasks": _tasks(member.target_tasks),
        "subscribed_topics": list(member.topics),
        "subscribed_regex": member.topic_regex,
    }


def _tasks(tasks: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]] | None:
    """The tasks of a member of a group of Kafka Streams by subtopology, standby and warm-up tasks apart."""
    return None if tasks is None else {name: list(numbers) for name, numbers in tasks.items()}


def _places(partitions: Iterable[TopicPartition]) -> list[Row]:
    return [{"topic": topic, "partition": index} for topic, index in sorted(partitions)]


def _step(step: ReconciliationStep) -> Row:
    topic, index = step.partition or (None, None)
    return {
        "topic": topic,
        "partition": index,
        "holder": None if step.holder is None else step.holder.member_id,
        "heir": None if step.heir is None else step.heir.member_id,
    }
