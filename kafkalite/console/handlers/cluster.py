"""The brokers themselves: compaction, storage, leaders, connections, requests, transactions; mirrors to them."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

from kafkalite.client.broker_reports import report, reports
from kafkalite.client.transaction_admin import ONGOING, TransactionAdmin, partitions_of
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.console.brokers.inventory import Inventory, PartitionFacts
from kafkalite.console.brokers.topics import places_by_topic, places_of, require_partition, settings_of
from kafkalite.console.calls.route import Call
from kafkalite.console.request.parameters import Row, not_found, paged
from kafkalite.protocol.messages.cleaner import CleanerPass

_LARGEST = 50
_INVENTORY_WAIT_S = 3.0
_COMPACTION_SORTABLE = ("topic", "partition", "dirty_ratio", "dirty_bytes", "last_cleaned_ms", "size_bytes", "state")
_CLIENTS_SORTABLE = ("client_id", "host", "software", "requests", "connected_ms", "broker", "user", "idle_ms")
_MIRRORS_SORTABLE = ("source", "address", "lag", "records_per_s", "latency_ms", "partitions", "last_error_ms")
_TRANSACTIONS_SORTABLE = ("transactional_id", "state", "producer_id", "started_ms", "coordinator")


def _inventory(call: Call) -> Inventory | None:
    return call.pool.inventory.get(_INVENTORY_WAIT_S)


# compaction


def compaction(call: Call) -> Row:
    """Every compacted partition, with the status of its leader's cleaner."""
    inventory = _inventory(call)
    is_internal = call.cluster.internal.__contains__
    rows = [
        _cleaning_row(key[0], key[1], facts)
        for key, facts in (inventory.partitions.items() if inventory is not None else ())
        if facts.cleaning is not None
        and (
            key[0] == call.query["topic"] if call.query["topic"] else call.query["internal"] or not is_internal(key[0])
        )
    ]
    page = paged(rows, call.query, sortable=_COMPACTION_SORTABLE, searched=("topic",))
    shown = sorted({row["topic"] for row in page["items"]})
    settings = settings_of(call.cluster, shown, ["min.cleanable.dirty.ratio"]) if shown else {}
    for row in page["items"]:
        text = settings.get(row["topic"], {}).get("min.cleanable.dirty.ratio")
        row["min_dirty_ratio"] = None if text is None else float(text)
    page["cleaner_is_off"] = None if inventory is None else inventory.cleaner_is_off
    return page


def _cleaning_row(topic: str, index: int, facts: PartitionFacts) -> Row:
    one = facts.cleaning
    assert one is not None
    return {
        "topic": topic,
        "partition": index,
        "broker": facts.broker,
        "size_bytes": facts.size_bytes,
        "clean_bytes": one.clean_bytes,
        "dirty_bytes": one.dirty_bytes,
        "uncleanable_bytes": one.uncleanable_bytes,
        "dirty_ratio": one.dirty_ratio_ppm / 1e6,
        "min_dirty_ratio": None,
        "state": one.state,
        "runs": one.runs,
        "last_cleaned_ms": None if one.last_run_ms < 0 else one.last_run_ms,
        "last_pass": None if one.last is None else _pass(one.last),
        "why_not": one.why_not,
        "error": one.error,
    }


def _pass(done: CleanerPass) -> Row:
    names = ("bytes_read", "bytes_kept", "records_read", "records_kept", "tombstones_dropped", "aborted_dropped")
    return {**{name: getattr(done, name) for name in names}, "duration_ms": done.total_ms}


# storage


def storage(call: Call) -> Row:
    inventory = _inventory(call)
    if inventory is None:
        return {"directories": [], "largest": []}
    largest = sorted(inventory.partitions.items(), key=lambda one: -(one[1].size_bytes or 0))[:_LARGEST]
    return {
        "directories": [asdict(one) for one in inventory.directories],
        "largest": [
            {
                "topic": topic,
                "partition": index,
                "broker": facts.broker,
                "directory": facts.directory,
                "size_bytes": facts.size_bytes,
                "segments": facts.segments,
            }
            for (topic, index), facts in largest
        ],
    }


def segments(call: Call) -> Row:
    topic, index = call.path["topic"], call.query["partition"]
    require_partition(places_of(call.cluster, topic), topic, index)
    leader = call.cluster.leader_of((topic, index))
    answers = report(call.cluster, call.pool, leader, "segments", topic=topic, partition=index)
    if answers is None:
        answers = {"start_offset": None, "end_offset": None, "items": None}
    return {"partition": index, "broker": leader, **answers}


def producers(call: Call) -> Row:
    topic, index = call.path["topic"], call.query["partition"]
    require_partition(places_of(call.cluster, topic), topic, index)
    found = TransactionAdmin(call.cluster, call.timeout_s).producers((topic, index))
    return {
        "items": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp_ms": one.last_timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                "transaction_start_offset": None if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
            }
            for one in found
        ]
    }


# cluster


