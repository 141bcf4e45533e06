"""Changes that any broker may write, in exactly Kafka's nodes. The controller watches the nodes and acts on them.

    create      /config/topics/T and /brokers/topics/T      wait for leaders
    delete      /admin/delete_topics/T                      wait until it is gone
    add         /brokers/topics/T                           wait for leaders of the new partitions
    configure   /config/..., /config/changes/config_change_
    reserve     /latest_producer_id_block                   the next block of ids begins where that one ends

Each change is checked against the view and written with the version that was read, so that no change in between is
lost. The view has it when the method returns. If the controller takes too long, REQUEST_TIMED_OUT is raised, with a
message that the change was written.
Source: kafka.zk.AdminZkClient, kafka.zk.KafkaZkClient (setOrCreateEntityConfigs, createConfigChangeNotification).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.metadata import cluster_metadata
from kafkalite.security.acl.acl import Resource
from kafkalite.zk.client.operations import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
    Unavailable,
)
from kafkalite.zk.client.transactions import perform
from kafkalite.zk.cluster.cluster_view import ClusterView, Known
from kafkalite.zk.znodes import security_nodes, znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession
    from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle

_ATTEMPTS = 50  # if others change the same node: on busy cores ten were lost in a row
_DELETION_ORDERS = 3  # one may be deleted together with an earlier topic of this name
NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes the connection of a client that sends a mebibyte


@contextmanager
def reaching(session: ZooKeeperSession) -> Iterator[None]:
    """Raises ZooKeeper's errors as KafkaErrors."""
    try:
        yield
    except Unavailable as fault:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Metadata cannot be changed without ZooKeeper, and {session.settings.connect} cannot be reached: {fault}",
        ) from None
    except OperationFailed as refusal:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses: {refusal}") from None


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _one_change(
    write: Callable[Concatenate[ClusterWrites, _Arguments], Awaitable[_Result]],
) -> Callable[Concatenate[ClusterWrites, _Arguments], Coroutine[Any, Any, _Result]]:
    """Raises KafkaError for ZooKeeper's errors, and when nothing may be changed."""

    @wraps(write)
    async def allowed(self: ClusterWrites, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        async with self.allowed():
            return await write(self, *arguments, **named)

    return allowed


class ClusterWrites(cluster_metadata.MetadataWrites):
    """Writes over the session of `lifecycle`. They wait for the controller up to `timeout_ms`."""

    def __init__(self, lifecycle: BrokerLifecycle, view: ClusterView, timeout_ms: int) -> None:
        self._lifecycle = lifecycle
        self._session = lifecycle.session
        self._view = view
        self._refresh = lifecycle.reader.refresh
        self._timeout_ms = timeout_ms

    @asynccontextmanager
    async def allowed(self) -> AsyncIterator[None]:
        """The context of one change. It verifies the cluster of a new connection first. Raises KafkaError for
        ZooKeeper's errors.
        """
        with reaching(self._session):
            await self._lifecycle.until_verified()
            yield

    async def _wait(self, condition: Callable[[], bool]) -> bool:
        return await self._lifecycle.until(condition, self._timeout_ms)

    @_one_change
    async def create_topic(self, topic: cluster_metadata.TopicRecord) -> None:
        name = topic.name
        replicas = {number: partition.replicas for number, partition in topic.partitions.items()}
        data = znode_data.topic_json(znode_data.TopicNode(replicas, topic.topic_id))
        created = Create(znode_paths.topic(name), _fitting(data, name))
        config = znode_data.config_json(topic.config)
        configured = znode_paths.config(znode_paths.CONFIG_TOPICS, name)
        for _ in range(_ATTEMPTS):
            self._check_new(name)
            # refused if another writer created the topic, or changed old settings of that name
            if await self._write([self._put(configured, config), created], [configured, created.path]):
                break
        else:
            raise _contended(name)
        await self._await_leaders(name, topic.partitions, "is created")

    def _check_new(self, name: str) -> None:
        if name in self._view.deletions:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
        if znode_paths.topic(name) in self._view.paths:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")

    @_one_change
    async def delete_topic(self, name: str) -> None:
        if name in self._view.assignments:  # this broker may be notified of a deletion after its end
            self._lifecycle.reader.ordered.add(name)
        born = (await self._require(name)).node.czxid
        asked = znode_paths.delete_topic(name)

        def is_there() -> bool:
            known = self._view.assignments.get(name)
            return known is not None and known.node.czxid == born

        for _ in range(_DELETION_ORDERS):
            with suppress(NodeExists):  # another client has requested it, too
                await self._session.write([Create(asked)])
            await self._refresh([asked, znode_paths.topic(name)])
            if not await self._wait(lambda: name not in self._view.deletions):
                absent = self._absent_replicas(name)
                waits = f", which waits for the brokers {absent} to return" if absent else ""
                raise self._not_seen_to(f"Topic '{name}' is marked for deletion{waits}")
            if is_there():  # by the view, which may be notified of the end of the request first
                await self._refresh([znode_paths.topic(name)])
            if not is_there():
                return
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, f"The controller does not delete topic '{name}'.")

    @_one_change
    async def add_partitions(self, name: str, partitions: Mapping[int, cluster_metadata.PartitionRecord]) -> None:
        for _ in range(_ATTEMPTS):
            known = await self._require(name)
            topic = known.value
            first = len(topic.partitions)
            if not partitions or sorted(partitions) != list(range(first, first + len(partitions))):
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"New partitions of {name} must begin at {first}.")
            replicas = {**topic.partitions, **{number: each.replicas for number, each in partitions.items()}}
            data = znode_data.topic_json(topic._replace(partitions=replicas))
            path = znode_paths.topic(name)
            if await self._write_bound(SetData(path, _fitting(data, name), known.node.version)):
                break
        else:
            raise _contended(name)
        await self._await_leaders(name, partitions, "has its new partitions")

    @_one_change
    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        await self._require(name)
        await self._set_config(znode_paths.CONFIG_TOPICS, name, config)

    @_one_change
    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        entity = znode_paths.CONFIG_DEFAULT if broker == cluster_metadata.CLUSTER_DEFAULT else broker
        await self._set_config(znode_paths.CONFIG_BROKERS, entity, config)

    async def _set_config(self, entity_type: str, entity: str, config: Mapping[str, str]) -> None:
        path = znode_paths.config(entity_type, entity)
        change = Create(
            znode_paths.CONFIG_CHANGE, znode_data.config_change_json(f"{entity_type}/{entity}"), sequential=True
        )
        for _ in range(_ATTEMPTS):
            if await self._write([self._put(path, znode_data.config_json(config)), change], [path]):
                return
        raise _contended(path)

    @_one_change
    async def change_entity_config(self, path: str, change: cluster_metadata.ChangeConfig) -> None:
        node_path = f"{znode_paths.CONFIG}/{path}"
        notifications = [Create(znode_paths.CONFIG_CHANGE, znode_data.config_change_json(path), sequential=True)]
        entity_type = path.partition("/")[0]
        if entity_type in znode_paths.CONFIG_TYPES_OF_KRAFT:
            notifications.clear()
            await self._session.make_paths([f"{znode_paths.CONFIG}/{entity_type}"])
        for _ in range(_ATTEMPTS):
            writes = entity_writes(self._view, path, change(self._view.entity_configs.get(path, {})))
            paths = [each.path for each in writes if isinstance(each, (Create, SetData, Delete))]
            operations = [*writes, *notifications]
            if not operations or await self._write(operations, paths or [node_path]):
                return
        raise _contended(node_path)

    @_one_change
    async def change_acls(self, resource: Resource, change: cluster_metadata.ChangeEntries) -> None:
        path, (change_path, change_data) = security_nodes.acl_path(resource), security_nodes.acl_change(resource)
        for _ in range(_ATTEMPTS):
            node = self._view.node(path)
            entries = change(self._view.acls.get(resource, ()))
            notification = Create(change_path, change_data, sequential=True)
            data = security_nodes.acl_json(entries) if entries else None
            if data is not None and len(data) > NODE_BYTES_MAX:
                message = f"{resource.text} has more access control entries than fit into a node of ZooKeeper's."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            write = _replacement(path, node, data)
            if write is None or await self._write([write, notification], [path]):
                return
        raise _contended(path)

    @_one_change
    async def change_delegation_token(self, token_id: str, change: cluster_metadata.ChangeToken) -> None:
        path = security_nodes.token_path(token_id)
        notification = Create(security_nodes.TOKEN_CHANGE, token_id.encode(), sequential=True)
        for _ in range(_ATTEMPTS):
            node = self._view.node(path)
            token = change(self._view.delegation_tokens.get(token_id))
            write = _replacement(path, node, None if token is None else security_nodes.token_json(token))
            if write is None or await self._write([write, notification], [path]):
                return
        raise _contended(path)

    @_one_change
    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        created = self._view.created((name, partition))
        for _ in range(_ATTEMPTS):
            known = self._view.states.get(name, {}).get(partition)
            if known is None or self._view.created((name, partition)) != created:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if leader_epoch <= known.value.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            data = znode_data.state_json(known.value._replace(leader_epoch=leader_epoch))
            path = znode_paths.state(name, partition)
            if await self._write_bound(SetData(path, data, known.node.version)):
                return
        raise _contended(f"{name}-{partition}")

    @_one_change
    async def set_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """All in a few transactions. Others may raise them as well, at the same time."""
        created = {key: self._view.created(key) for key in epochs}
        for _ in range(_ATTEMPTS):
            writes: list[list[Operation]] = []
            for (name, partition), leader_epoch in epochs.items():
                known = self._view.states.get(name, {}).get(partition)
                if known is None or self._view.created((name, partition)) != created[name, partition]:
                    continue
                if known.value.leader_epoch < leader_epoch:
                    data = znode_data.state_json(known.value._replace(leader_epoch=leader_epoch))
                    writes.append([SetData(znode_paths.state(name, partition), data, known.node.version)])
            if not writes:
                return
            with suppress(BadVersion, NoNode):  # of the fence
                for result in await perform(self._session, writes, self._view.deletion_fence):
                    if isinstance(result, Unavailable):
                        raise result
                    if result is not None and not isinstance(result.reason, BadVersion | NoNode):
                        raise result.reason
            await self._refresh([znode_paths.TOPIC_DELETIONS, *(each.path for write in writes for each in write)])
        raise _contended(f"{len(epochs)} states of partitions")

    @_one_change
    async def next_producer_id_block(self) -> range:
        """The next block. Raises KafkaError also when no id is left, or the node cannot be parsed.
        Source: kafka.coordinator.transaction.ZkProducerIdManager."""
        while True:
            first, version = await self._free_producer_id()
            block = range(first, first + cluster_metadata.PRODUCER_ID_BLOCK)
            if block.stop > cluster_metadata.PRODUCER_ID_MAX:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given away.")
            if await self._reserve_producer_ids(block, version):
                return block

    @_one_change
    async def skip_producer_ids(self, last: int) -> None:
        while 0 <= last < cluster_metadata.PRODUCER_ID_MAX:
            first, version = await self._free_producer_id()
            if first > last:
                return
            block = range(max(first, last + 1 - cluster_metadata.PRODUCER_ID_BLOCK), last + 1)
            if await self._reserve_producer_ids(block, version):
                return

    async def _free_producer_id(self) -> tuple[int, int]:
        """The first id that is not allocated, and the version of the node with the last block that was."""
        path = znode_paths.PRODUCER_ID_BLOCK
        (node,) = await self._session.read([path])
        if node is None:
            await self._session.make_paths([path])
            return await self._free_producer_id()
        try:
            block = znode_data.parse_producer_id_block(node.data)
        except ValueError as fault:
            message = f"{path} in ZooKeeper is not understood: {fault}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None
        return (block.ids.stop if block is not None else 0), node.version

    async def _reserve_producer_ids(self, block: range, version: int) -> bool:
        """False if another broker has reserved some since the node had that version."""
        node = znode_data.ProducerIdBlockNode(self._lifecycle.registration.broker_id, block)
        with suppress(BadVersion):
            data = znode_data.producer_id_block_json(node)
            await self._session.write([SetData(znode_paths.PRODUCER_ID_BLOCK, data, version)])
            return True
        return False

    async def _write(self, operations: Sequence[Operation], paths: Sequence[str]) -> bool:
        """Write, unless the view was out of date; then returns False. The view has the nodes at `paths` afterwards."""
        is_written = False
        with suppress(BadVersion, NodeExists, NoNode):
            await self._session.write(operations)
            is_written = True
        await self._refresh(paths)
        return is_written

    async def _write_bound(self, write: SetData) -> bool:
        """As `_write`, for a node of a topic: also refused if that topic was deleted meanwhile."""
        return await self._write([*self._view.deletion_fence, write], [znode_paths.TOPIC_DELETIONS, write.path])

    def _put(self, path: str, data: bytes) -> Operation:
        """Writes a node that exists, or creates it, as far as the view knows."""
        return SetData(path, data) if path in self._view.paths else Create(path, data)

    async def _require(self, name: str) -> Known[znode_data.TopicNode]:
        if name not in self._view.assignments:
            await self._refresh([znode_paths.topic(name)])  # another broker may just have created it
        known = self._view.assignments.get(name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return known

    async def _await_leaders(self, name: str, numbers: Iterable[int], what: str) -> None:
        """Waits until each of these partitions has a leader, unless none of its replicas is alive."""
        wanted: Sequence[int] = tuple(numbers)

        def are_led() -> bool:
            known = self._view.assignments.get(name)
            if known is None or not known.value.partitions.keys() >= set(wanted):
                return True  # deleted meanwhile, and perhaps created again with fewer
            topic = self._view.topics.get(name)
            states = topic.partitions if topic is not None else {}
            return all(number in states and self._is_led(states[number]) for number in wanted)

        if not await self._wait(are_led):
            raise self._not_seen_to(f"Topic '{name}' {what}, but no leaders yet")

    def _is_led(self, partition: cluster_metadata.PartitionRecord) -> bool:
        return partition.leader != NO_LEADER or not any(each in self._view.brokers for each in partition.replicas)

    def _absent_replicas(self, name: str) -> list[int]:
        known = self._view.assignments.get(name)
        replicas = known.value.partitions.values() if known is not None else ()
        return sorted({each for some in replicas for each in some} - self._view.brokers.keys())

    def _not_seen_to(self, what: str) -> KafkaError:
        controller = self._view.controller
        who = "There is no controller" if controller is None else f"Broker {controller.value} is the controller"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what}. {who}; it will be seen to.")


