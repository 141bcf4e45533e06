"""This broker as a member of its cluster: registered at what others are to dial, and fenced when it is not.

Whoever cannot reach ZooKeeper goes on with what it leads, for ZooKeeper may be down for everybody. But the others may
have seen its session end and gone on without it: when it has been cut off for longer than the session timeout, it asks
them again and again, and leads nothing from the moment on in which one of them says so.
Source: kafka.server.KafkaServer (startup, createBrokerInfo, shutdown), KafkaZkClient.registerBroker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.controller.controller import Controller
from kafkalite.metadata.cluster_metadata import Change
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.metadata.replica_assignment import assign_added_partitions, assign_replicas
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.server.fencing_check import who_misses_us
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.listeners import ListenerConfig
    from kafkalite.log.directories.log_directories import LogDirectories
    from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord

logger = logging.getLogger(__name__)

_EVERY_INTERFACE = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")
_ASK_AGAIN_MS = 1_000
_ANSWER_WITHIN_MS = 2_000
READY_WITHIN_MS = 10_000  # a start waits so long for what the broker is to lead; then it serves what there is

AskPeers = Callable[[], Awaitable[int | None]]
"""Which of the other brokers says that we are no member; None if none does."""


async def endpoints_to_tell(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[ListenerConfig, ...]:
    """What others are told to dial, for each listener: what is advertised, or where it listens. `ports` are those that
    the listeners are bound to. A listener on every interface is told by the name of this machine."""
    told = []
    for listener in config.listeners:
        advertised = config.advertised(listener.name)
        if advertised is None:
            host = listener.host
            if host in _EVERY_INTERFACE:  # may ask a name server
                host = await asyncio.get_running_loop().run_in_executor(None, socket.getfqdn)
            advertised = listener._replace(host=host, port=ports[listener.name])
        told.append(advertised)
    return tuple(told)


class ClusterMember:
    """What a broker has besides when it is one of several: the cluster's registry from the beginning, and from `join`
    to `leave` its registration, the following of what others change, and the candidate for controller."""

    def __init__(self, config: BrokerConfig, clock: Clock, directories: LogDirectories, *, adopts: bool) -> None:
        """Raises ConfigError for settings that do not go together."""
        broker_id = config.broker_id
        if broker_id < 0 and directories.stored_broker_id is not None:
            broker_id = directories.stored_broker_id
        self.registry = ZooKeeperMetadata(
            ZooKeeperConfig.of(config),
            [directory.path for directory in directories.online],
            clock,
            broker_id=broker_id,
            cluster_id=directories.stored_cluster_id,
            adopts=adopts,
            reserved_broker_max_id=config.reserved_broker_max_id,
        )
        self._config = config
        self._clock = clock
        self._applier: MetadataApplier | None = None
        self._doubt = FencingMonitor(
            self.registry, clock, config.zookeeper_session_timeout_ms, self._ask_peers, self.registry.fence
        )
        self._controller = Controller(self.registry, clock, config)

    def assign(self, partition_count: int, states: Mapping[int, PartitionRecord]) -> dict[int, tuple[int, ...]]:
        """Where so many more partitions go, besides those that a topic has. Each gets one replica: nobody copies
        records. Raises KafkaError."""
        racks = {broker.broker_id: broker.rack for broker in self.registry.brokers.values()}
        if not states:
            return assign_replicas(racks, partition_count, 1)
        return assign_added_partitions(racks, {i: state.replicas[:1] for i, state in states.items()}, partition_count)

    def legacy_offsets(self) -> LegacyOffsets:
        return LegacyOffsets(self.registry.session)

    def reconfigure(self, config: BrokerConfig) -> None:
        self._controller.config = config

    async def check_is_free(self) -> None:
        """Before the directories are anybody's: raises ConfigError when another broker has this one's number."""
        ports = {listener.name: listener.port for listener in self._config.listeners}
        await self.registry.check_is_free(await endpoints_to_tell(self._config, ports))

    async def join(self, applier: MetadataApplier, ports: Mapping[str, int]) -> None:
        """Be known to the others. Returns when that is led which this broker is to lead, or after a while: who leads
        is for a controller to say, and there may be none. Raises ConfigError when a live broker has this id."""
        self._applier = applier
        applier.start()
        self._doubt.session_timeout_ms = self.registry.session.session_timeout_ms  # what the servers agreed to
        self._doubt.start()
        await self.registry.register(await endpoints_to_tell(self._config, ports), self._config.broker_rack)
        self._controller.start()
        overtime = f"not all that is kept here has a leader after {READY_WITHIN_MS} ms; what has one is served"
        if not await _within(self._clock, READY_WITHIN_MS, applier.wait_until_led()):
            logger.warning("%s", overtime)

    async def leave(self) -> None:
        """The others are told first; what is led here is led no longer when this returns."""
        await self._doubt.stop()
        await self._controller.stop()  # another one is to see to what was led here
        await self.registry.unregister()
        if self._applier is not None:
            await self._applier.stop()

    async def _ask_peers(self) -> int | None:
        registry = self.registry
        brokers = dict(registry.brokers)
        us = brokers.pop(registry.broker_id, None)
        if us is None:
            return None
        listener = self._config.inter_broker_listener_name
        return await who_misses_us(
            us, registry.cluster_id, brokers.values(), self._clock, _ANSWER_WITHIN_MS, listener=listener
        )


async def _within(clock: Clock, timeout_ms: float, work: Awaitable[None]) -> bool:
    """Whether `work` is done in time; it is cancelled if not."""
    working = asyncio.ensure_future(work)
    overtime: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(timeout_ms, lambda: None if overtime.done() else overtime.set_result(None))
    try:
        done, _ = await asyncio.wait({working, overtime}, return_when=asyncio.FIRST_COMPLETED)
        return working in done
    finally:
        timer.cancel()
        overtime.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


class FencingMonitor:
    """Is this broker still one of them? `ask_peers` is called when ZooKeeper has been out of reach for
    `session_timeout_ms`, and every second from then on; `fence` with the reason to lead nothing any more."""

    def __init__(
        self,
        registry: ClusterMetadata,
        clock: Clock,
        session_timeout_ms: int,
        ask_peers: AskPeers,
        fence: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._clock = clock
        self.session_timeout_ms = session_timeout_ms
        self._ask_peers = ask_peers
        self._fence = fence
        self._timer: Timer | None = None
        self._asking: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unlisten = self._registry.listen(self._heard)

    async def stop(self) -> None:
        self._unlisten()
        self._unlisten = lambda: None
        asking = self._asking
        self._cancel()
        if asking is not None:
            await asyncio.wait({asking})

    def _heard(self, change: Change, name: str) -> None:
        if change is not Change.REGISTRATION:
            return
        if self._registry.registration_state is RegistrationState.DISCONNECTED:
            if self._timer is None and self._asking is None:
                self._timer = self._clock.call_later(self.session_timeout_ms, self._begin_asking)
            return
        self._cancel()

    def _begin_asking(self) -> None:
        self._timer = None
        self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        try:
            witness = await self._ask_peers()
        finally:
            self._asking = None
        if self._registry.registration_state is not RegistrationState.DISCONNECTED:
            return
        if witness is not None:
            self._fence(f"it cannot reach ZooKeeper, and broker {witness} says that the cluster has gone on without it")
        else:
            self._timer = self._clock.call_later(_ASK_AGAIN_MS, self._begin_asking)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
