"""/api/overview, /api/problems, /api/history, /api/restart: the cluster at a glance.

A restart is
described by broker: the state of partitions while it lasts, and how much recovery reads after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.client.broker_reports import reports
from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.client.group_rows import sum_known
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.console.brokers.inventory import Inventory
from kafkalite.console.brokers.topics import settings_of
from kafkalite.console.calls.route import Call
from kafkalite.console.handlers.cluster import broker_rows
from kafkalite.console.handlers.problems import MIN_ISR, problems_of
from kafkalite.console.request.parameters import Row

if TYPE_CHECKING:
    pass


def overview(call: Call) -> Row:
    cluster = call.cluster
    inventory = call.pool.inventory.get()
    found = problems_of(cluster, call.pool, call.history)
    user_topics = {topic for topic, _ in cluster.places} - cluster.internal
    sizes = [one.size_bytes for one in inventory.partitions.values()] if inventory is not None else []
    counts = (
        [facts.records for key, facts in inventory.partitions.items() if key[0] in user_topics]
        if inventory is not None
        else []
    )
    return {
        "cluster_id": cluster.cluster_id,
        "kind": call.pool.kind_of(cluster),
        "controller_id": cluster.controller_id if cluster.controller_id >= 0 else None,
        "brokers": _brokers(call, inventory),
        "topics": len(user_topics),
        "internal_topics": len(cluster.internal),
        "partitions": sum(topic in user_topics for topic, _ in cluster.places),
        "internal_partitions": sum(topic in cluster.internal for topic, _ in cluster.places),
        "groups": len(call.pool.groups.get(cluster)),
        "records": sum_known(counts) if inventory is not None else None,
        "under_replicated": sum(len(place.isr) < len(place.replicas) for place in cluster.places.values()),
        "offline": sum(place.leader == NO_LEADER for place in cluster.places.values()),
        "under_min_isr": sum(one["kind"] == "under_min_isr" for one in found),
        "size_bytes": sum_known(sizes) if inventory is not None else None,
        "rates": call.history.newest(),
        "problems": found,
    }


def _brokers(call: Call, inventory: Inventory | None) -> list[Row]:
    answers = reports(call.cluster, call.pool, "broker")
    rows = []
    for row in broker_rows(call):
        broker_id = row["id"]
        places = call.cluster.places.values()
        report: dict[str, Any] = answers.get(broker_id) or {}
        newest = call.history.newest(broker_id)
        disks = [one for one in inventory.directories if one.broker == broker_id] if inventory is not None else []
        rows.append(
            {
                **row,
                "leaders": sum(place.leader == broker_id for place in places),
                "replicas": sum(broker_id in place.replicas for place in places),
                "under_replicated": sum(
                    place.leader == broker_id and len(place.isr) < len(place.replicas) for place in places
                ),
                "connections": report.get("connections"),
                "uptime_ms": report.get("uptime_ms"),
                "version": report.get("version"),
                "disk_bytes": sum_known(one.total_bytes for one in disks) if disks else None,
                "disk_free_bytes": sum_known(one.free_bytes for one in disks) if disks else None,
                "produce_bytes_per_s": newest["produce_bytes_per_s"],
                "fetch_bytes_per_s": newest["fetch_bytes_per_s"],
            }
        )
    return rows


def problems(call: Call) -> Row:
    return {"items": problems_of(call.cluster, call.pool, call.history)}


def history(call: Call) -> Row:
    return call.history.series(call.query["broker"], call.query["minutes"])


_RESTART_NAMED_MAX = 10
_ASKED_TOPICS_MAX = 2_000  # beyond that, only the first ones are checked for min.insync.replicas


def restart(call: Call) -> Row:
    """The effects of a restart, by broker. Placement gives most of them for any cluster, kafkalite's reports the
    others.
    """
    places = call.cluster.places
    shared = sorted({topic for (topic, _), place in places.items() if len(place.replicas) > 1})[:_ASKED_TOPICS_MAX]
    found = settings_of(call.cluster, shared, [MIN_ISR]) if shared else {}
    minimum = {topic: int(settings.get(MIN_ISR) or 1) for topic, settings in found.items()}
    answers = reports(call.cluster, call.pool, "restart")
    items = []
    for broker_id in sorted(call.cluster.brokers):
        report = answers.get(broker_id)
        items.append(
            {
                "broker": broker_id,
                **consequences(broker_id, places.items(), minimum),
                "directories": None if report is None else report["directories"],
                "was_clean": None if report is None else report["was_clean"],
                "threads": None if report is None else report["threads"],
            }
        )
    return {"items": items}


def consequences(
    broker_id: int, places: Iterable[tuple[TopicPartition, PartitionPlace]], minimum: dict[str, int]
) -> Row:
    """The partitions that get another leader, have none, or refuse acks=all while this broker is down."""
    handed_over, unavailable, refusing = 0, [], []
    for (topic, index), place in places:
        if broker_id not in place.replicas:
            continue
        others = [one for one in place.isr if one != broker_id]
        if place.leader == broker_id and not others:
            unavailable.append(f"{topic}-{index}")
            continue
        handed_over += place.leader == broker_id
        if broker_id in place.isr and len(others) < minimum.get(topic, 1) <= len(place.isr):
            refusing.append(f"{topic}-{index}")
    return {
        "handed_over": handed_over,
        "unavailable": len(unavailable),
        "unavailable_names": sorted(unavailable)[:_RESTART_NAMED_MAX],
        "refusing": len(refusing),
        "refusing_names": sorted(refusing)[:_RESTART_NAMED_MAX],
    }
