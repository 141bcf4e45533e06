"""/api/topics: the list, one topic with its partitions and settings, and every change to it."""

from __future__ import annotations

from typing import Any

from kafkalite.client import topic_changes
from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.broker_reports import record_counts
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.topic_changes import BROKERS_DEFAULT, Refusals, compact
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.console.brokers.topics import (
    config_rows,
    facts_of,
    identity_of,
    partition_row,
    places_by_topic,
    places_of,
    require_partition,
    settings_of,
    topic_row,
)
from kafkalite.console.calls.route import Call
from kafkalite.console.request.parameters import Row, invalid, paged, refused, texts_of
from kafkalite.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

_SHOWN_SETTINGS = ["cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas"]
_DELETE_RECORDS_VERSION = 1
_END = -1
_SORTABLE = (
    "name",
    "partitions",
    "replicas",
    "records",
    "size_bytes",
    "bytes_per_s",
    "under_replicated",
    "offset_span",
)
_PARTITIONS_SORTABLE = ("partition", "leader", "start_offset", "end_offset", "records", "size_bytes", "dirty_ratio")


def list_topics(call: Call) -> Row:
    """The list of topics; settings are read for the topics of the page only."""
    inventory = call.pool.inventory.get()
    rows = [
        topic_row(call.cluster, topic, places, inventory)
        for topic, places in places_by_topic(call.cluster).items()
        if call.query["internal"] or topic not in call.cluster.internal
    ]
    page = paged(rows, call.query, sortable=_SORTABLE, searched=("name",))
    settings = settings_of(call.cluster, [row["name"] for row in page["items"]], _SHOWN_SETTINGS)
    for row in page["items"]:
        _add_settings(row, settings.get(row["name"], {}))
    return page


def _add_settings(row: Row, settings: dict[str, str | None]) -> None:
    row["cleanup_policy"] = settings.get("cleanup.policy")
    row["retention_ms"] = _integer(settings.get("retention.ms"))


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def describe_topic(call: Call) -> Row:
    topic = call.path["topic"]
    places = places_of(call.cluster, topic)
    inventory = call.pool.inventory.get(2.0)
    row = topic_row(call.cluster, topic, places, inventory)
    settings = settings_of(call.cluster, [topic], _SHOWN_SETTINGS).get(topic, {})
    _add_settings(row, settings)
    counts = _exact(call, topic, list(places))
    return {
        **row,
        **counts,
        **identity_of(call.cluster, topic),
        "retention_bytes": _integer(settings.get("retention.bytes")),
        "min_insync_replicas": _integer(settings.get("min.insync.replicas")),
        "last_timestamp_ms": _newest_ms(call, topic, list(places)),
    }


def _exact(call: Call, topic: str, partitions: list[int]) -> Row:
    """The present numbers, read in an order in which new records make none of them negative."""
    keys = [(topic, index) for index in partitions]
    committed = _counts(call, topic, partitions)
    both = _counts(call, topic, partitions, committed_only=False)
    of_logs = LogOffsets(call.cluster, call.timeout_s)
    starts, ends = of_logs.known_starts(keys).offsets, of_logs.known_ends(keys).offsets
    found: Row = {}
    if len(committed) == len(both) == len(partitions):
        found.update(records=sum(committed.values()), records_uncommitted=sum(both.values()), records_pending=False)
    else:
        found["records_uncommitted"] = None
    if len(starts) == len(ends) == len(partitions):
        found["offset_span"] = sum(ends[key] - starts[key] for key in keys)
    return found


def _counts(call: Call, topic: str, partitions: list[int], *, committed_only: bool = True) -> dict[int, int]:
    """The number of records that a consumer gets from each of these partitions; of committed records, or of all."""
    asked = [((topic, index), 0) for index in partitions]
    found = record_counts(call.cluster, call.pool, asked, committed_only=committed_only)
    return {key[1]: count for (key, _), count in found.items()}


def _newest_ms(call: Call, topic: str, partitions: list[int]) -> int | None:
    """The largest timestamp; None for an empty topic, or if unknown."""
    try:
        known = LogOffsets(call.cluster, call.timeout_s).newest_timestamps((topic, index) for index in partitions)
    except Unanswered:
        return None
    return max(known.values(), default=None)


