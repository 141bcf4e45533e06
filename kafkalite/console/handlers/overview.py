"""/api/overview, /api/problems, /api/history, /api/restart: the cluster at a glance.

The problems are one list of present faults: a severity, a sentence, and the page with the details. A restart is
described by broker: the state of partitions while it lasts, and how much recovery reads after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kafkalite.client.broker_reports import reports
from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.client.group_rows import sum_known
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.console.brokers.inventory import Inventory
from kafkalite.console.brokers.topics import places_by_topic, settings_of
from kafkalite.console.calls.route import Call
from kafkalite.console.handlers.cluster import broker_rows
from kafkalite.console.request.parameters import Row

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient
    from kafkalite.client.history import History
    from kafkalite.console.brokers.broker_pool import BrokerPool


CRITICAL, WARNING, INFO = "critical", "warning", "info"
_NAMED_MAX = 20  # topics or groups of one kind of problem
_DISK_WARNING, _DISK_CRITICAL = 0.85, 0.95
_SKEW = 2.0  # times the fair share of leaders
_SKEW_PARTITIONS_MIN = 20
_MIN_ISR = "min.insync.replicas"
_ORDER = {CRITICAL: 0, WARNING: 1, INFO: 2}


def problems_of(cluster: ClusterClient, pool: BrokerPool, history: History) -> list[Row]:
    """The present problems, the worst first."""
    found = [*_of_brokers(cluster), *_of_partitions(cluster), *_of_inventory(pool), *_of_reports(cluster, pool)]
    for group_id, (before, now) in list(history.growing_lags().items())[:_NAMED_MAX]:
        text = f"the lag of group {group_id} grows: {before:,}, now {now:,}"
        found.append(_problem(WARNING, "lag_growing", text, f"/group?group_id={quote(group_id, safe='')}"))
    return sorted(found, key=lambda one: _ORDER[one["severity"]])


def _problem(severity: str, kind: str, sentence: str, link: str) -> Row:
    return {"severity": severity, "kind": kind, "sentence": sentence, "link": link}


def _of_brokers(cluster: ClusterClient) -> Iterator[Row]:
    if cluster.controller_id not in cluster.brokers:
        yield _problem(CRITICAL, "no_controller", "the cluster has no controller: nothing can change", "/cluster")
    known = {replica for place in cluster.places.values() for replica in place.replicas}
    for missing in sorted(known - set(cluster.brokers))[:_NAMED_MAX]:
        yield _problem(CRITICAL, "broker_away", f"broker {missing} is not in the cluster", "/cluster")
    led = [place.leader for place in cluster.places.values() if place.leader != NO_LEADER]
    if len(cluster.brokers) > 1 and len(led) >= _SKEW_PARTITIONS_MIN:
        fair = len(led) / len(cluster.brokers)
        for broker_id in sorted(cluster.brokers):
            if (count := led.count(broker_id)) > _SKEW * fair:
                text = f"broker {broker_id} leads {count} of {len(led)} partitions, its share is {fair:.0f}"
                yield _problem(INFO, "skewed", text, "/cluster")


def _of_partitions(cluster: ClusterClient) -> Iterator[Row]:
    lagging: list[str] = []
    for topic, places in places_by_topic(cluster).items():
        link = f"/topics/{quote(topic)}"
        if offline := [index for index, place in places.items() if place.leader == NO_LEADER]:
            yield _problem(CRITICAL, "offline", f"no broker leads {topic}-{_listed(offline)}", link)
        under = [index for index, place in places.items() if len(place.isr) < len(place.replicas)]
        if not under:
            continue
        lagging.append(topic)
        if len(lagging) <= _NAMED_MAX:
            text = f"{topic}-{_listed(under)}: not all replicas are in sync"
            yield _problem(WARNING, "under_replicated", text, link)
    yield from _under_min_isr(cluster, lagging)


def _under_min_isr(cluster: ClusterClient, lagging: list[str]) -> Iterator[Row]:
    """Problems of topics with replicas that are not in sync."""
    if not lagging:
        return
    settings = settings_of(cluster, lagging[:500], [_MIN_ISR])
    for topic, places in places_by_topic(cluster).items():
        minimum = int(settings.get(topic, {}).get(_MIN_ISR) or 1)
        few = [index for index, place in places.items() if place.leader != NO_LEADER and len(place.isr) < minimum]
        if topic in settings and few:
            text = f"{topic}-{_listed(few)}: fewer replicas in sync than {_MIN_ISR}={minimum}; acks=all is refused"
            yield _problem(CRITICAL, "under_min_isr", text, f"/topics/{quote(topic)}")


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def _of_inventory(pool: BrokerPool) -> Iterator[Row]:
    inventory = pool.inventory.get()
    if inventory is None:
        return
    for one in inventory.directories:
        where = f"{one.path} of broker {one.broker}"
        if one.error is not None:
            yield _problem(CRITICAL, "directory_failed", f"{where}: {one.error}", "/storage")
        elif one.total_bytes and one.free_bytes is not None:
            used = 1 - one.free_bytes / one.total_bytes
            if used >= _DISK_WARNING:
                severity = CRITICAL if used >= _DISK_CRITICAL else WARNING
                yield _problem(severity, "disk_full", f"the disk of {where} is {used:.0%} full", "/storage")
    stuck = [key for key, facts in inventory.partitions.items() if facts.cleaning is not None and facts.cleaning.error]
    for topic, index in stuck[:_NAMED_MAX]:
        facts = inventory.partitions[topic, index]
        text = f"{topic}-{index} cannot be compacted: {facts.cleaning.error if facts.cleaning else ''}"
        yield _problem(WARNING, "uncleanable", text, f"/topics/{quote(topic)}/compaction")
    for complaint in inventory.complaints[:_NAMED_MAX]:
        yield _problem(INFO, "unknown", complaint, "/storage")


def _of_reports(cluster: ClusterClient, pool: BrokerPool) -> Iterator[Row]:
    for answers in reports(cluster, pool, "rebalances").values():
        for group in answers["groups"][:_NAMED_MAX]:
            if group["waited_ms"] >= 5_000:
                link = f"/group?group_id={quote(group['group_id'], safe='')}"
                yield _problem(WARNING, "group_waits", group["sentence"], link)
    for broker_id, answers in reports(cluster, pool, "broker").items():
        yield from _of_broker(broker_id, answers)


def _of_broker(broker_id: int, answers: dict[str, Any]) -> Iterator[Row]:
    if answers["cleaner_problem"] is not None:
        yield _problem(WARNING, "cleaner", f"broker {broker_id}: {answers['cleaner_problem']}", "/compaction")


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
    found = settings_of(call.cluster, shared, [_MIN_ISR]) if shared else {}
    minimum = {topic: int(settings.get(_MIN_ISR) or 1) for topic, settings in found.items()}
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
