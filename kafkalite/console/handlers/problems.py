"""Present problems of a cluster as one list: a severity, a sentence, a time since when, and the page with details.

The worst come first, and of one severity problems that stop clients before lags. A lag counts if it has grown in each
sample of the last minute, by more than some records; that of a group without members is no warning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkalite.client.broker_reports import reports
from kafkalite.client.transaction_admin import ONGOING, TransactionAdmin, partitions_of
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.names import NO_LEADER
from kafkalite.console.brokers.topics import places_by_topic, settings_of
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
MIN_ISR = "min.insync.replicas"
_NOT_AUTHORIZED = "AUTHORIZATION_FAILED"
_OPEN_MS = 60_000
_ASK_S = 10.0
_ORDER = {CRITICAL: 0, WARNING: 1, INFO: 2}


def problems_of(cluster: ClusterClient, pool: BrokerPool, history: History) -> list[Row]:
    """The present problems, the worst first."""
    found = [
        *_of_brokers(cluster),
        *_of_partitions(cluster),
        *_of_inventory(pool),
        *_of_reports(cluster, pool),
        *_of_transactions(cluster),
        *_of_groups(cluster, pool, history),
    ]
    since_ms = pool.first_seen.of(
        [(one["kind"], one["sentence"] if one["link"] is None else one["link"]) for one in found]
    )
    for one, seen_ms in zip(found, since_ms, strict=True):
        one["since_ms"] = min(seen_ms, one["since_ms"] or seen_ms)
    return sorted(found, key=lambda one: _ORDER[one["severity"]])


def _problem(severity: str, kind: str, sentence: str, link: str, since_ms: int | None = None) -> Row:
    return {"severity": severity, "kind": kind, "sentence": sentence, "link": link, "since_ms": since_ms}


def _group_link(group_id: str) -> str:
    return f"/group?group_id={quote(group_id, safe='')}"


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
    settings = settings_of(cluster, lagging[:500], [MIN_ISR])
    for topic, places in places_by_topic(cluster).items():
        minimum = int(settings.get(topic, {}).get(MIN_ISR) or 1)
        few = [index for index, place in places.items() if place.leader != NO_LEADER and len(place.isr) < minimum]
        if topic in settings and few:
            text = f"{topic}-{_listed(few)}: fewer replicas in sync than {MIN_ISR}={minimum}; acks=all is refused"
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
        if _NOT_AUTHORIZED not in complaint:
            yield _problem(INFO, "unknown", complaint, "/storage")
    if any(_NOT_AUTHORIZED in complaint for complaint in inventory.complaints):
        text = "you lack DESCRIBE on the cluster: sizes, connections and rebalances are not known, nor all groups"
        yield _problem(INFO, "not_permitted", text, "/storage")


def _of_reports(cluster: ClusterClient, pool: BrokerPool) -> Iterator[Row]:
    for answers in reports(cluster, pool, "rebalances").values():
        for group in answers["groups"][:_NAMED_MAX]:
            if group["waited_ms"] >= 5_000:
                link = _group_link(group["group_id"])
                yield _problem(WARNING, "group_waits", group["sentence"], link, group["since_ms"])
    answering = reports(cluster, pool, "broker")
    if answering:
        for silent in sorted(set(cluster.brokers) - set(answering))[:_NAMED_MAX]:
            yield _problem(CRITICAL, "broker_silent", f"broker {silent} does not answer", "/cluster")
    for broker_id, answers in answering.items():
        if answers["cleaner_problem"] is not None:
            yield _problem(WARNING, "cleaner", f"broker {broker_id}: {answers['cleaner_problem']}", "/compaction")


def _of_transactions(cluster: ClusterClient) -> Iterator[Row]:
    """Transactions that have been open for long: consumers of committed records stop at their first records."""
    admin = TransactionAdmin(cluster, _ASK_S)
    with suppress(Unanswered, ConfigError):
        for listed in admin.list_transactions(states=[ONGOING])[:_NAMED_MAX]:
            described = admin.describe(listed.transactional_id)
            started_ms = -1 if described is None else described[1].transaction_start_time_ms
            open_ms = int(time.time() * 1000) - started_ms
            if described is None or started_ms < 0 or open_ms < _OPEN_MS:
                continue
            places = [f"{topic}-{index}" for topic, index in sorted(partitions_of(described[1]))]
            where = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
            text = (
                f"transaction {listed.transactional_id} is open and holds back read_committed consumers of "
                f"{where or 'its partitions'}"
            )
            yield _problem(WARNING, "transaction_open", text, "/clients?show=transactions", started_ms)


def _of_groups(cluster: ClusterClient, pool: BrokerPool, history: History) -> Iterator[Row]:
    for group_id, (count, within_ms) in list(history.unstable_groups().items())[:_NAMED_MAX]:
        text = f"group {group_id} rebalances again and again: {count} generations in {max(1, within_ms // 1000)} s"
        yield _problem(WARNING, "group_unstable", text, _group_link(group_id))
    rows: dict[str, Row] = {}
    with suppress(Unanswered, ConfigError):
        rows = {row["group_id"]: row for row in pool.groups.get(cluster)}
    for row in [row for row in rows.values() if row["beyond_end"]][:_NAMED_MAX]:
        text = f"group {row['group_id']} has committed offsets beyond the end of {row['beyond_end']} partitions"
        yield _problem(WARNING, "beyond_end", text, _group_link(row["group_id"]))
    for group_id, (before, now) in list(history.growing_lags().items())[:_NAMED_MAX]:
        is_read = rows.get(group_id, {}).get("state") != "Empty"
        text = f"lag of group {group_id} is growing: {before:,} to {now:,} in 60 s"
        if not is_read:
            text += "; the group has no members"
        yield _problem(WARNING if is_read else INFO, "lag_growing", text, _group_link(group_id))
