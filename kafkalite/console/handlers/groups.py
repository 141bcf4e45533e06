"""/api/groups and /api/group: groups with their lag, and where they go on."""

from __future__ import annotations

from typing import Any

from kafkalite.client.group_admin import EARLIEST, LATEST, GroupAdmin
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.console.brokers.groups import group_detail
from kafkalite.console.brokers.reports import record_counts, reports
from kafkalite.console.brokers.topics import places_of, require_partition
from kafkalite.console.calls.route import Call
from kafkalite.console.request.errors import invalid, not_found, refused
from kafkalite.console.request.listing import Row, paged

RESETS = ("earliest", "latest", "offset", "time", "shift")
_SORTABLE = ("group_id", "state", "members", "lag", "lag_records")


def list_groups(call: Call) -> Row:
    rows = call.pool.groups.get(call.cluster)
    return paged(rows, call.query, sortable=_SORTABLE, searched=("group_id", "topics"))


def groups_of_topic(call: Call) -> Row:
    topic = call.path["topic"]
    places_of(call.cluster, topic)
    rows = [row for row in call.pool.groups.get(call.cluster) if topic in row["topics"]]
    return {"items": rows}


def describe_group(call: Call) -> Row:
    group_id = call.query["group_id"]
    row = group_detail(call.cluster, call.pool, group_id)
    return {**row, "rebalance": rebalance_of(call, row["coordinator"], group_id)}


def rebalance_of(call: Call, coordinator: int, group_id: str) -> Row | None:
    """For whom the group waits, while it does."""
    told = reports(call.cluster, call.pool, "rebalances", group_id=group_id).get(coordinator)
    return None if told is None else next(iter(told["groups"]), None)


def lag_history(call: Call) -> Row:
    return call.history.lag_of(call.query["group_id"], call.query["minutes"])


def delete_group(call: Call) -> Row:
    GroupAdmin(call.cluster, call.timeout_s).delete(call.query["group_id"])
    call.pool.changed()
    return {"ok": True}


def reset_group(call: Call) -> Row:
    """With a preview nothing is changed: it says for each partition where the group would go on."""
    body = call.body
    group_id, admin = body["group_id"], GroupAdmin(call.cluster, call.timeout_s)
    committed = _committed(admin, group_id)
    keys = _chosen(call, committed)
    wanted = _new_offsets(admin, keys, committed, body)
    items = [
        {"topic": key[0], "partition": key[1], "from_offset": committed.get(key), "to_offset": wanted[key]}
        for key in keys
    ]
    _add_records(call, items)
    if not body["preview"]:
        if members := _member_count(admin, group_id):
            raise refused(f"{group_id} has members ({members}), which would go on where they are; stop them first")
        refusals = admin.commit(group_id, wanted)
        call.pool.changed()
        if refusals:
            raise refused("; ".join(refusals))
    return {"ok": True, "preview": body["preview"], "items": items}


def _committed(admin: GroupAdmin, group_id: str) -> dict[TopicPartition, int]:
    if not group_id:
        raise invalid("group_id is empty")
    return admin.offsets(group_id)


def _member_count(admin: GroupAdmin, group_id: str) -> int:
    try:
        return len(admin.describe(group_id).members)
    except ConfigError:  # it begins with these offsets
        return 0


def _chosen(call: Call, committed: dict[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that are named, those of the topics that are named, or all that the group has offsets of."""
    topics, partitions = call.body["topics"], call.body["partitions"]
    if topics is None and partitions is None:
        if not committed:
            raise not_found(f"{call.body['group_id']} has no offsets; name topics or partitions")
        return sorted(committed)
    found = {(topic, index) for topic in topics or () for index in places_of(call.cluster, topic)}
    for one in partitions or ():
        topic, index = one.get("topic"), one.get("partition")
        if not isinstance(topic, str) or type(index) is not int:
            raise invalid("partitions: each must be {topic: TEXT, partition: NUMBER}")
        require_partition(places_of(call.cluster, topic), topic, index)
        found.add((topic, index))
    if not found:
        raise invalid("no partition is chosen")
    return sorted(found)


def _new_offsets(
    admin: GroupAdmin, keys: list[TopicPartition], committed: dict[TopicPartition, int], body: dict[str, Any]
) -> dict[TopicPartition, int]:
    """Within the logs as they are. Raises ApiError for a partition that nobody leads."""
    starts, ends = admin.list_offsets(keys, EARLIEST), admin.list_offsets(keys, LATEST)
    if missing := [key for key in keys if key not in starts or key not in ends]:
        raise refused(f"{missing[0][0]}-{missing[0][1]} has no leader now, or is not there")
    to = body["to"]
    if to == "earliest":
        return starts
    if to == "latest":
        return ends
    field = {"offset": "offset", "time": "time_ms", "shift": "shift"}[to]
    if body[field] is None:
        raise invalid(f"to={to} needs {field}")
    if to == "time":
        at = admin.list_offsets(keys, body["time_ms"])
        return {key: at.get(key, ends[key]) for key in keys}
    if to == "shift" and (fresh := [key for key in keys if key not in committed]):
        raise refused(f"the group has no offset of {fresh[0][0]}-{fresh[0][1]} to begin with")
    aim = {key: body["offset"] if to == "offset" else committed[key] + body["shift"] for key in keys}
    return {key: min(max(aim[key], starts[key]), ends[key]) for key in keys}


def _add_records(call: Call, items: list[Row]) -> None:
    """How many records are skipped (or, negative, read again) by each change."""
    keyed = [((item["topic"], item["partition"]), item) for item in items]
    places = [
        (key, offset)
        for key, item in keyed
        for offset in (item["from_offset"], item["to_offset"])
        if offset is not None
    ]
    counts = record_counts(call.cluster, call.pool, places)
    for key, item in keyed:
        before = counts.get((key, -1 if item["from_offset"] is None else item["from_offset"]))
        after = counts.get((key, item["to_offset"]))
        item["records"] = None if before is None or after is None else before - after
