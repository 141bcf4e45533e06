"""Keeps this broker registered and its view of the cluster up to date, over all connections to ZooKeeper.

    watches notify of changed paths  ->  they are read again together  ->  the view applies them  ->  listeners

One task does this (`_follow`). After each new connection it checks that ZooKeeper still has the same cluster, restores
this broker's own node, and reads everything again; data from a ZooKeeper with another cluster id, such as one that lost
its data, are not applied. The states of the registration are those of `RegistrationState`.
Source: kafka.server.KafkaServer, kafka.zookeeper.ZooKeeperClient (reconnecting).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from kafkalite.common.clock import Clock, ConditionWaiters, Timer
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import DISCONNECTED, ENTERED_FROM, FENCED, MEMBER, UNREGISTERED, Change
from kafkalite.metadata.cluster_metadata import RegistrationState as State
from kafkalite.zk.client.operations import Check, ConnectionState, Node, OperationFailed, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster import identities
from kafkalite.zk.cluster.broker_registration import BrokerRegistration
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.identities import read_cluster_id
from kafkalite.zk.cluster.lost_tail import leave_lists
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.cluster.view_reader import ViewReader
from kafkalite.zk.znodes import znode_paths

logger = logging.getLogger(__name__)

_VERIFIED_WITHIN_MS = 2_000  # also the longest wait of a change for the check of a new connection
_RETRY_DELAY_MS = 500
_ID_ATTEMPTS = 20  # to give ids back while topics are deleted


class BrokerLifecycle:
    """The session, the reader of the view, and the registration.

    `min_insync_replicas` is for topics without a setting. `notify` gets each change of the view, `applied` the paths
    that were read, also when the view has not changed.
    Use: start `session`, `cluster_found`, `follow`, `stop`.
    """

    def __init__(
        self,
        settings: ZooKeeperConfig,
        view: ClusterView,
        clock: Clock,
        broker_id: int,
        own_sessions: SessionFile,
        registration_files: RegistrationFiles,
        *,
        min_insync_replicas: int = 1,
        with_acls: bool = False,
        with_tokens: bool = False,
        notify: Callable[[Change, str], None],
        applied: Callable[[Sequence[str]], None],
    ) -> None:
        self._settings = settings
        self._view = view
        self._clock = clock
        self._notify = notify
        self._applied = applied
        self._min_insync_replicas = min_insync_replicas
        self.cluster_id = ""
        self.registration_state = UNREGISTERED
        self._member_session = 0  # the last session in which this broker was registered
        self._waiters = ConditionWaiters(clock)
        self._view_is_stale = False  # everything must be read again
        self._cluster_is_verified = False  # this connection leads to our cluster
        self._registration_is_doubtful = False  # this broker's own node must be checked
        self._failed: set[TopicPartition] = set()  # partitions whose ISRs this broker has to leave
        self._wake = asyncio.Event()
        self._last_fault = ""
        self._follower: asyncio.Task[None] | None = None
        self.session = ZooKeeperSession(settings, on_change=self._on_paths, on_state=self._on_connection)
        self.lease = SessionLease(self.session, clock)
        self.reader = ViewReader(
            self.session, view, notify, self._on_applied, with_acls=with_acls, with_tokens=with_tokens
        )
        self.registration = BrokerRegistration(
            self.session, own_sessions, registration_files, broker_id, clock, self._until_gone, self._leave_lists
        )

    def cluster_found(self, cluster_id: str) -> None:
        """Sets the cluster to which the present connection leads; the clusters of later connections are compared with
        it."""
        self.cluster_id = cluster_id
        self._cluster_is_verified = True

    async def follow(self) -> None:
        """Read everything, and follow all changes from now on. Raises ConfigError, Unavailable, OperationFailed."""
        self._view_is_stale = False  # a later connection sets it again
        if not self._cluster_is_verified:  # this connection came after `cluster_found`
            await self._verify_cluster()
        await self.reader.watch()
        await self.reader.read_all()
        self.lease.begin()
        self._follower = asyncio.get_running_loop().create_task(self._follow(), name="kafkalite-zookeeper")

    async def stop(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            with suppress(asyncio.CancelledError):
                await follower
        self._waiters.close()
        self.lease.end()
        await self.session.stop()

    # -- the registration

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        """Register; a registered broker changes its endpoints, now or with the next connection. Raises ConfigError,
        which names the broker, if another one has the id."""
        registration = self.registration
        if registration.endpoints is not None:
            registration.endpoints, registration.rack = endpoints, rack
            await self._ensure_registration()
            return
        registration.want(endpoints, rack)
        try:
            node = await self.session.retry_until_connected(self._ensure_registration_with_patience)
        except BaseException as fault:
            registration.endpoints = None
            if isinstance(fault, Unavailable | OperationFailed):
                raise ConfigError(f"cannot register at zookeeper.connect={self._settings.connect}: {fault}") from None
            raise
        self._registered(node)

    async def _ensure_registration_with_patience(self) -> Node:
        """Register at a start. May be repeated after Unavailable."""
        node = await self.registration.hold(patience_ms=self.session.session_timeout_ms)
        await self.reader.refresh(self.registration.paths)
        return node

    async def _ensure_registration(self) -> None:
        """Creates or updates /brokers/ids/N to match the wanted endpoints."""
        try:
            node = await self.registration.hold()
            await self.reader.refresh(self.registration.paths)
        except (ConfigError, Unavailable, OperationFailed):
            self._registration_is_doubtful = True
            self._wake.set()
        else:
            self._registered(node)

    async def begin_to_stop(self) -> None:
        """Mark the registration as about to end. Raises Unavailable, OperationFailed."""
        registration = self.registration
        if registration.endpoints is not None:
            await registration.announce_stop()
            await self.reader.refresh(registration.paths)

    async def unregister(self) -> None:
        registration = self.registration
        if registration.endpoints is None:
            return
        registration.endpoints = None
        self._enter(UNREGISTERED)
        try:
            await registration.release()
            await self.reader.refresh(registration.paths)
        except (Unavailable, OperationFailed) as fault:
            logger.warning("broker %d stays registered until its session ends: %s", registration.broker_id, fault)

    def fence(self, reason: str) -> None:
        """Stop leading: a connected broker has reported that this one is not registered any more."""
        if self.registration_state is DISCONNECTED:
            logger.warning("broker %d leads nothing from now on: %s", self.registration.broker_id, reason)
            self._enter(FENCED)

    def _enter(self, state: State) -> None:
        """Enters `state` if the table allows it from the current state; else does nothing."""
        if self.registration_state in ENTERED_FROM[state]:
            level = logging.INFO if state in (MEMBER, UNREGISTERED) else logging.WARNING
            logger.log(level, "broker %d: %s", self.registration.broker_id, state.value)
            self.registration_state = state
            self._notify(Change.REGISTRATION, "")

    def _registered(self, node: Node) -> None:
        """Enters MEMBER when the view is up to date, unless `node` has changed again meanwhile."""
        now = self._view.node(self.registration.path)
        if now is None or now.czxid != node.czxid or node.ephemeral_owner != self.session.session_id:
            self._registration_is_doubtful = True
            self._clock.call_later(_RETRY_DELAY_MS, self._wake.set)
        elif self.session.is_connected:
            self._member_session = node.ephemeral_owner
            self._enter(MEMBER)

    def _check_own_node(self) -> None:
        """Enters FENCED when the node is gone: deleted by hand, or by ZooKeeper, whose notification of the session's
        end has not arrived yet. Gets a new number when another writer has raised it."""
        if self.registration_state is MEMBER:
            number = self._view.node(self.registration.number_path)
            if number is not None and self.registration.is_outdated(number.version):
                self._registration_is_doubtful = True
                self._wake.set()
            node = self._view.node(self.registration.path)
            if node is None or node.ephemeral_owner != self._member_session:
                logger.warning("broker %d is not registered any more; registering again", self.registration.broker_id)
                self._enter(FENCED)
                self._registration_is_doubtful = True
                self._wake.set()

    # -- the view

    def _on_paths(self, changed: Iterable[str]) -> None:
        if self.reader.note(changed):
            self._wake.set()

    def _on_connection(self, connection: ConnectionState) -> None:
        self._cluster_is_verified = False
        self.reader.miss()
        if connection is ConnectionState.CONNECTED:
            self._view_is_stale = True
            self._wake.set()
            has_expired = self.session.session_id != self._member_session
        else:
            has_expired = connection is ConnectionState.EXPIRED
        if has_expired:
            self._enter(FENCED)
        elif connection is not ConnectionState.CONNECTED:
            self._enter(DISCONNECTED)

    def _on_applied(self, paths: Sequence[str]) -> None:
        self._applied(paths)
        self._check_own_node()
        self._waiters.check()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._view_is_stale or self._registration_is_doubtful:
                    await self._resume()
                else:
                    await self.reader.refresh()
                if self._failed and self.registration_state is MEMBER:
                    await self._leave_isrs()
                if self._view.without_id:
                    await self.give_back_ids(lambda: identities.remembered_topic_ids(self._view))
                self._last_fault = ""
            except ConfigError as fault:
                self._retry_later(str(fault))
            except (Unavailable, OperationFailed) as fault:
                self._view_is_stale = True
                self._retry_later(str(fault))
            except Exception as fault:
                logger.exception("changes in ZooKeeper could not be followed; everything is read again")
                self._view_is_stale = True
                self._retry_later(repr(fault))

    def _retry_later(self, fault: str) -> None:
        self._registration_is_doubtful = True
        if self.session.is_connected:  # else the next connection wakes it
            if fault != self._last_fault:
                logger.error("broker %d: %s; trying again", self.registration.broker_id, fault)
                self._last_fault = fault
            self._clock.call_later(_RETRY_DELAY_MS, self._wake.set)

    async def _verify_cluster(self) -> None:
        """Raises ConfigError when the present connection leads to another cluster."""
        await self.session.sync()  # a lagging server may not have topics yet, as if the data were lost
        found = await read_cluster_id(self.session)
        if found != self.cluster_id:
            raise ConfigError(
                f"zookeeper.connect={self._settings.connect} leads to the cluster {found or '(none)'} now, not to "
                f"{self.cluster_id}: its data are ignored"
            )
        self._cluster_is_verified = True
        self._waiters.check()

    async def _resume(self) -> None:
        """Registers this broker and reads everything, after a new connection or whenever a change may have been
        missed."""
        await self._verify_cluster()
        registration = self.registration
        self._registration_is_doubtful = False
        node = taken = None
        try:
            node = await registration.hold() if registration.endpoints is not None else None
        except ConfigError as fault:
            taken = fault
        is_stale, self._view_is_stale = self._view_is_stale, False
        await (self.reader.read_all() if is_stale else self.reader.refresh(registration.paths))
        if taken is not None:
            raise taken
        if node is not None and registration.endpoints is not None:
            self._registered(node)

    async def give_back_ids(self, find: Callable[[], Mapping[str, uuid.UUID]]) -> None:
        """Write the ids that `find` reads from the view into the nodes of topics that lost them. Raises Unavailable,
        OperationFailed."""
        for _ in range(_ID_ATTEMPTS):
            ids = find()
            if not ids:
                return
            logger.info("giving their ids back to %s", ", ".join(sorted(ids)))
            are_written = await identities.restore_topic_ids(self.session, self._view, ids)
            await self.reader.refresh([znode_paths.TOPIC_DELETIONS, *map(znode_paths.topic, ids)])
            if are_written:
                return

    # -- waiting

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until the condition, which reads the view, is true; returns False at the deadline."""
        return await self._waiters.until(condition, self._clock.monotonic_ms() + timeout_ms)

    def leave_isrs(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave the ISRs of these partitions, whose logs have failed."""
        self._failed.update(partitions)
        self._wake.set()

    async def _leave_isrs(self) -> None:
        failed, broker_id = frozenset(self._failed), self.registration.broker_id
        left = await leave_lists(
            self.session, self._view, self.reader.refresh, broker_id, (), self._min_insync_replicas, failed
        )
        self._failed -= failed
        if left:
            logger.warning("broker %d has left the in-sync replicas of %d partitions: their logs here have failed",
                           broker_id, left)  # fmt: skip

    async def _leave_lists(self, check: Check) -> None:
        if self._view_is_stale:  # the lists may have got this broker while there was no connection
            await self.reader.read_all()
        broker_id = self.registration.broker_id
        left = await leave_lists(
            self.session, self._view, self.reader.refresh, broker_id, [check], self._min_insync_replicas
        )
        if left:
            logger.warning(
                "broker %d may have lost the ends of its logs: it has left the in-sync replicas of %d partitions until "
                "it has caught up",
                broker_id, left,
            )  # fmt: skip

    async def _until_gone(self, path: str, deadline_ms: int) -> bool:
        await self.reader.refresh([path])
        return await self._waiters.until(lambda: path not in self._view.paths, deadline_ms)

    async def until_verified(self) -> None:
        """Wait for a moment until the present connection, if there is one, is known to lead to our cluster, since no
        other is to be changed. Raises Unavailable, also when this broker has left."""
        if self._follower is None:
            raise Unavailable("this broker has left ZooKeeper")
        if not self.session.is_connected:
            return
        if not await self.until(lambda: self._cluster_is_verified, _VERIFIED_WITHIN_MS):
            raise Unavailable(f"it is not verified yet that it still belongs to cluster {self.cluster_id}")


_RENEWALS = 3  # in a session timeout


class SessionLease:
    """The time until which ZooKeeper cannot have ended this broker's session. Use: `begin` once the session is
    connected, `end`.

    The server ends a session when it has received nothing for the session timeout. So the session lives at least that
    long after the sending of the last request that has been answered. A broker that was paused for longer, such as by
    SIGSTOP or a migration of its machine, finds the lease expired before any notification arrives.
    Source: Gray and Cheriton, Leases (SOSP 1989).
    """

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._until_ms = 0
        self._timer: Timer | None = None
        self._renewal: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        return self._clock.monotonic_ms() < self._until_ms

    def begin(self) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="kafkalite-zookeeper-lease")

    def end(self) -> None:
        self._until_ms = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    async def _renew(self) -> None:
        sent_ms = self._clock.monotonic_ms()
        try:
            await self._session.sync()
        except (Unavailable, OperationFailed):
            pass  # the present lease stays
        else:
            self._until_ms = sent_ms + self._session.session_timeout_ms
        self._timer = self._clock.call_later(self._session.session_timeout_ms // _RENEWALS, self.begin)
