"""The metadata of a cluster: stored in ZooKeeper, with a complete copy in the memory of each broker.

Reads are look-ups in the view (`cluster_view`), which `broker_lifecycle` keeps up to date. Writes go to ZooKeeper
(`cluster_writes`) and are read back. A start connects, agrees on the cluster id, generates a broker id if need be,
deletes the nodes of own old sessions, reads everything, and migrates the journal of a standalone broker.
Source: kafka.server.KafkaServer (order of the start), kafka.zk.KafkaZkClient, kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    MEMBER,
    BrokerRecord,
    Change,
    ChangeConfig,
    ChangeEntries,
    ChangeToken,
    ClusterMetadata,
    Listener,
    PartitionRecord,
    RegistrationState,
    TopicRecord,
)
from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome
from kafkalite.security.acl.acl import Entry, Resource
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.zk.client.operations import Delete, OperationFailed, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster import producer_id_blocks, topic_ids
from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle
from kafkalite.zk.cluster.cluster_id import agree_on_cluster_id, generate_broker_id
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.cluster_writes import ClusterWrites, reaching
from kafkalite.zk.cluster.isr_change_notification import IsrChangeNotification
from kafkalite.zk.cluster.isr_writes import IsrWrites
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.cluster.standalone_migration import JournalMigration, adopt_topics
from kafkalite.zk.znodes import acl_nodes, token_nodes, znode_paths

logger = logging.getLogger(__name__)

_CHANGE_TIMEOUT_MS = 30_000  # for the controller to act on a change; clients wait as long
PathListener = Callable[[Iterable[str]], None]


class ZooKeeperMetadata(ClusterMetadata):  # 35 public methods and properties, of which the interface has 28
    """See the module. `data_dirs` are this broker's locked directories; the first has the file of its sessions. `clean`
    are those of them that were in use and were shut down cleanly. `min_insync_replicas` is for topics without a
    setting.

    For `broker_id` -1 the start generates an id above `reserved_broker_max_id`. `cluster_id` is that of
    meta.properties, None if there is none. With `adopts` a journal that `StandaloneMetadata` left in a data directory
    is migrated, and ZooKeeper may get that cluster id. Writes wait for the controller up to `change_timeout_ms`.
    """

    def __init__(
        self,
        settings: ZooKeeperConfig,
        data_dirs: Sequence[str | Path],
        clock: Clock,
        *,
        broker_id: int,
        cluster_id: str | None = None,
        adopts: bool = False,
        clean: Collection[str | Path] = (),
        min_insync_replicas: int = 1,
        reserved_broker_max_id: int = 1000,
        with_acls: bool = False,
        with_tokens: bool = False,
        change_timeout_ms: int = _CHANGE_TIMEOUT_MS,
    ) -> None:
        self.view = ClusterView()
        self._settings = settings
        self._stored_cluster_id = cluster_id
        self._reserved_broker_max_id = reserved_broker_max_id
        self._change_timeout_ms = change_timeout_ms
        self._security_paths = (acl_nodes.PERSISTENT if with_acls else ()) + (
            token_nodes.PERSISTENT if with_tokens else ()
        )
        self._migration = JournalMigration(data_dirs, adopts)
        self._own_sessions = SessionFile(data_dirs[0])
        self._registration_files = RegistrationFiles(data_dirs, clean)
        self._listeners: list[Listener] = []
        self._path_listeners: list[PathListener] = []
        self._lifecycle = lifecycle = BrokerLifecycle(
            settings,
            self.view,
            clock,
            broker_id,
            self._own_sessions,
            self._registration_files,
            min_insync_replicas=min_insync_replicas,
            with_acls=with_acls,
            with_tokens=with_tokens,
            tell=self._tell,
            applied=self._tell_path_listeners,
        )
        self._writes = ClusterWrites(lifecycle.session, self.view, lifecycle.reader.refresh, self._until)
        self._isr_change_notification = IsrChangeNotification(lifecycle.session, clock)
        self._isr_writes = IsrWrites(
            lifecycle.session,
            self.view,
            lifecycle.reader.refresh,
            self._until_verified,
            self._isr_change_notification.add,
        )

    # -- reads

    @property
    def broker_id(self) -> int:
        return self._lifecycle.registration.broker_id

    @property
    def cluster_id(self) -> str:
        return self._lifecycle.cluster_id

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        return self.view.topics

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.view.broker_configs

    @property
    def acls(self) -> Mapping[Resource, tuple[Entry, ...]]:
        return self.view.acls

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        return self.view.delegation_tokens

    @property
    def entity_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.view.entity_configs

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        return self.view.brokers

    @property
    def controller_id(self) -> int:
        return self.view.controller_id

    @property
    def controller_epoch(self) -> int | None:
        known = self.view.controller_epoch
        return None if known is None else known.value

    @property
    def registration_state(self) -> RegistrationState:
        return self._lifecycle.registration_state

    @property
    def is_surely_registered(self) -> bool:
        return self._lifecycle.registration_state is MEMBER and self._lifecycle.lease.is_held

    @property
    def registration(self) -> int:
        return self._lifecycle.registration.number

    @property
    def session(self) -> ZooKeeperSession:
        return self._lifecycle.session

    @property
    def last_transaction(self) -> int:
        return self._lifecycle.reader.last_transaction

    def is_deletion_ordered(self, name: str) -> bool:
        return name in self._lifecycle.reader.ordered

    def has_unresolved_topic(self, name: str) -> bool:
        return name not in self.view.topics and znode_paths.topic(name) in self.view.paths

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_paths(self, listener: PathListener) -> Callable[[], None]:
        """Call `listener` with the paths of all nodes that were read and applied, whether the view has changed or not:
        the controller needs nodes that clients do not see. Returns a function that ends this."""
        self._path_listeners.append(listener)
        return lambda: self._path_listeners.remove(listener)

    async def catch_up(self) -> None:
        """Apply all changes that the session has reported so far, and so every change before ZooKeeper's last answer.
        Raises Unavailable, OperationFailed."""
        await self._lifecycle.reader.refresh()

    # -- from start to stop

    async def start(self) -> None:
        await self.session.start()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._load_files)
            await self.session.retry_until_connected(lambda: self._join(self.session))
            await self._migration.carry_out(self, self.view, self.session, self.broker_id)
            await self._lifecycle.reader.refresh()
        except (Unavailable, OperationFailed, KafkaError) as fault:
            await self.stop()
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None
        except BaseException:
            await self.stop()
            raise

    async def _join(self, session: ZooKeeperSession) -> None:
        """May be repeated after Unavailable."""
        lifecycle = self._lifecycle
        await session.sync()
        founds = self._migration.has_journal or self._migration.adopts
        lifecycle.cluster_found(await agree_on_cluster_id(session, self._stored_cluster_id, founds=founds))
        await session.make_paths((*znode_paths.PERSISTENT, *self._security_paths))
        if self.broker_id < 0:
            lifecycle.registration.broker_id = await generate_broker_id(session, self._reserved_broker_max_id)
            logger.info("this broker has got broker.id=%d", self.broker_id)
        await lifecycle.registration.clear_old()
        await lifecycle.follow()

    def _load_files(self) -> None:
        self._own_sessions.load()
        self._registration_files.load()

    async def return_ids(self, held: topic_ids.Held) -> None:
        try:
            await self.session.retry_until_connected(
                lambda: self._lifecycle.give_back_ids(lambda: topic_ids.held_by(self.view, self.broker_id, held))
            )
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"topics have no ids at zookeeper.connect={self._settings.connect}: {fault}") from None

    async def check_is_free(self, endpoints: tuple[ListenerConfig, ...]) -> None:
        """Raises ConfigError when another broker, at other addresses than these, is registered with our number."""
        try:
            await self.session.retry_until_connected(lambda: self._lifecycle.registration.check_is_free(endpoints))
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        await self._lifecycle.register(endpoints, rack)

    def distrust_logs(self) -> None:
        self._registration_files.is_distrusted = True
        asyncio.get_running_loop().run_in_executor(None, self._registration_files.distrust)

    def admit_lost_tail(self) -> None:
        self._registration_files.admit_lost_tail()

    def leave_isrs(self, partitions: Iterable[TopicPartition]) -> None:
        self._lifecycle.leave_isrs(partitions)

    async def begin_to_stop(self) -> None:
        try:
            async with self._writing():
                await self._lifecycle.begin_to_stop()
        except KafkaError as fault:
            logger.warning("broker %d cannot announce that it is about to stop: %s", self.broker_id, fault.message)

    async def unregister(self) -> None:
        await self._lifecycle.unregister()

    def fence(self, reason: str) -> None:
        """Stop leading: a connected broker has reported that this one is not registered any more."""
        self._lifecycle.fence(reason)

    async def adopt(self, topics: Iterable[TopicRecord]) -> None:
        """Create topics in ZooKeeper whose data are in this broker's directories, all of them on this broker. Raises
        ConfigError, KafkaError."""
        topics = list(topics)
        with reaching(self.session):
            await adopt_topics(topics, self.session, self.view, self.broker_id)
            await self._lifecycle.reader.refresh(znode_paths.topic(topic.name) for topic in topics)

    async def delete_cluster_id(self) -> None:
        """Delete the cluster id if there is nothing else, for a broker that cannot bring its topics after all. The next
        start would believe that the cluster has no topics."""
        if not (self.view.assignments or self.view.brokers):
            with suppress(Unavailable, OperationFailed):
                await self.session.write([Delete(znode_paths.CLUSTER_ID)])

    async def stop(self) -> None:
        await self._lifecycle.stop()
        await self._isr_writes.stop()
        self._isr_change_notification.stop()

    def _tell(self, change: Change, name: str) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change, name)
            except Exception:
                logger.exception("a listener failed on %s of %s", change.value, name)

    def _tell_path_listeners(self, paths: Sequence[str]) -> None:
        for listener in tuple(self._path_listeners):
            listener(paths)

    async def _until(self, condition: Callable[[], bool]) -> bool:
        return await self._lifecycle.until(condition, self._change_timeout_ms)

    async def _until_verified(self) -> None:
        """Raises Unavailable when nothing may be changed: this broker has left, or the connection may lead to another
        cluster."""
        if not self._lifecycle.is_following:
            raise Unavailable("this broker has left ZooKeeper")
        await self._lifecycle.until_verified()

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[ClusterWrites]:
        """The writes, for one change. A new connection may lead to another cluster, which must not be changed."""
        if not self._lifecycle.is_following:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "This broker has left ZooKeeper: it changes nothing any more."
            )
        with reaching(self.session):
            await self._lifecycle.until_verified()
            yield self._writes

    # -- writes

    async def create_topic(self, topic: TopicRecord) -> None:
        async with self._writing() as writes:
            await writes.create_topic(topic)

    async def delete_topic(self, name: str) -> None:
        async with self._writing() as writes:
            # this broker may be notified of a deletion only when it is complete
            if name in self.view.assignments:
                self._lifecycle.reader.ordered.add(name)
            await writes.delete_topic(name)

    async def add_partitions(self, name: str, partitions: Mapping[int, PartitionRecord]) -> None:
        async with self._writing() as writes:
            await writes.add_partitions(name, partitions)

    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        async with self._writing() as writes:
            await writes.set_topic_config(name, config)

    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        async with self._writing() as writes:
            await writes.set_broker_config(broker, config)

    async def change_entity_config(self, path: str, change: ChangeConfig) -> None:
        async with self._writing() as writes:
            await writes.change_entity_config(path, change)

    async def change_delegation_token(self, token_id: str, change: ChangeToken) -> None:
        async with self._writing() as writes:
            await writes.change_delegation_token(token_id, change)

    async def change_acls(self, resource: Resource, change: ChangeEntries) -> None:
        async with self._writing() as writes:
            await writes.change_acls(resource, change)

    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        async with self._writing() as writes:
            await writes.set_leader_epoch(name, partition, leader_epoch)

    async def set_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        async with self._writing() as writes:
            await writes.set_leader_epochs(epochs)

    async def write_isr(self, name: str, partition: int, write: WriteIsr) -> WriteOutcome:
        return await self._isr_writes.write(name, partition, write)

    async def read_isr(self, name: str, partition: int) -> IsrState | None:
        return await self._isr_writes.read(name, partition)

    async def skip_producer_ids(self, last: int) -> None:
        async with self._writing():
            await producer_id_blocks.skip(self.session, self.broker_id, last)

    async def next_producer_id_block(self) -> range:
        async with self._writing():
            return await producer_id_blocks.next_block(self.session, self.broker_id)