def broker_rows(call: Call) -> list[Row]:
    cluster = call.cluster
    rows = []
    for broker_id, address in sorted(cluster.brokers.items()):
        host, _, port = address.rpartition(":")
        rows.append(
            {
                "id": broker_id,
                "host": host,
                "port": int(port),
                "rack": cluster.racks.get(broker_id),
                "is_controller": broker_id == cluster.controller_id,
            }
        )
    return rows


def cluster_map(call: Call) -> Row:
    cluster = call.cluster
    rows = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition": index,
                    "leader": None if place.leader < 0 else place.leader,
                    "leader_epoch": place.leader_epoch,
                    "replicas": list(place.replicas),
                    "isr": list(place.isr),
                    "is_under_replicated": len(place.isr) < len(place.replicas),
                }
                for index, place in places.items()
            ],
        }
        for topic, places in places_by_topic(cluster).items()
        if call.query["internal"] or topic not in cluster.internal
    ]
    page = paged(rows, call.query, sortable=("name",), searched=("name",))
    answers = reports(cluster, call.pool, "cluster")
    of_controller = answers.get(cluster.controller_id) or next(iter(answers.values()), None) or {}
    brokers = [{**row, **_own_view(answers.get(row["id"]) or {})} for row in broker_rows(call)]
    return {
        "cluster_id": cluster.cluster_id,
        "kind": call.pool.kind_of(cluster),
        "controller_id": cluster.controller_id if cluster.controller_id >= 0 else None,
        "controller_epoch": of_controller.get("controller_epoch"),
        "zookeeper": _zookeeper(of_controller.get("zookeeper")),
        "brokers": brokers,
        "topics": page.pop("items"),
        **page,
    }


def _own_view(answers: Row) -> Row:
    """A broker's report about itself and about ZooKeeper; each None if it has none."""
    zookeeper = answers.get("zookeeper") or {}
    return {
        "epoch": answers.get("broker_epoch"),
        "registration": answers.get("registration"),
        "is_intact": answers.get("is_intact"),
        "is_stopping": answers.get("is_stopping"),
        "sees_controller": answers.get("controller_id"),
        "zookeeper_state": zookeeper.get("state"),
        "zookeeper_transaction": zookeeper.get("transaction"),
        "sees_brokers": zookeeper.get("brokers"),
    }


def _zookeeper(answers: Row | None) -> Row | None:
    if answers is None:
        return None
    return {"connect": answers["connect"], "state": answers["state"], "transaction": answers["transaction"]}


# clients


def clients(call: Call) -> Row:
    answers = _of_brokers(call, "connections")
    rows = [{"broker": broker_id, **row} for broker_id, one in answers.items() for row in one["items"]]
    page = paged(rows, call.query, sortable=_CLIENTS_SORTABLE, searched=("client_id", "host", "software", "user"))
    return {**page, "known": bool(answers)}


def slow_requests(call: Call) -> Row:
    answers = reports(call.cluster, call.pool, "slow_requests")
    rows = [{"broker": broker_id, **row} for broker_id, one in answers.items() for row in one["items"]]
    rows.sort(key=lambda row: -row["took_ms"])
    return {"known": bool(answers), "items": rows[:500]}


def _of_brokers(call: Call, kind: str) -> dict[int, Any]:
    wanted = call.query["broker"]
    return {
        broker_id: one
        for broker_id, one in reports(call.cluster, call.pool, kind).items()
        if wanted in (None, broker_id)
    }


# transactions


def transactions(call: Call) -> Row:
    """The transactions; only those of the page are described."""
    admin = TransactionAdmin(call.cluster, call.timeout_s)
    rows: list[Row] = [
        {
            "transactional_id": one.transactional_id,
            "state": one.state,
            "producer_id": one.producer_id,
            "producer_epoch": None,
            "can_abort": one.state == ONGOING,
            "coordinator": one.coordinator,
            "started_ms": None,
            "timeout_ms": None,
            "partitions": None,
        }
        for one in admin.list_transactions()
    ]
    page = paged(rows, call.query, sortable=_TRANSACTIONS_SORTABLE, searched=("transactional_id",))
    for row in page["items"]:
        with contextlib.suppress(ConfigError, Unanswered):
            described = admin.describe(row["transactional_id"])
            if described is None:
                continue
            one = described[1]
            row.update(
                producer_epoch=one.producer_epoch,
                started_ms=None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
                timeout_ms=one.transaction_timeout_ms,
                partitions=[{"topic": topic, "partition": index} for topic, index in sorted(partitions_of(one))],
            )
    return page


def abort_transaction(call: Call) -> Row:
    """Aborts the open transaction of a transactional id, and fences its producer."""
    transactional_id = call.body["transactional_id"]
    TransactionAdmin(call.cluster, call.timeout_s).fence(transactional_id)
    return {"ok": True, "transactional_id": transactional_id}


# mirrors


def mirrors(call: Call) -> Row:
    """The sources of each mirror process; one that does not answer has a fault."""
    if call.mirrors is None:
        raise not_found("this console knows no mirrors; start it with --mirrors http://HOST:PORT")
    rows = call.mirrors.rows()
    return paged(rows, call.query, sortable=_MIRRORS_SORTABLE, searched=("source", "address", "last_error", "fault"))
