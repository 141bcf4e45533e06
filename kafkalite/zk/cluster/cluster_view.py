"""The state of the whole cluster in memory, built from nodes of ZooKeeper. Pure: no I/O.

    changes = view.apply([("/brokers/topics/orders", node), ("/brokers/ids/3", None)])     # None: there is no such node

Nodes may come in any order: a topic before the states of its partitions, or after them. A topic is in `topics` when it
has an id. A node never replaces a newer one (by the transaction that wrote it). A node that cannot be parsed is a
fault, and its last value stays.
Source: kafka.controller.ControllerContext, kafka.zk.ZkData.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition, format_uuid, topic_name_fault
from kafkalite.metadata.cluster_metadata import (
    CLUSTER_DEFAULT,
    NO_CONTROLLER,
    NO_REGISTRATION,
    BrokerRecord,
    Change,
    PartitionRecord,
    TopicRecord,
)
from kafkalite.metadata.partition_state import IsrState, in_order
from kafkalite.security.acl.acl import Entry, Resource
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.zk.client.operations import Check, Node
from kafkalite.zk.znodes import security_nodes, znode_data, znode_paths

T = TypeVar("T")
NO_EPOCH = -1  # of a partition without a state node
_NONE: Mapping[Any, Any] = MappingProxyType({})
_KEEPS_ALL = MappingProxyType({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})


class Known(NamedTuple, Generic[T]):
    """A node and its parsed value."""

    value: T
    node: Node


class Fault(NamedTuple):
    """A node that cannot be parsed."""

    path: str
    reason: str


class ClusterView:
    """See the module. The mappings are live views; only `apply` changes them.

    `topics`, `brokers`, `broker_configs`, `acls` and `delegation_tokens` are those of `ClusterMetadata`. `assignments`
    has every topic node, also without an id; `without_id` has the topics whose node has none: kafka-topics of 2.7
    writes it so, and the topic keeps its earlier id. `states` has every state node, by topic and number. `deletions`
    has topics whose deletion is requested and not yet carried out. `last_epochs` has the leader epochs of partitions
    whose state nodes were deleted while their topics stayed. `registrations` has the numbers of all brokers that ever
    registered. `deletion_fence` goes with every write that is bound to the version of a topic's or a partition's node:
    that node may be one of another topic of the same name by now, and its version the same again.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.brokers: dict[int, BrokerRecord] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.entity_configs: dict[str, Mapping[str, str]] = {}
        self.acls: dict[Resource, tuple[Entry, ...]] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.assignments: dict[str, Known[znode_data.TopicNode]] = {}
        self.without_id: set[str] = set()
        self.states: dict[str, dict[int, Known[znode_data.StateNode]]] = {}
        self.last_epochs: dict[str, dict[int, int]] = {}
        self.registrations: dict[int, Known[znode_data.RegistrationNode]] = {}
        self.deletions: set[str] = set()
        self.deletion_fence: tuple[Check, ...] = ()  # fails if a topic was deleted after the last `complete_deletions`
        self.controller: Known[int] | None = None
        self.controller_epoch: Known[int] | None = None
        self.last_transaction = -1  # the latest that wrote one of the nodes
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._broker_nodes: dict[int, Known[znode_data.BrokerNode]] = {}
        self._nodes: dict[str, Node] = {}
        self._faults: list[Fault] = []
        self._changed_topics: dict[str, set[int] | None] = {}  # the partitions of changed states; None: anything
        self._changes: list[tuple[Change, str]] = []

    @property
    def controller_id(self) -> int:
        return NO_CONTROLLER if self.controller is None else self.controller.value

    @property
    def paths(self) -> KeysView[str]:
        """The paths of all nodes, parsed or not."""
        return self._nodes.keys()

    @property
    def has_pending_topics(self) -> bool:
        """Whether `apply` has more topics to change in `topics`."""
        return bool(self._changed_topics)

    def node(self, path: str) -> Node | None:
        """The node at `path` as it was read last."""
        return self._nodes.get(path)

    def created(self, key: TopicPartition) -> tuple[int, int] | None:
        """The transactions that created the topic and the state of its partition; a new topic of the name has others.
        None if they are unknown."""
        topic, state = self.assignments.get(key[0]), self.states.get(key[0], {}).get(key[1])
        return None if topic is None or state is None else (topic.node.czxid, state.node.czxid)

    def complete_deletions(self, deletions: Node | None) -> None:
        """The view has everything up to this count of deleted topics."""
        self.deletion_fence = () if deletions is None else (Check(znode_paths.TOPIC_DELETIONS, deletions.version),)

    def take_faults(self) -> list[Fault]:
        """The faults since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def apply(
        self, nodes: Iterable[tuple[str, Node | None]] = (), topics_max: int | None = None
    ) -> list[tuple[Change, str]]:
        """Apply nodes, and return the changes for listeners, each once. With `topics_max` only so many topics change in
        `topics`; later calls follow with the others.

        A topic that was deleted and created again meanwhile is first only deleted, so that listeners see the deletion;
        the next call adds the new one. So call it until it returns no changes.
        """
        for path, node in nodes:
            self._ingest(path, node)
        if topics_max is None:
            changed, self._changed_topics = self._changed_topics, {}
        else:
            changed = {name: self._changed_topics.pop(name) for name in list(islice(self._changed_topics, topics_max))}
        for name, numbers in changed.items():
            self._changes += self._publish(name) if numbers is None else self._publish_states(name, numbers)
        changes, self._changes = self._changes, []
        return list(dict.fromkeys(changes))

    def _ingest(self, path: str, node: Node | None) -> None:
        known = self._nodes.get(path)
        if node is None:
            if known is None:
                return
            del self._nodes[path]
        elif known is not None and node.mzxid <= known.mzxid:
            return
        else:
            self._nodes[path] = node
            self.last_transaction = max(self.last_transaction, node.mzxid)
        try:
            self._parse(path, node)
        except ValueError as fault:
            self._faults.append(Fault(path, str(fault) or "is not understood"))

    def _parse(self, path: str, node: Node | None) -> None:
        """Raises ValueError, and then nothing has changed."""
        if (state := znode_paths.state_of(path)) is not None:
            self._ingest_state(*state, node)
        elif (entity := znode_paths.config_of(path)) is not None:
            self._ingest_config(*entity, node)
        elif (resource := security_nodes.resource_of(path)) is not None:
            self._ingest_acls(resource, node)
        elif (token_id := security_nodes.token_of(path)) is not None:
            self._ingest_token(token_id, node)
        elif (broker_id := znode_paths.broker_of(path)) is not None:
            self._ingest_broker(broker_id, node)
        elif (broker_id := znode_paths.registration_of(path)) is not None:
            self._ingest_registration(broker_id, node)
        elif (deleted := znode_paths.deleted_topic_of(path)) is not None:
            self.deletions.discard(deleted)
            if node is not None:
                self.deletions.add(deleted)
        elif (name := _topic_of(path)) is not None:
            self._ingest_topic(name, node)
        elif path == znode_paths.CONTROLLER:
            controller = Known(znode_data.parse_controller(node.data), node) if node is not None else None
            if controller != self.controller:
                self._changes.append((Change.CONTROLLER, ""))
            self.controller = controller
        elif path == znode_paths.CONTROLLER_EPOCH:
            self.controller_epoch = (
                Known(znode_data.parse_controller_epoch(node.data), node) if node is not None else None
            )

    def _ingest_topic(self, name: str, node: Node | None) -> None:
        if node is None:
            self.assignments.pop(name, None)
            self.without_id.discard(name)
            self._forget_beside(name)
        else:
            fault = topic_name_fault(name)
            if fault is not None:
                raise ValueError(fault)
            topic = znode_data.parse_topic(node.data)
            before = self.assignments.get(name)
            is_another = before is not None and before.node.czxid != node.czxid
            if is_another:
                before = None
            has_id = topic.topic_id is not None
            if not has_id and before is not None:
                topic = topic._replace(topic_id=before.value.topic_id)  # written by a tool without ids
            if before is not None and (known := before.value.topic_id) is not None and known != topic.topic_id:
                raise ValueError(f"its id was {format_uuid(known)}, and a topic keeps its id")
            _check_assignment(topic, before.value if before is not None else None)
            if is_another:
                self._forget(name, node.czxid)
            self.assignments[name] = Known(topic, node)
            (self.without_id.discard if has_id else self.without_id.add)(name)
        self._changed_topics[name] = None

    def _forget(self, name: str, created: int) -> None:
        """Remove the states and settings of a topic that is older than the one that this transaction created."""
        self._forget_beside(name)
        states = self.states.pop(name, {})
        if kept := {number: state for number, state in states.items() if state.node.czxid >= created}:
            self.states[name] = kept

    def _forget_beside(self, name: str) -> None:
        """Remove data that outlived their nodes until the topic was deleted."""
        self.last_epochs.pop(name, None)
        if znode_paths.config(znode_paths.CONFIG_TOPICS, name) not in self._nodes:
            self._topic_configs.pop(name, None)

    def _ingest_state(self, name: str, number: int, node: Node | None) -> None:
        if node is None:
            states = self.states.get(name, {})
            last = states.pop(number, None)
            if last is not None and name in self.assignments:
                self.last_epochs.setdefault(name, {})[number] = last.value.leader_epoch
            if not states:
                self.states.pop(name, None)
        else:
            self.states.setdefault(name, {})[number] = Known(znode_data.parse_state(node.data), node)
        numbers = self._changed_topics.setdefault(name, set())
        if numbers is not None:
            numbers.add(number)

    def _ingest_config(self, entity_type: str, entity: str, node: Node | None) -> None:
        if entity_type == znode_paths.CONFIG_TOPICS:
            self._changed_topics[entity] = None
            if node is not None:
                self._topic_configs.setdefault(
                    entity, _KEEPS_ALL
                )  # if these data cannot be parsed, and no earlier ones exist
                self._topic_configs[entity] = znode_data.parse_config(node.data)
            elif entity not in self.assignments:  # else it was deleted by hand, and the defaults might delete records
                self._topic_configs.pop(entity, None)
        elif entity_type == znode_paths.CONFIG_BROKERS:
            broker = CLUSTER_DEFAULT if entity == znode_paths.CONFIG_DEFAULT else entity
            self._replace_config(self.broker_configs, broker, node, Change.BROKER_CONFIG)
        else:
            self._replace_config(self.entity_configs, f"{entity_type}/{entity}", node, Change.ENTITY_CONFIG)

    def _replace_config(
        self, configs: dict[str, Mapping[str, str]], key: str, node: Node | None, change: Change
    ) -> None:
        config = znode_data.parse_config(node.data) if node is not None else _NONE
        before = configs.pop(key, _NONE)
        if config:
            configs[key] = config
        if config != before:
            self._changes.append((change, key))

    def _ingest_acls(self, resource: Resource, node: Node | None) -> None:
        entries = security_nodes.parse_acls(node.data) if node is not None else ()
        if entries:
            self.acls[resource] = entries
        else:
            self.acls.pop(resource, None)
        self._changes.append((Change.ACLS, resource.text))

    def _ingest_token(self, token_id: str, node: Node | None) -> None:
        if node is None:
            self.delegation_tokens.pop(token_id, None)
        else:
            self.delegation_tokens[token_id] = security_nodes.parse_token(node.data, token_id)
        self._changes.append((Change.DELEGATION_TOKEN, token_id))

    def _ingest_broker(self, broker_id: int, node: Node | None) -> None:
        if node is None:
            self._broker_nodes.pop(broker_id, None)
        else:
            self._broker_nodes[broker_id] = Known(znode_data.parse_broker(node.data), node)
        self._publish_broker(broker_id)

    def _ingest_registration(self, broker_id: int, node: Node | None) -> None:
        if node is None:
            self.registrations.pop(broker_id, None)
        else:
            self.registrations[broker_id] = Known(znode_data.parse_registration(node.data), node)
        self._publish_broker(broker_id)

    def _publish_broker(self, broker_id: int) -> None:
        before, known = self.brokers.get(broker_id), self._broker_nodes.get(broker_id)
        if known is not None:
            self.brokers[broker_id] = _broker(broker_id, known, self.registrations.get(broker_id))
        else:
            self.brokers.pop(broker_id, None)
        if before != self.brokers.get(broker_id):
            self._changes.append((Change.BROKERS, ""))

    def _publish(self, name: str) -> Iterator[tuple[Change, str]]:
        """Updates the topic in `topics`; returns the changes."""
        before, now = self.topics.get(name), self._record(name)
        if before is not None and (now is None or not _is_successor(before, now)):
            del self.topics[name]
            if now is not None:
                self._changed_topics[name] = None
            yield Change.TOPIC_DELETED, name
        elif now is not None:
            self.topics[name] = now
            if before is None:
                yield Change.TOPIC_CREATED, name
            elif before != now:
                yield from ((change, name) for change in _differences(before, now))

    def _publish_states(self, name: str, numbers: Collection[int]) -> Iterator[tuple[Change, str]]:
        """As `_publish`, if nothing but the states of these partitions has changed: the others, of which a topic may
        have thousands, are not compared."""
        topic, known = self.topics.get(name), self.assignments.get(name)
        if topic is None or known is None:
            return
        states, replicas = self.states.get(name, _NONE), known.value.partitions
        now = {n: _partition(replicas[n], states.get(n), known.value, n) for n in numbers if n in topic.partitions}
        if any(topic.partitions[number] != partition for number, partition in now.items()):
            self.topics[name] = topic._replace(partitions={**topic.partitions, **now})
            yield Change.PARTITION_STATE, name

    def _record(self, name: str) -> TopicRecord | None:
        known = self.assignments.get(name)
        if known is None or known.value.topic_id is None:
            return None
        states = self.states.get(name, _NONE)
        partitions = {
            number: _partition(replicas, states.get(number), known.value, number)
            for number, replicas in sorted(known.value.partitions.items())
        }
        return TopicRecord(name, known.value.topic_id, partitions, self._topic_configs.get(name, _NONE))


def is_of_interest(path: str) -> bool:
    """Whether a view uses the node at `path`."""
    if path.startswith(znode_paths.TOPICS):
        return znode_paths.state_of(path) is not None or _topic_of(path) is not None
    if path.startswith(znode_paths.CONFIG):
        return znode_paths.config_of(path) is not None
    return (
        path in (znode_paths.CONTROLLER, znode_paths.CONTROLLER_EPOCH, znode_paths.TOPIC_DELETIONS)
        or path in (znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_REPLICA_ELECTION)  # kept for the controller
        or znode_paths.broker_of(path) is not None
        or security_nodes.resource_of(path) is not None
        or security_nodes.token_of(path) is not None
        or znode_paths.registration_of(path) is not None
        or znode_paths.deleted_topic_of(path) is not None
    )


def _topic_of(path: str) -> str | None:
    """The name in /brokers/topics/NAME; None for paths below it."""
    name = znode_paths.topic_of(path)
    return name if name is not None and path == znode_paths.topic(name) else None


def _broker(
    broker_id: int, known: Known[znode_data.BrokerNode], life: Known[znode_data.RegistrationNode] | None
) -> BrokerRecord:
    """The record of a broker. One without a registration of ours, such as Apache Kafka's, does not count as intact."""
    endpoints, rack, _ = known.value
    number = NO_REGISTRATION if life is None else life.node.version
    stopping, intact = (False, False) if life is None else life.value
    return BrokerRecord(broker_id, endpoints, rack, known.node.czxid, number, stopping, intact)


