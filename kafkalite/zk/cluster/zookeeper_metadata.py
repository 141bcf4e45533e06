"""The metadata of a cluster: stored in ZooKeeper, with a complete copy in the memory of each broker.

Reads are look-ups in the view (`cluster_view`), which `broker_lifecycle` keeps up to date. Writes go to ZooKeeper
(`cluster_writes`) and are read back. A start connects, agrees on the cluster id, generates a broker id if need be,
deletes the nodes of own old sessions, reads everything, and migrates the journal of a standalone broker.
Source: kafka.server.KafkaServer (order of the start), kafka.zk.KafkaZkClient, kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata import cluster_metadata
from kafkalite.zk.client.operations import Delete, OperationFailed, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster import identities
from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle
from kafkalite.zk.cluster.catch_up import CatchUp
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.cluster_writes import ClusterWrites, reaching
from kafkalite.zk.cluster.identities import agree_on_cluster_id, generate_broker_id
from kafkalite.zk.cluster.isr_writes import IsrChangeNotification, IsrWrites
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.cluster.standalone_migration import JournalMigration, adopt_topics
from kafkalite.zk.znodes import security_nodes, znode_paths

logger = logging.getLogger(__name__)

_CHANGE_TIMEOUT_MS = 30_000  # for the controller to act on a change; clients wait as long
PathListener = Callable[[Iterable[str]], None]


class ZooKeeperMetadata(cluster_metadata.ClusterMetadata):
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
        super().__init__()
        self.view = view = ClusterView()
        self.topics, self.brokers = view.topics, view.brokers
        self.broker_configs, self.entity_configs = view.broker_configs, view.entity_configs
        self.acls, self.delegation_tokens = view.acls, view.delegation_tokens
        self._settings = settings
        self._stored_cluster_id = cluster_id
        self._reserved_broker_max_id = reserved_broker_max_id
        self._security_paths = (security_nodes.ACL_PERSISTENT if with_acls else ()) + (
            security_nodes.TOKEN_PERSISTENT if with_tokens else ()
        )
        self._migration = JournalMigration(data_dirs, adopts)
        self._own_sessions = SessionFile(data_dirs[0])
        self._registration_files = RegistrationFiles(data_dirs, clean)
        self._path_listeners: list[PathListener] = []
        self.lifecycle = lifecycle = BrokerLifecycle(
            settings,
            view,
            clock,
            broker_id,
            self._own_sessions,
            self._registration_files,
            min_insync_replicas=min_insync_replicas,
            with_acls=with_acls,
            with_tokens=with_tokens,
            notify=self.notify,
            applied=self._notify_path_listeners,
        )
        self.session = lifecycle.session
        self.writes: ClusterWrites = ClusterWrites(lifecycle, view, change_timeout_ms)
        self._catch_up = CatchUp(clock, self._synced)
        self._isr_change_notification = IsrChangeNotification(lifecycle.session, clock)
        self.isr_writes = IsrWrites(lifecycle, view, self._isr_change_notification.add)

    # -- reads

    @property
    def broker_id(self) -> int:
        return self.lifecycle.registration.broker_id

    @property
    def controller_id(self) -> int:
        return self.view.controller_id

    @property
    def controller_epoch(self) -> int | None:
        known = self.view.controller_epoch
        return None if known is None else known.value

    @property
    def registration_state(self) -> cluster_metadata.RegistrationState:
        return self.lifecycle.registration_state

    @property
    def is_surely_registered(self) -> bool:
        return self.lifecycle.registration_state is cluster_metadata.MEMBER and self.lifecycle.lease.is_held

    @property
    def registration(self) -> int:
        return self.lifecycle.registration.number

    @property
    def last_transaction(self) -> int:
        return self.lifecycle.reader.last_transaction

    def is_deletion_ordered(self, name: str) -> bool:
        return name in self.lifecycle.reader.ordered

    def has_unresolved_topic(self, name: str) -> bool:
        return name not in self.view.topics and znode_paths.topic(name) in self.view.paths

    def listen_paths(self, listener: PathListener) -> Callable[[], None]:
        """Call `listener` with the paths of all nodes that were read and applied, whether the view has changed or not:
        the controller needs nodes that clients do not see. Returns a function that ends this."""
        self._path_listeners.append(listener)
        return lambda: self._path_listeners.remove(listener)

    async def catch_up(self) -> None:
        """Apply all changes that the session has reported so far, and so every change before ZooKeeper's last answer.
        Raises Unavailable, OperationFailed."""
        await self.lifecycle.reader.refresh()

    async def catch_up_with_others(self) -> bool:
        return self.session.is_connected and await self._catch_up.wait()

    async def _synced(self) -> None:
        await self.session.sync()
        await self.catch_up()

    # -- from start to stop

    async def start(self) -> None:
        await self.session.start()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._load_files)
            await self.session.retry_until_connected(lambda: self._join(self.session))
            await self._migration.carry_out(self, self.view, self.session, self.broker_id)
            await self.lifecycle.reader.refresh()
        except (Unavailable, OperationFailed, KafkaError) as fault:
            await self.stop()
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None
        except BaseException:
            await self.stop()
            raise

    async def _join(self, session: ZooKeeperSession) -> None:
        """May be repeated after Unavailable."""
        lifecycle = self.lifecycle
        await session.sync()
        founds = self._migration.has_journal or self._migration.adopts
        self.cluster_id = await agree_on_cluster_id(session, self._stored_cluster_id, founds=founds)
        lifecycle.cluster_found(self.cluster_id)
        await session.make_paths((*znode_paths.PERSISTENT, *self._security_paths))
        if self.broker_id < 0:
            lifecycle.registration.broker_id = await generate_broker_id(session, self._reserved_broker_max_id)
            logger.info("this broker has got broker.id=%d", self.broker_id)
        await lifecycle.registration.clear_old()
        await lifecycle.follow()

    def _load_files(self) -> None:
        self._own_sessions.load()
        self._registration_files.load()

    async def return_ids(self, held: identities.HeldTopicIds) -> None:
        try:

            def find() -> Mapping[str, uuid.UUID]:
                return identities.topic_ids_of_logs(self.view, self.broker_id, held)

            await self.session.retry_until_connected(lambda: self.lifecycle.give_back_ids(find))
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"topics have no ids at zookeeper.connect={self._settings.connect}: {fault}") from None

    async def check_is_free(self, endpoints: tuple[ListenerConfig, ...]) -> None:
        """Raises ConfigError when another broker, at other addresses than these, is registered with our number."""
        try:
            await self.session.retry_until_connected(lambda: self.lifecycle.registration.check_is_free(endpoints))
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        await self.lifecycle.register(endpoints, rack)

    def distrust_logs(self) -> None:
        self._registration_files.is_distrusted = True
        asyncio.get_running_loop().run_in_executor(None, self._registration_files.distrust)

    def admit_lost_tail(self) -> None:
        self._registration_files.admit_lost_tail()

    def leave_isrs(self, partitions: Iterable[TopicPartition]) -> None:
        self.lifecycle.leave_isrs(partitions)

    async def begin_to_stop(self) -> None:
        try:
            async with self.writes.allowed():
                await self.lifecycle.begin_to_stop()
        except KafkaError as fault:
            logger.warning("broker %d cannot announce that it is about to stop: %s", self.broker_id, fault.message)

    async def unregister(self) -> None:
        await self.lifecycle.unregister()

    async def adopt(self, topics: Iterable[cluster_metadata.TopicRecord]) -> None:
        """Create topics in ZooKeeper whose data are in this broker's directories, all of them on this broker. Raises
        ConfigError, KafkaError."""
        topics = list(topics)
        with reaching(self.session):
            await adopt_topics(topics, self.session, self.view, self.broker_id)
            await self.lifecycle.reader.refresh(znode_paths.topic(topic.name) for topic in topics)

    async def delete_cluster_id(self) -> None:
        """Delete the cluster id if there is no other node, for a broker that failed to bring its topics. Otherwise the
        next start would find a cluster without topics.
        """
        if not (self.view.assignments or self.view.brokers):
            with suppress(Unavailable, OperationFailed):
                await self.session.write([Delete(znode_paths.CLUSTER_ID)])

    async def stop(self) -> None:
        self._catch_up.stop()
        await self.lifecycle.stop()
        await self.isr_writes.stop()
        self._isr_change_notification.stop()

    def _notify_path_listeners(self, paths: Sequence[str]) -> None:
        for listener in tuple(self._path_listeners):
            listener(paths)
