"""/api/groups and /api/group: groups with their lag, and resets of their offsets."""

from __future__ import annotations

from typing import Any

from kafkalite.client.broker_reports import record_counts, reports
from kafkalite.client.group_admin import OFFSET, SHIFT, TIME, GroupAdmin, Target, new_offsets, reset
from kafkalite.client.group_rows import group_detail
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.names import TopicPartition
from kafkalite.console.brokers.topics import places_of, require_partition
from kafkalite.console.calls.route import Call
from kafkalite.console.request.parameters import Row, invalid, not_found, paged

_SORTABLE = ("group_id", "state", "group_type", "members", "lag", "lag_records")
GROUP_TYPES = ("classic", "consumer", "share", "streams")


def list_groups(call: Call) -> Row:
    rows = call.pool.groups.get(call.cluster)
    if kind := call.query["type"]:
        rows = [row for row in rows if row["group_type"] == kind]
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
    """The members for which a rebalance waits; None if there is none."""
    answer = reports(call.cluster, call.pool, "rebalances", group_id=group_id).get(coordinator)
    return None if answer is None else next(iter(answer["groups"]), None)


def lag_history(call: Call) -> Row:
    return call.history.lag_of(call.query["group_id"], call.query["minutes"])


def delete_group(call: Call) -> Row:
    GroupAdmin(call.cluster, call.timeout_s).delete(call.query["group_id"])
    call.pool.changed()
    return {"ok": True}


def reset_group(call: Call) -> Row:
    """Resets offsets. With a preview nothing is changed: the response has the new offset of each partition."""
    body = call.body
    group_id, admin = body["group_id"], GroupAdmin(call.cluster, call.timeout_s)
    committed = admin.offsets(group_id)
    keys = _chosen(call, committed)
    wanted = new_offsets(LogOffsets(call.cluster, call.timeout_s), keys, committed, _target(body))
    items = [
        {"topic": key[0], "partition": key[1], "from_offset": committed.get(key), "to_offset": wanted[key]}
        for key in keys
    ]
    _add_records(call, items)
    if not body["preview"]:
        try:
            reset(admin, group_id, wanted)
        finally:
            call.pool.changed()
    return {"ok": True, "preview": body["preview"], "items": items}


def _chosen(call: Call, committed: dict[TopicPartition, int]) -> list[TopicPartition]:
    """The named partitions, those of the named topics, or all that the group has offsets of."""
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


def _target(body: dict[str, Any]) -> Target:
    """Raises ApiError."""
    to = body["to"]
    field = {OFFSET: "offset", TIME: "time_ms", SHIFT: "shift"}.get(to)
    if field is None:
        return Target(to)
    if body[field] is None:
        raise invalid(f"to={to} needs {field}")
    return Target(to, body[field])


def _add_records(call: Call, items: list[Row]) -> None:
    """Adds the number of records that each change skips (or, negative, repeats)."""
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
