"""/api/reassignments, /api/elections, /api/brokers/ID/config: partitions moved, leaders elected, brokers configured."""

from __future__ import annotations

from kafkalite.client.described_configs import BROKER_RESOURCE
from kafkalite.client.placement import PREFERRED, UNCLEAN, alter_reassignments, elect_leaders, list_reassignments
from kafkalite.client.topic_changes import alter_configs
from kafkalite.console.brokers.topics import config_rows, places_of, require_partition
from kafkalite.console.calls.route import Call
from kafkalite.console.request.parameters import Row, invalid, not_found, refused, texts_of

KINDS = {"preferred": PREFERRED, "unclean": UNCLEAN}


def reassignments(call: Call) -> Row:
    return {"items": [one._asdict() for one in list_reassignments(call.cluster.controller())]}


def start_reassignment(call: Call) -> Row:
    """Moves some partitions of a topic to the same replicas; null cancels their moves."""
    topic, replicas = call.body["topic"], call.body["replicas"]
    places = places_of(call.cluster, topic)
    for index in call.body["partitions"]:
        require_partition(places, topic, index)
    if replicas is not None:
        if not replicas or len(set(replicas)) != len(replicas):
            raise invalid("replicas: one or more brokers, each once")
        if unknown := sorted(set(replicas) - set(call.cluster.brokers)):
            raise not_found(f"broker {unknown[0]} not found")
    wanted = {(topic, index): replicas for index in call.body["partitions"]}
    if not wanted:
        raise invalid("no partition is chosen")
    reasons = alter_reassignments(call.cluster.controller(), wanted)
    refusals = [f"{name}-{index} is not moved: {why}" for (name, index), why in sorted(reasons.items())]
    call.pool.changed()
    if refusals:
        raise refused("; ".join(refusals))
    return {"ok": True, "partitions": sorted(call.body["partitions"])}


def elect(call: Call) -> Row:
    """Elects leaders of some partitions of a topic, of all of its, or of all partitions of the cluster."""
    topic, chosen = call.body["topic"], call.body["partitions"]
    kind = KINDS[call.body["kind"]]
    keys = None
    if topic is not None:
        places = places_of(call.cluster, topic)
        for index in chosen or ():
            require_partition(places, topic, index)
        keys = [(topic, index) for index in (places if chosen is None else chosen)]
    elif chosen is not None:
        raise invalid("partitions need a topic")
    elif kind == UNCLEAN:
        raise invalid("an unclean election needs a topic")
    elected, refusals = elect_leaders(call.cluster, keys, kind, call.timeout_s)
    call.pool.changed()
    if refusals and not elected:
        raise refused("; ".join(refusals[:10]))
    return {"ok": True, "elected": elected, "refusals": refusals}


def broker_config(call: Call) -> Row:
    return {"items": config_rows(call.cluster, str(_broker(call)), BROKER_RESOURCE)}


def alter_broker_config(call: Call) -> Row:
    """Sets and resets dynamic settings of a broker, or of all (`all`)."""
    broker = _broker(call)
    changed, reset = texts_of(call.body["set"]), call.body["reset"] or []
    if not changed and not reset:
        raise invalid("nothing to change: set and reset are both empty")
    refusals = alter_configs(
        call.cluster,
        "" if call.body["all"] else str(broker),
        changed,
        reset,
        validate_only=call.body["validate_only"],
        resource_type=BROKER_RESOURCE,
    )
    if refusals:
        raise refused("; ".join(refusals))
    return {"ok": True}


def _broker(call: Call) -> int:
    broker: int = call.path["broker"]
    if broker not in call.cluster.brokers:
        raise not_found(f"broker {broker} not found")
    return broker
