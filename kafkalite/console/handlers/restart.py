"""/api/restart: what becomes of partitions while a broker restarts, and what it reads again after a crash."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.common.names import TopicPartition
from kafkalite.console.brokers.reports import reports
from kafkalite.console.brokers.topics import settings_of
from kafkalite.console.calls.route import Call
from kafkalite.console.request.listing import Row

_MIN_ISR = "min.insync.replicas"
_NAMED_MAX = 10
_ASKED_TOPICS_MAX = 2_000  # beyond that, only the first ones are looked at for min.insync.replicas


def restart(call: Call) -> Row:
    """By broker. What follows from where replicas are is known of any cluster, the rest of kafkalite's brokers only."""
    places = call.cluster.places
    shared = sorted({topic for (topic, _), place in places.items() if len(place.replicas) > 1})[:_ASKED_TOPICS_MAX]
    found = settings_of(call.cluster, shared, [_MIN_ISR]) if shared else {}
    minimum = {topic: int(settings.get(_MIN_ISR) or 1) for topic, settings in found.items()}
    told = reports(call.cluster, call.pool, "restart")
    items = []
    for broker_id in sorted(call.cluster.brokers):
        report = told.get(broker_id)
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
    """While this broker is away: which partitions another leads, nobody leads, or take no acks=all."""
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
        "unavailable_names": sorted(unavailable)[:_NAMED_MAX],
        "refusing": len(refusing),
        "refusing_names": sorted(refusing)[:_NAMED_MAX],
    }
