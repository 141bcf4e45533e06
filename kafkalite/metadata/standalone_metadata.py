"""The metadata of a standalone broker: a journal file beside the logs, replayed into memory at start.

An operation is checked against memory, written and fsynced on a thread of its own, then applied to memory and reported
to the listeners; one at a time, in order. When the file has doubled it is rewritten from memory. The first entry names
the cluster and the format.

The cluster has one broker, which is registered from the start on and is the controller. So it leads every partition,
and is the only replica: also of topics that were created when its broker id was another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError, StorageError
from kafkalite.common.names import format_uuid, parse_uuid, random_uuid
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    PRODUCER_ID_BLOCK,
    PRODUCER_ID_MAX,
    BrokerRecord,
    Change,
    ChangeConfig,
    ChangeEntries,
    ChangeToken,
    ClusterMetadata,
    MetadataWrites,
    PartitionRecord,
    RegistrationState,
    TopicRecord,
)
from kafkalite.metadata.metadata_journal import JOURNAL_NAME, Entry, Journal, encode
from kafkalite.security.acl.acl import Entry as AclEntry
from kafkalite.security.acl.acl import Operation, Permission, Resource
from kafkalite.security.delegation_tokens import DelegationToken

logger = logging.getLogger(__name__)

_FORMAT_VERSION = 1
_SLACK_BYTES = 64 * 1024  # a journal below this is not worth rewriting


def journal_directory(online: Sequence[str], offline: Mapping[str, str]) -> str:
    """The data directory among `online` that has the journal, else the first, which gets it. Raises ConfigError when it
    may be in one of `offline`, whose values say why they do not work."""
    holders = [path for path in online if (Path(path) / JOURNAL_NAME).exists()]
    if len(holders) > 1:
        raise ConfigError(
            f"{' and '.join(holders)} both hold cluster metadata ({JOURNAL_NAME}): they were the data of two brokers; "
            "name only those of one in log.dirs"
        )
    if holders:
        return holders[0]
    if offline:
        path, why = next(iter(offline.items()))
        raise ConfigError(
            f"no cluster metadata ({JOURNAL_NAME}) in {' or '.join(online)}, so it must be in {path}, but {why}; "
            "repair that disk, or take the directory out of log.dirs to continue with the topics in the others"
        )
    return online[0]


class StandaloneMetadata(ClusterMetadata, MetadataWrites):
    """The metadata in `data_dir`.

    For a directory that has no journal yet, `cluster_id` is its cluster (None generates one), and `first_topics` gives
    the topics that a broker without a journal left there; `is_new` is true after `start` then. With `takes_over`
    `first_topics` is called in any case, with the topics of the journal. `in_memory`: the directory is on no disk that
    a write would wait for, so no thread writes.
    """

    is_shared = False

    def __init__(
        self,
        data_dir: str | Path,
        *,
        cluster_id: str | None = None,
        first_topics: Callable[[Mapping[str, TopicRecord]], Iterable[TopicRecord]] = lambda known: (),
        takes_over: bool = False,
        broker_id: int = 0,
        in_memory: bool = False,
    ) -> None:
        super().__init__()
        self.writes = self
        self._journal = Journal(Path(data_dir) / JOURNAL_NAME)
        self._first_cluster_id = cluster_id
        self._first_topics = first_topics
        self._takes_over = takes_over
        self._broker_id = broker_id
        self.brokers: dict[int, BrokerRecord] = {}
        self.is_new = False
        self.topics: dict[str, TopicRecord] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.acls: dict[Resource, tuple[AclEntry, ...]] = {}
        self.entity_configs: dict[str, dict[str, str]] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self._next_producer_id = 0
        self._turn = asyncio.Lock()
        self._writer: ThreadPoolExecutor | None = None
        self._in_memory = in_memory
        self._rewrite_at_bytes = 0

    @property
    def controller_id(self) -> int:
        return self._broker_id

    @property
    def registration_state(self) -> RegistrationState:
        return RegistrationState.MEMBER if self.brokers else RegistrationState.UNREGISTERED

    async def start(self) -> None:
        path = self._journal.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._load(self._journal.load())
            self.is_new = not self.cluster_id
            if self.is_new:
                self.cluster_id = self._first_cluster_id or format_uuid(random_uuid())
            if self.is_new or self._takes_over:
                first = {topic.name: topic for topic in self._first_topics(self.topics)}
                self.topics.clear()
                self.topics |= first
                self._journal.rewrite(self._snapshot())
            self._plan_rewrite(sum(len(encode(entry)) for entry in self._snapshot()))
            if self._journal.size_bytes > self._rewrite_at_bytes:
                self._journal.rewrite(self._snapshot())
        except OSError as error:
            self._journal.close()
            raise ConfigError(f"cannot keep the cluster metadata in {path}: {error.strerror or error}") from None
        except ConfigError:
            self._journal.close()
            raise
        self.brokers[self._broker_id] = BrokerRecord(self._broker_id, ())
        if self._in_memory:
            return
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafkalite-registry")

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        self.brokers[self._broker_id] = BrokerRecord(self._broker_id, endpoints, rack)
        self.notify(Change.BROKERS, "")
        self.notify(Change.REGISTRATION, "")

    async def unregister(self) -> None:
        if self.brokers.pop(self._broker_id, None) is not None:
            self.notify(Change.BROKERS, "")
            self.notify(Change.REGISTRATION, "")

    def _load(self, entries: list[Entry]) -> None:
        for number, entry in enumerate(entries, start=1):
            try:
                if number > 1 and not self.cluster_id:
                    raise ValueError("the first entry names no cluster")
                self._replay(entry)
            except (KeyError, TypeError, ValueError, AttributeError) as fault:
                raise ConfigError(
                    f"{self._journal.path}: entry {number} is whole but not understood ({fault!r}); "
                    "was it written by a newer kafkalite?"
                ) from None

    async def stop(self) -> None:
        async with self._turn:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.shutdown()
            self._journal.close()

    def abandon(self) -> None:
        """After the loop has ended, as by kill -9: wait for an entry that is being written, and close the journal."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown(cancel_futures=True)
        self._journal.close()

    async def create_topic(self, topic: TopicRecord) -> None:
        def entry() -> Entry:
            if topic.name in self.topics:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
            return _topic_entry(topic)

        await self._commit(entry, Change.TOPIC_CREATED, topic.name)

    async def delete_topic(self, name: str) -> None:
        await self._commit(lambda: {"op": "delete", "name": self._require(name).name}, Change.TOPIC_DELETED, name)

    async def add_partitions(self, name: str, partitions: Mapping[int, PartitionRecord]) -> None:
        def entry() -> Entry:
            first = len(self._require(name).partitions)
            if not partitions or sorted(partitions) != list(range(first, first + len(partitions))):
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"New partitions of {name} must begin at {first}.")
            return {"op": "partitions", "name": name, "partitions": _partitions_entry(partitions)}

        await self._commit(entry, Change.PARTITIONS_ADDED, name)

    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        own = dict(config)
        await self._commit(
            lambda: {"op": "config", "name": self._require(name).name, "config": own}, Change.TOPIC_CONFIG, name
        )

    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        entry = {"op": "broker", "broker": broker, "config": dict(config)}
        await self._commit(lambda: entry, Change.BROKER_CONFIG, broker)

    async def change_acls(self, resource: Resource, change: ChangeEntries) -> None:
        def entry() -> Entry:
            return _acl_entry(resource, change(self.acls.get(resource, ())))

        await self._commit(entry, Change.ACLS, resource.text)

    async def change_entity_config(self, path: str, change: ChangeConfig) -> None:
        def entry() -> Entry:
            return {"op": "entity", "path": path, "config": dict(change(self.entity_configs.get(path, {})))}

        await self._commit(entry, Change.ENTITY_CONFIG, path)

    async def change_delegation_token(self, token_id: str, change: ChangeToken) -> None:
        def entry() -> Entry:
            return _token_entry(token_id, change(self.delegation_tokens.get(token_id)))

        await self._commit(entry, Change.DELEGATION_TOKEN, token_id)

    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        def entry() -> Entry:
            state = self._require(name).partitions.get(partition)
            if state is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if leader_epoch <= state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            return {"op": "epoch", "name": name, "partition": partition, "epoch": leader_epoch}

        await self._commit(entry, Change.PARTITION_STATE, name)

    async def skip_producer_ids(self, last: int) -> None:
        if self._next_producer_id <= last < PRODUCER_ID_MAX:
            entry = {"op": "producer_ids", "next": last + 1}
            await self._commit(lambda: entry)

    async def next_producer_id_block(self) -> range:
        block = range(0)

        def reserve() -> Entry:
            nonlocal block
            block = range(self._next_producer_id, self._next_producer_id + PRODUCER_ID_BLOCK)
            return {"op": "producer_ids", "next": block.stop}

        await self._commit(reserve)
        return block

    def _require(self, name: str) -> TopicRecord:
        topic = self.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    async def _commit(self, make: Callable[[], Entry], change: Change | None = None, name: str = "") -> None:
        """Check, write, apply, notify: one operation at a time. `make` checks it against memory and returns its entry.
        It completes even if the caller is cancelled, so that memory agrees with the file."""
        task = asyncio.ensure_future(self._commit_in_turn(make, change, name))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieve it even if no caller waits
        await asyncio.shield(task)

    async def _commit_in_turn(self, make: Callable[[], Entry], change: Change | None, name: str) -> None:
        async with self._turn:
            entry = make()
            await self._write(lambda: self._journal.append(entry))
            self._replay(entry)
            if change is not None:
                self.notify(change, name)
            if self._journal.size_bytes > self._rewrite_at_bytes:
                await self._rewrite()

    async def _write(self, work: Callable[[], None]) -> None:
        if not self._journal.is_open:
            raise StorageError(f"{self._journal.path} is not open for writing")
        try:
            if self._in_memory:
                work()
            else:
                await asyncio.get_running_loop().run_in_executor(self._writer, work)
        except OSError as error:
            raise StorageError(f"cannot write {self._journal.path}: {error.strerror or error}") from None

    async def _rewrite(self) -> None:
        """Rewrites the file from memory. A failure costs only space: the old file stays in use."""
        entries = self._snapshot()
        try:
            await self._write(lambda: self._journal.rewrite(entries))
        except StorageError as error:
            logger.warning("%s; it is tried again later", error)
        self._plan_rewrite(self._journal.size_bytes)

    def _plan_rewrite(self, live_bytes: int) -> None:
        self._rewrite_at_bytes = _SLACK_BYTES + 2 * live_bytes

    def _snapshot(self) -> list[Entry]:
        """The shortest list of entries from which memory can be replayed."""
        entries: list[Entry] = [{"op": "cluster", "version": _FORMAT_VERSION, "id": self.cluster_id}]
        if self._next_producer_id:
            entries.append({"op": "producer_ids", "next": self._next_producer_id})
        entries += [{"op": "broker", "broker": each, "config": dict(c)} for each, c in self.broker_configs.items()]
        entries += [{"op": "entity", "path": path, "config": dict(c)} for path, c in self.entity_configs.items()]
        entries += [_acl_entry(resource, lines) for resource, lines in self.acls.items()]
        entries += [_token_entry(each, token) for each, token in self.delegation_tokens.items()]
        entries += map(_topic_entry, self.topics.values())
        return entries

    def _replay(self, entry: Entry) -> None:
        """Applies one entry, which was checked before it was written, to memory. Errors: see `_load`."""
        op = entry["op"]
        if op == "cluster":
            if entry["version"] != _FORMAT_VERSION:
                raise ValueError(f"format version {entry['version']}")
            self.cluster_id = str(entry["id"])
        elif op == "topic":
            self.topics[entry["name"]] = TopicRecord(
                entry["name"], parse_uuid(entry["id"]), self._partitions(entry["partitions"]), dict(entry["config"])
            )
        elif op == "delete":
            del self.topics[entry["name"]]
        elif op == "partitions":
            topic = self.topics[entry["name"]]
            self.topics[topic.name] = topic._replace(
                partitions={**topic.partitions, **self._partitions(entry["partitions"])}
            )
        elif op == "config":
            topic = self.topics[entry["name"]]
            self.topics[topic.name] = topic._replace(config=dict(entry["config"]))
        elif op == "epoch":
            topic = self.topics[entry["name"]]
            state = topic.partitions[entry["partition"]]
            state = state._replace(leader_epoch=entry["epoch"], partition_epoch=state.partition_epoch + 1)
            self.topics[topic.name] = topic._replace(partitions={**topic.partitions, entry["partition"]: state})
        elif op == "broker":
            self.broker_configs[entry["broker"]] = dict(entry["config"])
            if not entry["config"]:
                del self.broker_configs[entry["broker"]]
        elif op == "entity":
            self.entity_configs[entry["path"]] = dict(entry["config"])
            if not entry["config"]:
                del self.entity_configs[entry["path"]]
        elif op == "acl":
            resource = Resource.parse(entry["resource"])
            self.acls[resource] = tuple(
                AclEntry(principal, Permission[permission], Operation[operation], host)
                for principal, permission, operation, host in entry["entries"]
            )
            if not self.acls[resource]:
                del self.acls[resource]
        elif op == "token":
            self.delegation_tokens.pop(entry["id"], None)
            if entry["token"] is not None:
                owner, requester, renewers, *times = entry["token"]
                self.delegation_tokens[entry["id"]] = DelegationToken(
                    entry["id"], owner, requester, tuple(renewers), *times
                )
        elif op == "producer_ids":
            self._next_producer_id = int(entry["next"])
        else:
            raise ValueError(f"operation {op}")

    def _partitions(self, rows: list[list[Any]]) -> dict[int, PartitionRecord]:
        only = self._broker_id
        return {
            int(number): PartitionRecord((only,), only, leader_epoch, (only,), partition_epoch)
            for number, _replicas, _leader, leader_epoch, _isr, partition_epoch in rows
        }


def _acl_entry(resource: Resource, entries: Iterable[AclEntry]) -> Entry:
    rows = [[each.principal, each.permission.name, each.operation.name, each.host] for each in entries]
    return {"op": "acl", "resource": resource.text, "entries": rows}


def _token_entry(token_id: str, token: DelegationToken | None) -> Entry:
    return {"op": "token", "id": token_id, "token": None if token is None else list(token[1:])}


def _topic_entry(topic: TopicRecord) -> Entry:
    return {
        "op": "topic",
        "name": topic.name,
        "id": format_uuid(topic.topic_id),
        "partitions": _partitions_entry(topic.partitions),
        "config": dict(topic.config),
    }


def _partitions_entry(partitions: Mapping[int, PartitionRecord]) -> list[list[Any]]:
    """Rows of number, replicas, leader, leader epoch, in-sync replicas, partition epoch."""
    return [
        [number, list(p.replicas), p.leader, p.leader_epoch, list(p.isr), p.partition_epoch]
        for number, p in partitions.items()
    ]
