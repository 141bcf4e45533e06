"""The data of Kafka's znodes: values to bytes and back.

Data are written as Kafka 3.9 writes them (2.7 can read them), and read as 2.7 to 3.9 and their tools write them.
Unknown keys are ignored, as in Kafka. Invalid data raise ValueError with one line, without the path; the
reader of the node logs it.
The node of a registration is our own; Kafka does not have it.
Source: kafka.zk.ZkData (every node and its versions), kafka.cluster.Broker, and for the change notifications
kafka.server.ZkConfigManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID, TopicPartition, format_uuid, parse_uuid
from kafkalite.config.listeners import ListenerConfig, parse_listeners
from kafkalite.zk.znodes import json_object as js
from kafkalite.zk.znodes.json_object import INT32_MAX

NO_KRAFT = -1  # the KRaft epoch of a controller in ZooKeeper mode
_STATES_MAX = 1024  # that are remembered
RECOVERED = 0
RECOVERING = 1  # the leader was elected although it was not in sync, and has not taken note of it yet (KIP-704)


class BrokerNode(NamedTuple):
    """/brokers/ids/N. `endpoints` may have protocols that kafkalite does not speak."""

    endpoints: tuple[ListenerConfig, ...]
    rack: str | None = None
    timestamp_ms: int = 0


class RegistrationNode(NamedTuple):
    """/kafkalite/registrations/N; the node's version is the number of the registration (KIP-903). `stopping`: the
    broker is about to leave. `intact`: when it registered it had all records that it had before."""

    stopping: bool = False
    intact: bool = False


class TopicNode(NamedTuple):
    """/brokers/topics/T. `partitions` are the replicas by partition number; so are `adding` and `removing`, which are
    not empty during a reassignment."""

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: uuid.UUID | None = None
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)


class StateNode(NamedTuple):
    """/brokers/topics/T/partitions/P/state; the node's version is the partition epoch. `elr` are replicas besides the
    ISR that may be elected (KIP-966); Kafka ignores them, and writes the node without."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery: int = RECOVERED
    elr: tuple[int, ...] = ()


class ProducerIdBlockNode(NamedTuple):
    broker_id: int
    ids: range