def _fitting(data: bytes, name: str) -> bytes:
    if len(data) > NODE_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic '{name}' has more partitions than fit into a node of ZooKeeper's."
        )
    return data


def _replacement(path: str, node: Node | None, data: bytes | None) -> Operation | None:
    """The write that gives a node this data, or removes it for None; None if there is nothing to write."""
    if node is None:
        return None if data is None else Create(path, data)
    return Delete(path, node.version) if data is None else SetData(path, data, node.version)


def _contended(what: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Others keep changing {what} in ZooKeeper at the same time.")


def entity_writes(view: ClusterView, path: str, config: Mapping[str, str]) -> list[Operation]:
    """The operations that give the entity at `path`, below /config, these settings. Each is checked against `view`.

    A node below another, /config/users/alice/clients/app, needs its parents. One without settings goes, and with it
    the parents that have neither settings nor other children: so Kafka's tools list no user without settings.
    Source: kafka.zk.AdminZkClient (changeEntityConfig, tryCleanQuotaNodes)."""
    node_path = f"{znode_paths.CONFIG}/{path}"
    if not config and not _children(view, node_path):
        return _removal(view, node_path)
    node = view.node(node_path)
    data = znode_data.config_json(config)
    if node is not None:
        return [SetData(node_path, data, node.version)]
    parents = [each for each in znode_paths.with_parents([node_path])[:-1] if each not in view.paths]
    return [*(Create(each) for each in parents if _is_below_entities(each)), Create(node_path, data)]


def _removal(view: ClusterView, node_path: str) -> list[Operation]:
    removed: list[Operation] = []
    child = ""
    while _is_below_entities(node_path):
        node = view.node(node_path)
        others = [each for each in _children(view, node_path) if each != child]
        if others or (child and (node is None or znode_data.parse_config(node.data))):
            break
        if node is not None:
            removed.append(Delete(node_path, node.version))
        child, node_path = node_path, node_path.rpartition("/")[0]
    return removed


def _children(view: ClusterView, node_path: str) -> list[str]:
    start = node_path + "/"
    return [each for each in view.paths if each.startswith(start) and "/" not in each[len(start) :]]


def _is_below_entities(node_path: str) -> bool:
    """Whether the node is an entity's, and none of those that always exist, such as /config/users."""
    return node_path.count("/") > 2
