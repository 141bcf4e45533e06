"""The registry of a cluster: everything stands in ZooKeeper, and each broker has all of it in memory.

    watches say which paths changed  ->  they are read again together  ->  the view takes them in  ->  listeners

One task follows (`_follow`). After each new connection it sees to this broker's own node and reads everything again;
nothing is taken in from a ZooKeeper that has another cluster id, such as one that lost its data.

    UNREGISTERED --register--> MEMBER <--connection--> DISCONNECTED
    DISCONNECTED --expired, or a peer says so--> FENCED --registered--> MEMBER

Source: kafka.controller.KafkaController (what is watched), kafka.server.KafkaServer (order of the start),
kafka.zookeeper.ZooKeeperClient (reconnecting).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    BrokerRecord,
    Change,
    ClusterMetadata,
    Listener,
    PartitionRecord,
    TopicRecord,
)
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.zk.client.operations import Connection, Delete, Node, OperationFailed, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster import producer_id_blocks, topic_ids
from kafkalite.zk.cluster.broker_registration import BrokerRegistration
from kafkalite.zk.cluster.cluster_id import agree_on_cluster_id, generate_broker_id, read_cluster_id
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.cluster_writes import ClusterWrites, reaching
from kafkalite.zk.cluster.condition_waiters import ConditionWaiters
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.cluster.standalone_migration import JournalMigration, adopt_topics
from kafkalite.zk.cluster.view_loader import ViewReader
from kafkalite.zk.znodes import znode_paths

logger = logging.getLogger(__name__)

_PATIENCE_MS = 30_000  # for the controller to carry out what was written; clients wait as long
_BELIEVED_WITHIN_MS = 2_000  # a change that is asked for in the first moments of a connection waits as long
_PAUSE_MS = 500  # before something that went wrong is tried again
PathListener = Callable[[Iterable[str]], None]


class ZooKeeperMetadata(ClusterMetadata):
    """See the module. `data_dirs` are this broker's directories, locked: the first has the file of its sessions.

    `broker_id` -1 is taken from ZooKeeper's count at the start, above `reserved_broker_max_id`. `cluster_id` is that of
    meta.properties, None if there is none. With `adopts` a journal that an embedded registry left in a data directory
    is handed over, and ZooKeeper may get that cluster id. Writes wait for the controller up to `patience_ms`.
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
        reserved_broker_max_id: int = 1000,
        patience_ms: int = _PATIENCE_MS,
    ) -> None:
        self.broker_id = broker_id
        self.view = ClusterView()
        self._settings = settings
        self._clock = clock
        self._stored_cluster_id = cluster_id
        self._cluster_id = ""
        self._reserved_broker_max_id = reserved_broker_max_id
        self._patience_ms = patience_ms
        self._migration = JournalMigration(data_dirs, adopts)
        self._own_sessions = SessionFile(data_dirs[0])
        self._listeners: list[Listener] = []
        self._path_listeners: list[PathListener] = []
        self._standing = RegistrationState.UNREGISTERED
        self._member_session = 0  # the session in which this broker was registered last
        self._waiting = ConditionWaiters(clock)
        self._all_is_stale = False  # everything is to be read again
        self._is_believed = False  # what this connection leads to is our cluster
        self._is_doubtful = False  # and whether this broker is registered is to be looked at
        self._woken = asyncio.Event()
        self._said = ""
        self._follower: asyncio.Task[None] | None = None
        self._session: ZooKeeperSession | None = None
        self._reader: ViewReader | None = None
        self._registration: BrokerRegistration | None = None
        self._writes: ClusterWrites | None = None

    # -- what is known

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        return self.view.topics

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.view.broker_configs

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        return self.view.brokers

    @property
    def controller_id(self) -> int:
        return self.view.controller_id

    @property
    def registration_state(self) -> RegistrationState:
        return self._standing

    @property
    def session(self) -> ZooKeeperSession:
        """Valid after `start`."""
        assert self._session is not None, "not started"
        return self._session

    @property
    def last_transaction(self) -> int:
        return self._require_reader().last_transaction

    def is_deletion_ordered(self, name: str) -> bool:
        return name in self._require_reader().ordered

    def has_unresolved_topic(self, name: str) -> bool:
        return name not in self.view.topics and znode_paths.topic(name) in self.view.paths

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_paths(self, listener: PathListener) -> Callable[[], None]:
        """Call `listener` with the paths whenever the view has taken in what was read from them, also if it learned
        nothing: the controller sees to what clients do not see. Returns what ends that."""
        self._path_listeners.append(listener)
        return lambda: self._path_listeners.remove(listener)

    async def catch_up(self) -> None:
        """What the session has told of so far is in the view when this returns: all that happened in ZooKeeper before
        the last answer. Raises Unavailable, OperationFailed."""
        await self._require_reader().refresh()

    # -- from start to stop

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        session = ZooKeeperSession(loop, self._settings, changed=self._on_paths, connection=self._on_connection)
        self._session = session
        self._reader = ViewReader(session, self.view, self._tell, self._taken_in)
        await session.start()
        try:
            await self._join(session, self._reader)
        except (Unavailable, OperationFailed, KafkaError) as fault:
            await self.stop()
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None
        except BaseException:
            await self.stop()
            raise

    async def _join(self, session: ZooKeeperSession, reader: ViewReader) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._own_sessions.load)
        await session.sync()
        founds = self._migration.has_journal or self._migration.adopts
        self._cluster_id = await agree_on_cluster_id(session, self._stored_cluster_id, founds=founds)
        self._is_believed = True
        await session.make_paths(znode_paths.PERSISTENT)
        if self.broker_id < 0:
            self.broker_id = await generate_broker_id(session, self._reserved_broker_max_id)
            logger.info("this broker has got broker.id=%d", self.broker_id)
        self._registration = BrokerRegistration(session, self._own_sessions, self.broker_id, self._clock, self._gone)
        self._writes = ClusterWrites(session, self.view, reader.refresh, self._comes_true)
        await self._registration.clear_old()
        self._all_is_stale = False  # a connection that comes from here on says so again
        await reader.watch()
        await reader.read_all()
        self._follower = loop.create_task(self._follow(), name="kafkalite-zookeeper")
        await self._migration.carry_out(self, self.view, session, self.broker_id)
        await reader.refresh()

    async def return_ids(self, held: topic_ids.Held) -> None:
        try:
            await self._give_back(topic_ids.held_by(self.view, self.broker_id, held))
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"topics have no ids at zookeeper.connect={self._settings.connect}: {fault}") from None

    async def _give_back(self, ids: Mapping[str, uuid.UUID]) -> None:
        if ids:
            logger.info("giving their ids back to %s", ", ".join(sorted(ids)))
            await self._require_reader().refresh(await topic_ids.give_back(self.session, self.view, ids))

    async def check_is_free(self, endpoints: tuple[ListenerConfig, ...]) -> None:
        """Raises ConfigError when another broker, at other addresses than these, is registered with our number."""
        try:
            await self._require_registration().check_is_free(endpoints)
        except (Unavailable, OperationFailed) as fault:
            raise ConfigError(f"zookeeper.connect={self._settings.connect}: {fault}") from None

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        registration = self._require_registration()
        registration.endpoints, registration.rack = endpoints, rack
        try:
            node = await registration.hold(patience_ms=self.session.session_timeout_ms)
            await self._require_reader().refresh([znode_paths.broker(self.broker_id)])
        except (Unavailable, OperationFailed) as fault:
            registration.endpoints = None
            raise ConfigError(f"cannot register at zookeeper.connect={self._settings.connect}: {fault}") from None
        except BaseException:
            registration.endpoints = None
            raise
        self._joined(node)

    async def unregister(self) -> None:
        registration = self._require_registration()
        if registration.endpoints is None:
            return
        registration.endpoints = None
        self._stand(RegistrationState.UNREGISTERED)
        try:
            await registration.release()
            await self._require_reader().refresh([znode_paths.broker(self.broker_id)])
        except (Unavailable, OperationFailed) as fault:
            logger.warning("broker %d stays registered until its session ends: %s", self.broker_id, fault)

    async def adopt(self, topics: Iterable[TopicRecord]) -> None:
        """Make topics in ZooKeeper whose data are in this broker's directories, all of them on this broker. Raises
        ConfigError, KafkaError."""
        topics = list(topics)
        with reaching(self.session):
            await adopt_topics(topics, self.session, self.view, self.broker_id)
            await self._require_reader().refresh(znode_paths.topic(topic.name) for topic in topics)

    async def delete_cluster_id(self) -> None:
        """This broker cannot bring its topics here after all: if there is nothing else, take the cluster's id away, or
        the next start would believe that there are no topics."""
        if not (self.view.assignments or self.view.brokers):
            with suppress(Unavailable, OperationFailed):
                await self.session.write([Delete(znode_paths.CLUSTER_ID)])

    async def stop(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            with suppress(asyncio.CancelledError):
                await follower
        self._waiting.close()
        if self._session is not None:
            await self._session.stop()

    def fence(self, why: str) -> None:
        """A broker that is connected says that this one is not among the brokers any more."""
        if self._standing is RegistrationState.DISCONNECTED:
            logger.warning("broker %d leads nothing from now on: %s", self.broker_id, why)
            self._stand(RegistrationState.FENCED)

    # -- what changes

    def _on_paths(self, changed: Iterable[str]) -> None:
        if self._require_reader().note(changed):
            self._woken.set()

    def _on_connection(self, connection: Connection) -> None:
        lost_session = self.session.session_id != self._member_session
        self._is_believed = False
        if connection is Connection.CONNECTED:
            self._all_is_stale = True
            self._woken.set()
        if connection is Connection.EXPIRED or (connection is Connection.CONNECTED and lost_session):
            if self._standing in (RegistrationState.MEMBER, RegistrationState.DISCONNECTED):
                self._stand(RegistrationState.FENCED)
        elif connection is not Connection.CONNECTED and self._standing is RegistrationState.MEMBER:
            self._stand(RegistrationState.DISCONNECTED)

    async def _follow(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                if self._all_is_stale or self._is_doubtful:
                    await self._take_stock()
                else:
                    await self._require_reader().refresh()
                if self.view.without_id:
                    await self._give_back(topic_ids.remembered(self.view))
                self._said = ""
            except ConfigError as fault:
                self._try_again(str(fault))
            except (Unavailable, OperationFailed) as fault:
                self._all_is_stale = True
                self._try_again(str(fault))
            except Exception as fault:
                logger.exception("what changed in ZooKeeper could not be followed; everything is read again")
                self._all_is_stale = True
                self._try_again(repr(fault))

    def _try_again(self, why: str) -> None:
        self._is_doubtful = True
        if self.session.is_connected:  # else the next connection wakes it
            if why != self._said:
                logger.error("broker %d: %s; it is tried again", self.broker_id, why)
                self._said = why
            self._clock.call_later(_PAUSE_MS, self._woken.set)

    async def _take_stock(self) -> None:
        """After a new connection, and whenever something may have been missed: be registered, and know everything."""
        await self.session.sync()  # an old picture would be one of topics that are not there yet, and so of lost data
        found = await read_cluster_id(self.session)
        if found != self._cluster_id:
            raise ConfigError(
                f"zookeeper.connect={self._settings.connect} leads to the cluster {found or '(none)'} now, not to "
                f"{self._cluster_id}: nothing of it is believed"
            )
        self._is_believed = True
        self._waiting.look()
        registration, reader = self._require_registration(), self._require_reader()
        self._is_doubtful = False
        node = taken = None
        try:
            node = await registration.hold() if registration.endpoints is not None else None
        except ConfigError as fault:
            taken = fault
        is_stale, self._all_is_stale = self._all_is_stale, False
        await (reader.read_all() if is_stale else reader.refresh([znode_paths.broker(self.broker_id)]))
        if taken is not None:
            raise taken
        if node is not None and registration.endpoints is not None:
            self._joined(node)

    def _joined(self, node: Node) -> None:
        """Registered, with all that is known up to date; unless that has changed again meanwhile."""
        now = self.view.node(znode_paths.broker(self.broker_id))
        if now is None or now.czxid != node.czxid or node.ephemeral_owner != self.session.session_id:
            self._is_doubtful = True
            self._clock.call_later(_PAUSE_MS, self._woken.set)
        elif self.session.is_connected:
            self._member_session = node.ephemeral_owner
            self._stand(RegistrationState.MEMBER)

    def _taken_in(self, changed: Sequence[str]) -> None:
        for listener in tuple(self._path_listeners):
            listener(changed)
        self._check_own_node()
        self._waiting.look()

    def _check_own_node(self) -> None:
        """Somebody took it away, or ZooKeeper did and has not said so yet: this broker has left for the others."""
        if self._standing is RegistrationState.MEMBER:
            node = self.view.node(znode_paths.broker(self.broker_id))
            if node is None or node.ephemeral_owner != self._member_session:
                logger.warning("broker %d is not registered any more; registering it again", self.broker_id)
                self._stand(RegistrationState.FENCED)
                self._is_doubtful = True
                self._woken.set()

    def _stand(self, standing: RegistrationState) -> None:
        if standing is not self._standing:
            is_well = standing in (RegistrationState.MEMBER, RegistrationState.UNREGISTERED)
            logger.log(logging.INFO if is_well else logging.WARNING, "broker %d: %s", self.broker_id, standing.value)
            self._standing = standing
            self._tell(Change.REGISTRATION, "")

    def _tell(self, change: Change, name: str) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change, name)
            except Exception:
                logger.exception("a listener failed on %s of %s", change.value, name)

    async def _gone(self, path: str, deadline_ms: int) -> bool:
        await self._require_reader().refresh([path])
        return await self._waiting.until(lambda: path not in self.view.paths, deadline_ms)

    async def _comes_true(self, condition: Callable[[], bool]) -> bool:
        return await self._waiting.until(condition, self._clock.monotonic_ms() + self._patience_ms)

    def _require_reader(self) -> ViewReader:
        assert self._reader is not None, "not started"
        return self._reader

    def _require_registration(self) -> BrokerRegistration:
        assert self._registration is not None, "not started"
        return self._registration

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[ClusterWrites]:
        """For one change. A new connection may lead to another cluster, which is not to be changed."""
        if self._writes is None or self._follower is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "This broker has left ZooKeeper: it changes nothing any more."
            )
        with reaching(self.session):
            if self.session.is_connected and not self._is_believed:
                deadline_ms = self._clock.monotonic_ms() + _BELIEVED_WITHIN_MS
                if not await self._waiting.until(lambda: self._is_believed, deadline_ms):
                    raise Unavailable(f"it has yet to be seen whether it is still that of cluster {self._cluster_id}")
            yield self._writes

    # -- what is changed

    async def create_topic(self, topic: TopicRecord) -> None:
        async with self._writing() as writes:
            await writes.create_topic(topic)

    async def delete_topic(self, name: str) -> None:
        async with self._writing() as writes:
            if (
                name in self.view.assignments
            ):  # a deletion may be carried out without this broker hearing more of it than the end
                self._require_reader().ordered.add(name)
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

    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        async with self._writing() as writes:
            await writes.set_leader_epoch(name, partition, leader_epoch)

    async def skip_producer_ids(self, last: int) -> None:
        async with self._writing():
            await producer_id_blocks.skip(self.session, self.broker_id, last)

    async def next_producer_id_block(self) -> range:
        async with self._writing():
            return await producer_id_blocks.next_block(self.session, self.broker_id)
