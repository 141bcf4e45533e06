"""/api/overview, /api/problems, /api/history: the cluster at a glance."""

from __future__ import annotations

from typing import Any

from kafkalite.client.cluster_client import NO_LEADER
from kafkalite.console.brokers.groups import sum_known
from kafkalite.console.brokers.inventory import Inventory
from kafkalite.console.brokers.problems import problems_of
from kafkalite.console.brokers.reports import reports
from kafkalite.console.calls.route import Call
from kafkalite.console.handlers.cluster import broker_rows
from kafkalite.console.request.listing import Row


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
        "kind": "kafkalite" if call.pool.gives_reports(cluster) else "kafka",
        "controller_id": cluster.controller_id if cluster.controller_id >= 0 else None,
        "brokers": _brokers(call, inventory),
        "topics": len(user_topics),
        "internal_topics": len(cluster.internal),
        "partitions": len(cluster.places),
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
    told = reports(call.cluster, call.pool, "broker")
    rows = []
    for row in broker_rows(call):
        broker_id = row["id"]
        places = call.cluster.places.values()
        report: dict[str, Any] = told.get(broker_id) or {}
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