def broker_json(broker: BrokerNode) -> bytes:
    """Writes version 5. Has host and port of the first PLAINTEXT endpoint, for clients of before 0.9."""
    plain = next((each for each in broker.endpoints if each.protocol == "PLAINTEXT"), None)
    value = {
        "listener_security_protocol_map": {each.name: each.protocol for each in broker.endpoints},
        "endpoints": [str(each) for each in broker.endpoints],
        "jmx_port": -1,
        "features": {},
        "host": plain.host if plain is not None else None,
        "timestamp": str(broker.timestamp_ms),
        "port": plain.port if plain is not None else -1,
        "version": 5,
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    return js.encode(value)


def parse_broker(data: bytes) -> BrokerNode:
    """Reads versions 1 (host and port) to 5 (features, which are ignored)."""
    source = js.parse(data)
    if js.integer(source, "version", 1) == 1:
        host, port = js.text(source, "host"), js.integer(source, "port", 0, 65_535)
        endpoints: tuple[ListenerConfig, ...] = (ListenerConfig("PLAINTEXT", host, port),)
    else:
        endpoints = _endpoints(source)
    timestamp_ms = js.long_text(source, "timestamp", -1) if "timestamp" in source else 0
    return BrokerNode(endpoints, js.optional_text(source, "rack"), timestamp_ms)


def _endpoints(source: js.JsonObject) -> tuple[ListenerConfig, ...]:
    protocols = {
        js.as_text(name, "a listener's name").upper(): js.as_text(protocol, "a protocol")
        for name, protocol in js.object_of(source, "listener_security_protocol_map").items()
    }
    found = []
    for text in js.list_of(source, "endpoints"):
        for listener in parse_listeners(js.as_text(text, "an endpoint")):
            protocol = protocols.get(listener.name, listener.name if not protocols else None)
            if protocol is None:
                raise ValueError(f"the listener {listener.name} has no security protocol")
            found.append(listener._replace(protocol=protocol))
    return tuple(found)


def registration_json(registration: RegistrationNode) -> bytes:
    return js.encode({"version": 1, "stopping": registration.stopping, "intact": registration.intact})


def parse_registration(data: bytes) -> RegistrationNode:
    source = js.parse(data)
    return RegistrationNode(js.boolean(source, "stopping"), js.boolean(source, "intact"))


def topic_json(topic: TopicNode) -> bytes:
    """Writes version 3, with or without an id: the controller gives an id to a topic without one."""
    value = {
        "partitions": _assignment_json(topic.partitions),
        "adding_replicas": _assignment_json(topic.adding),
        "removing_replicas": _assignment_json(topic.removing),
        "version": 3,
    }
    if topic.topic_id is not None:
        value["topic_id"] = format_uuid(topic.topic_id)
    return js.encode(value)


def _assignment_json(assignment: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(number): list(replicas) for number, replicas in assignment.items()}


def parse_topic(data: bytes) -> TopicNode:
    """Reads versions 1 (partitions only), 2 (reassignments) and 3 (with an id, which may be missing)."""
    source = js.parse(data)
    text = js.optional_text(source, "topic_id")
    topic_id = None
    if text is not None:
        topic_id = parse_uuid(text)
        if topic_id == ZERO_UUID or format_uuid(topic_id) != text:
            raise ValueError(f"topic_id {js.literal(text)} is none")
    js.as_object(source.get("partitions"), "partitions")  # required; the other two may be missing
    return TopicNode(
        _assignment(source, "partitions"),
        topic_id,
        _assignment(source, "adding_replicas"),
        _assignment(source, "removing_replicas"),
    )


def _assignment(source: js.JsonObject, key: str) -> dict[int, tuple[int, ...]]:
    return {
        js.number_key(number, "partition"): js.as_integers(replicas, f"{key} of {js.literal(number)}")
        for number, replicas in js.object_of(source, key).items()
    }


def state_json(state: StateNode) -> bytes:
    value: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovery != RECOVERED:
        value["leader_recovery_state"] = state.recovery
    if state.elr:
        value["elr"] = list(state.elr)
    return js.encode(value)


@lru_cache(maxsize=_STATES_MAX)
def parse_state(data: bytes) -> StateNode:
    """Thousands of partitions have few different data: 4 of 8 us for one that a broker reads."""
    source = js.parse(data)
    return StateNode(
        js.integer(source, "leader", -2),  # -2: the topic is being deleted
        js.integer(source, "leader_epoch", 0),
        js.integers(source, "isr"),
        js.integer(source, "controller_epoch", 0),
        js.integer(source, "leader_recovery_state", 0, 1) if "leader_recovery_state" in source else RECOVERED,
        js.integers(source, "elr") if "elr" in source else (),
    )


def config_json(config: Mapping[str, str]) -> bytes:
    return js.encode({"version": 1, "config": dict(config)})


def parse_config(data: bytes) -> dict[str, str]:
    """No data, or no "config", mean no settings, as in Kafka."""
    if not data:
        return {}
    source = js.parse(data)
    return {
        js.as_text(name, "a name"): js.as_text(value, js.literal(name))
        for name, value in js.object_of(source, "config").items()
    }


def config_change_json(entity_path: str) -> bytes:
    """`entity_path` is the path below /config/: topics/orders, users/bob/clients/app."""
    return js.encode({"version": 2, "entity_path": entity_path})


def controller_json(broker_id: int, timestamp_ms: int) -> bytes:
    return js.encode(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": NO_KRAFT}
    )


def parse_controller(data: bytes) -> int:
    """The broker's id."""
    return js.integer(js.parse(data), "brokerid", 0)


def controller_epoch_text(epoch: int) -> bytes:
    return b"%d" % epoch


def parse_controller_epoch(data: bytes) -> int:
    epoch = js.decimal(data, "the controller's epoch", INT32_MAX)
    if epoch < 0:
        raise ValueError(f"the controller's epoch is {epoch}")
    return epoch


def cluster_id_json(cluster_id: str) -> bytes:
    """The version is a string, as in no other node."""
    return js.encode({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    return js.text(js.parse(data), "id")


def producer_id_block_json(block: ProducerIdBlockNode) -> bytes:
    """Both ends belong to the block. They are strings, since they have 64 bits."""
    first, last = block.ids[0], block.ids[-1]
    return js.encode({"version": 1, "broker": block.broker_id, "block_start": str(first), "block_end": str(last)})


def parse_producer_id_block(data: bytes) -> ProducerIdBlockNode | None:
    """None before the first block, when the node has no data."""
    if not data:
        return None
    source = js.parse(data)
    first, last = js.long_text(source, "block_start"), js.long_text(source, "block_end")
    if last < first:
        raise ValueError(f"a block of producer ids from {first} to {last}")
    return ProducerIdBlockNode(js.integer(source, "broker"), range(first, last + 1))


def partitions_json(partitions: Iterable[TopicPartition]) -> bytes:
    """/admin/preferred_replica_election, and a notification that leaders have changed their ISRs."""
    return js.encode(
        {"version": 1, "partitions": [{"topic": name, "partition": number} for name, number in partitions]}
    )


def reassignment_json(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """/admin/reassign_partitions."""
    rows = [
        {"topic": name, "partition": number, "replicas": list(target)} for (name, number), target in targets.items()
    ]
    return js.encode({"version": 1, "partitions": rows})


def parse_partitions(data: bytes) -> list[TopicPartition]:
    """The partitions in data of `partitions_json`."""
    rows = js.list_of(js.parse(data), "partitions")
    return [_topic_partition(js.as_object(row, "a partition")) for row in rows]


def parse_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """/admin/reassign_partitions: the target replicas."""
    found = {}
    for row in js.list_of(js.parse(data), "partitions"):
        source = js.as_object(row, "a partition")
        found[_topic_partition(source)] = js.integers(source, "replicas")
    return found


def _topic_partition(source: js.JsonObject) -> TopicPartition:
    return js.text(source, "topic"), js.integer(source, "partition", 0)


def feature_json(features: Mapping[str, int]) -> bytes:
    """/feature, version 2, enabled: the highest level of each feature."""
    levels = {name: {"max_version_level": level} for name, level in features.items()}
    return js.encode({"version": 2, "status": 1, "features": levels})


def parse_feature(data: bytes) -> tuple[bool, dict[str, int]]:
    """Whether features are enabled, and their levels. Version 1 has lowest levels, too, which are ignored."""
    source = js.parse(data)
    js.integer(source, "version", 1, 2)
    status = js.integer(source, "status", 0, 1)
    levels = {
        js.as_text(name, "a feature"): js.integer(
            js.as_object(level, js.literal(name)), "max_version_level", 1, (1 << 15) - 1
        )
        for name, level in js.object_of(source, "features").items()
    }
    return bool(status), levels