def _partition(
    replicas: tuple[int, ...], state: Known[znode_data.StateNode] | None, topic: znode_data.TopicNode, number: int
) -> PartitionRecord:
    adding, removing = topic.adding.get(number, ()), topic.removing.get(number, ())
    if state is None:
        return PartitionRecord(replicas, NO_LEADER, NO_EPOCH, (), NO_EPOCH, (), adding, removing)
    leader, leader_epoch, isr, _, _, elr = state.value
    version = state.node.version
    return PartitionRecord(replicas, max(leader, NO_LEADER), leader_epoch, isr, version, elr, adding, removing)


def _is_successor(before: TopicRecord, now: TopicRecord) -> bool:
    """Whether both are the same topic: the ids are equal, and no partition is missing, since a client may create a new
    topic with the same id.
    """
    return now.topic_id == before.topic_id and len(now.partitions) >= len(before.partitions)


def _differences(before: TopicRecord, now: TopicRecord) -> Iterator[Change]:
    if len(now.partitions) > len(before.partitions):
        yield Change.PARTITIONS_ADDED
    if any(now.partitions[number] != partition for number, partition in before.partitions.items()):
        yield Change.PARTITION_STATE
    if now.config != before.config:
        yield Change.TOPIC_CONFIG


def _check_assignment(topic: znode_data.TopicNode, before: znode_data.TopicNode | None) -> None:
    """Raises ValueError for an assignment that no broker can serve."""
    count = len(topic.partitions)
    if not count:
        raise ValueError("a topic without partitions")
    if topic.partitions.keys() != set(range(count)):
        raise ValueError(f"its {count} partitions are not numbered from 0 to {count - 1}")
    for number, replicas in topic.partitions.items():
        if not replicas or min(replicas) < 0 or len(set(replicas)) < len(replicas):
            raise ValueError(f"partition {number} has the replicas {list(replicas)}")
    if before is not None and before.topic_id == topic.topic_id and count < len(before.partitions):
        raise ValueError(f"{count} partitions, where there were {len(before.partitions)}; they are never taken away")


def isr_state(known: Known[znode_data.StateNode]) -> IsrState:
    value = known.value
    leader = max(value.leader, NO_LEADER)
    return IsrState(leader, value.leader_epoch, frozenset(value.isr), frozenset(value.elr), known.node.version)


def state_node(before: znode_data.StateNode, after: IsrState, replicas: Sequence[int]) -> znode_data.StateNode:
    """The next content of a node. Members keep their places, and those that join follow, in order of assignment."""
    order = (*before.isr, *before.elr, *replicas)
    return before._replace(
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=in_order(after.isr, order),
        elr=in_order(after.elr, order),
    )
