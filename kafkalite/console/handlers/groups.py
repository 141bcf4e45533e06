"""/api/groups and /api/group: groups with their lag, and resets of their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.client.broker_reports import record_counts, reports
from kafkalite.client.group_admin import OFFSET, SHIFT, TIME, GroupAdmin, Target, new_offsets, reset
from kafkalite.client.group_rows import group_detail
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_groups import share_admin_of
from kafkalite.common.names import TopicPartition
from kafkalite.console.brokers.topics import places_of, require_partition
from kafkalite.console.calls.route import Call, Preview
from kafkalite.console.request.parameters import Row, invalid, not_found, paged, refused

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
    """Resets offsets. A preview changes nothing: the response has the new offset of each partition and a `preview_id`,
    and a request with that sets exactly these offsets. Raises ApiError if it is of another request, or the group has
    committed since."""
    body = call.body
    group_id, admin = body["group_id"], GroupAdmin(call.cluster, call.timeout_s)
    request = {name: value for name, value in body.items() if name not in ("preview", "preview_id")}
    shares = share_admin_of(admin, group_id)
    committed = admin.offsets(group_id) if shares is None else shares.start_offsets(group_id)
    if not body["preview"]:
        preview = call.session.previews.take(body["preview_id"], request)
        if preview is None:
            raise refused("there is no preview of this reset; look at a new one first")
        if any(committed.get(key) != offset for key, offset in preview.found.items()):
            raise refused(f"group {group_id} has committed offsets since the preview; look at a new one first")
        try:
            reset(admin, group_id, preview.wanted, admin.commit if shares is None else shares.alter)
        finally:
            call.pool.changed()
        return {"ok": True, "preview": False, "items": _items(preview.found, preview.wanted)}
    keys = _chosen(call, committed)
    wanted = new_offsets(LogOffsets(call.cluster, call.timeout_s), keys, committed, _target(body))
    found = {key: committed.get(key) for key in keys}
    items = _items(found, wanted)
    _add_records(call, items)
    preview_id = call.session.previews.add(Preview(request, found, wanted))
    return {"ok": True, "preview": True, "preview_id": preview_id, "items": items}


def _items(found: Mapping[TopicPartition, int | None], wanted: Mapping[TopicPartition, int]) -> list[Row]:
    return [
        {"topic": key[0], "partition": key[1], "from_offset": found[key], "to_offset": wanted[key]} for key in wanted
    ]


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