def list_partitions(call: Call) -> Row:
    topic = call.path["topic"]
    places = places_of(call.cluster, topic)
    facts = facts_of(call.pool.inventory.get(2.0), topic, places)
    rows = [partition_row(index, place, facts[index]) for index, place in places.items()]
    page = paged(rows, call.query, sortable=_PARTITIONS_SORTABLE, searched=("partition",))
    shown = [(topic, row["partition"]) for row in page["items"]]
    of_logs = LogOffsets(call.cluster, call.timeout_s)
    starts, ends = of_logs.known_starts(shown).offsets, of_logs.known_ends(shown).offsets
    stable = of_logs.known_ends(shown, committed=True).offsets
    committed = _counts(call, topic, [index for _, index in shown])
    for row in page["items"]:
        key = topic, row["partition"]
        row["last_stable_offset"] = stable.get(key)
        if key in starts and key in ends:  # those of the inventory may be some seconds old
            row.update(start_offset=starts[key], end_offset=ends[key], offset_span=ends[key] - starts[key])
        row["records"] = committed.get(row["partition"], row["records"])
    return page


def read_config(call: Call) -> Row:
    places_of(call.cluster, call.path["topic"])
    return {"items": config_rows(call.cluster, call.path["topic"])}


# changes


def _done(call: Call, refusals: Refusals, **more: Any) -> Row:
    call.pool.changed()
    if refusals:
        raise refused("; ".join(refusals))
    return {"ok": True, **more}


def create_topic(call: Call) -> Row:
    body = call.body
    refusals = topic_changes.create_topics(
        call.cluster,
        [body["name"]],
        call.timeout_s,
        partitions=BROKERS_DEFAULT if body["partitions"] is None else body["partitions"],
        replicas=BROKERS_DEFAULT if body["replicas"] is None else body["replicas"],
        configs=texts_of(body["configs"]),
        validate_only=body["validate_only"],
    )
    return _done(call, refusals, name=body["name"])


def delete_topic(call: Call) -> Row:
    places_of(call.cluster, call.path["topic"])
    return _done(call, topic_changes.delete_topics(call.cluster, [call.path["topic"]], call.timeout_s))


def add_partitions(call: Call) -> Row:
    topic, count = call.path["topic"], call.body["count"]
    places_of(call.cluster, topic)
    return _done(call, topic_changes.add_partitions(call.cluster, topic, count, call.timeout_s), count=count)


def alter_config(call: Call) -> Row:
    topic = call.path["topic"]
    places_of(call.cluster, topic)
    changed, reset = texts_of(call.body["set"]), call.body["reset"] or []
    if not changed and not reset:
        raise invalid("nothing to change: set and reset are both empty")
    refusals = topic_changes.alter_configs(
        call.cluster, topic, changed, reset, validate_only=call.body["validate_only"]
    )
    return _done(call, refusals)


def empty_topic(call: Call) -> Row:
    """Deletes records up to `before_offset`, or all. The request goes to each leader."""
    topic, before = call.path["topic"], call.body["before_offset"]
    places = places_of(call.cluster, topic)
    wanted = sorted(set(places if call.body["partitions"] is None else call.body["partitions"]))
    by_leader: dict[int, list[DeleteRecordsPartition]] = {}
    for index in wanted:
        require_partition(places, topic, index)
        one = DeleteRecordsPartition(partition_index=index, offset=_END if before is None else before)
        by_leader.setdefault(call.cluster.leader_of((topic, index)), []).append(one)
    low: dict[str, int] = {}
    refusals: list[str] = []
    for leader, partitions in by_leader.items():
        topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=int(call.timeout_s * 1000))
        answer = call.cluster.client(leader).ask(request, _DELETE_RECORDS_VERSION, call.timeout_s + 5)
        for one in answer.topics[0].partitions:
            if one.error_code:
                refusals.append(f"{topic}-{one.partition_index} keeps its records: {name_of_error(one.error_code)}")
            else:
                low[str(one.partition_index)] = one.low_watermark
    return _done(call, refusals, low_watermarks=low)


def compact_topic(call: Call) -> Row:
    """Starts a compaction at each leader; the response does not wait for its end."""
    topic = call.path["topic"]
    places = places_of(call.cluster, topic)
    wanted = sorted(set(places if call.body["partitions"] is None else call.body["partitions"]))
    by_leader: dict[int, list[TopicPartition]] = {}
    for index in wanted:
        require_partition(places, topic, index)
        by_leader.setdefault(call.cluster.leader_of((topic, index)), []).append((topic, index))
    messages: dict[int, str | None] = {}
    for leader, keys in by_leader.items():
        answer = compact(call.cluster.client(leader), topic, [index for _, index in keys], call.body["roll"])
        messages.update(answer)
    items = [{"partition": index, "message": message} for index, message in sorted(messages.items())]
    return _done(call, [], partitions=items)
