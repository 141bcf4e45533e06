"""This broker as a member of its cluster: registered with its advertised addresses, and fenced if it was removed.

A broker that cannot reach ZooKeeper continues to lead its partitions, since ZooKeeper may be down for all brokers. But
its session may have expired and new leaders may be elected. So after the session timeout `FencingMonitor` asks the
other brokers repeatedly, and this broker stops leading as soon as one of them reports that it is no member.
Source: kafka.server.KafkaServer (startup, createBrokerInfo, shutdown), KafkaZkClient.registerBroker.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping

from kafkalite.client.broker_channel import SecurityTo
from kafkalite.common.clock import Clock, ConditionWaiters, within
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.log.directories.log_directories import LogDirectories
from kafkalite.metadata.cluster_metadata import Change, ClusterMetadata, PartitionRecord, RegistrationState
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.server.membership.fencing_monitor import FencingMonitor, find_witness
from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests
from kafkalite.server.membership.single_broker import Adopted, adopt
from kafkalite.zk.client.zookeeper_config import Dial, ZooKeeperConfig
from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata
from kafkalite.zk.controller.controller import Controller

logger = logging.getLogger(__name__)

_EVERY_INTERFACE = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")
_WITNESS_TIMEOUT_MS = 2_000
READY_TIMEOUT_MS = 10_000  # a start waits so long for leaders; then it serves the partitions that have one


async def advertised_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[ListenerConfig, ...]:
    """The addresses that others dial, one for each listener that is bound to one of `ports`: the advertised one, or
    where it listens. A listener on every interface gets the name of this machine."""
    endpoints = []
    for listener in config.listeners:
        if listener.name not in ports:
            continue
        endpoint = config.advertised(listener.name)
        if endpoint is None:
            host = listener.host
            if host in _EVERY_INTERFACE:  # may ask a name server
                host = await asyncio.get_running_loop().run_in_executor(None, socket.getfqdn)
            endpoint = listener._replace(host=host, port=ports[listener.name])
        endpoints.append(endpoint)
    return tuple(endpoints)


class ClusterMember:
    """The additional parts of a broker in a cluster: the cluster's metadata from the beginning, and from `join` to
    `leave` its registration, the metadata applier, and its controller, which is active if it is elected.

    `adopted` says after `claim` which topics were brought into the cluster from its directories; None if none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        directories: LogDirectories,
        security_to: SecurityTo,
        *,
        adopts: bool,
        dial_zookeeper: Dial | None = None,
    ) -> None:
        """Raises ConfigError for settings that do not go together."""
        broker_id = config.broker_id
        if broker_id < 0 and directories.stored_broker_id is not None:
            broker_id = directories.stored_broker_id
        self.adopted: Adopted | None = None
        self.metadata = ZooKeeperMetadata(
            ZooKeeperConfig.of(config, dial_zookeeper),
            [directory.path for directory in directories.online],
            clock,
            broker_id=broker_id,
            cluster_id=directories.stored_cluster_id,
            adopts=adopts,
            clean=[each.path for each in directories.online if each.meta is not None and each.last_shutdown.clean],
            min_insync_replicas=config.min_insync_replicas,
            reserved_broker_max_id=config.reserved_broker_max_id,
            with_acls=bool(config.authorizer_class_name),
            with_tokens=bool(config.token_secret),
        )
        self._config = config
        self._clock = clock
        self._security_to = security_to
        self._directories = directories
        self._adopts = adopts
        self._applier: MetadataApplier | None = None
        self._fencing = FencingMonitor(
            self.metadata, clock, config.zookeeper_session_timeout_ms, self._find_witness, self.metadata.lifecycle.fence
        )
        self._controller = Controller(self.metadata, clock, config)
        self.partition_admin = self._controller.partition_admin
        self.isr_states = self.metadata.isr_writes
        self.controller_stats = self._controller.stats

    @property
    def broker_id(self) -> int:
        """The start of `metadata` generates one if none is configured."""
        return self.metadata.broker_id

    @property
    def default_replication_factor(self) -> int:
        return self._config.default_replication_factor

    def inter_broker_requests(self) -> InterBrokerRequests:
        listener = self._config.inter_broker_listener
        return InterBrokerRequests(self.metadata, self.broker_id, listener, self._clock, self._security_to)

    def legacy_offsets(self) -> LegacyOffsets:
        return LegacyOffsets(self.metadata.session)

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config
        self._controller.reconfigure(config)

    async def claim(self) -> None:
        """Before the directories are marked as belonging to this cluster: check that no other broker has this one's id,
        and adopt if that was asked for. Raises ConfigError."""
        ports = {listener.name: listener.port for listener in self._config.listeners}
        await self.metadata.check_is_free(await advertised_endpoints(self._config, ports))
        if self._adopts:
            await self._adopt()

    async def _adopt(self) -> None:
        """Bring topics in the directories that ZooKeeper does not know, because it may have lost its data, into the
        cluster. Raises ConfigError when they are not whole: partitions on other brokers would begin empty here."""
        directories, known = self._directories, self.metadata.view.assignments
        unknown = {name: topic for name, topic in directories.stored_topics().items() if name not in known}
        if not unknown:
            return
        adopted = adopt(unknown, {}, self.broker_id, some_are_offline=bool(directories.offline))
        fault = None
        if directories.offline:
            fault = f"--adopt needs all of log.dirs: {directories.offline[0].failure}"
        for name, indexes in adopted.missing.items():
            some = ", ".join(map(str, indexes[:8])) + (", ..." if len(indexes) > 8 else "")
            fault = (
                f"--adopt: ZooKeeper does not know of {name}, whose partitions {some} are not in log.dirs but with "
                f"other brokers: give ZooKeeper its data back, or move {name}-* out of log.dirs"
            )
        if fault is not None:
            await self.metadata.delete_cluster_id()
            raise ConfigError(fault)
        await self.metadata.adopt(adopted.records)
        self.adopted = adopted

    async def join(self, applier: MetadataApplier, ports: Mapping[str, int]) -> None:
        """Register. Returns when the partitions that this broker is to lead are open, or after a while: a controller
        elects the leaders, and there may be none. Raises ConfigError when a live broker has this id."""
        self._applier = applier
        applier.start()
        self._fencing.session_timeout_ms = self.metadata.session.session_timeout_ms  # agreed with the servers
        self._fencing.start()
        await self.metadata.register(await advertised_endpoints(self._config, ports), self._config.broker_rack)
        self._controller.start()
        try:
            await within(self._clock, READY_TIMEOUT_MS, applier.wait_until_led())
        except TimeoutError:
            logger.warning(
                "not all that is kept here has a leader after %d ms; what has one is served", READY_TIMEOUT_MS
            )

    async def advertise(self, ports: Mapping[str, int]) -> None:
        """Schedule a registration with the current listeners."""
        await self.metadata.register(await advertised_endpoints(self._config, ports), self._config.broker_rack)

    def end_threads(self) -> None:
        """Does nothing: the thread of ZooKeeper's client ends with its connection."""

    async def leave(self) -> None:
        """Unregister from the cluster. When this returns, this broker leads no partition. Waits before until others
        lead the partitions that have several replicas, if the controller finds others that can."""
        if self._config.controlled_shutdown_enable:
            pauses_ms = self._config.controlled_shutdown_max_retries * self._config.controlled_shutdown_retry_backoff_ms
            await hand_over(self.metadata, self.broker_id, self._clock, pauses_ms)
        await self._fencing.stop()
        await self._controller.stop()  # another one elects new leaders of the partitions that were led here
        await self.metadata.unregister()
        if self._applier is not None:
            await self._applier.stop()

    async def _find_witness(self) -> int | None:
        brokers = dict(self.metadata.brokers)
        us = brokers.pop(self.broker_id, None)
        if us is None:
            return None
        return await find_witness(
            us,
            self.metadata.cluster_id,
            brokers.values(),
            self._clock,
            _WITNESS_TIMEOUT_MS,
            listener=self._config.inter_broker_listener,
            security_to=self._security_to,
        )


_HEARD = (Change.PARTITION_STATE, Change.TOPIC_DELETED, Change.BROKERS, Change.REGISTRATION)


async def hand_over(metadata: ClusterMetadata, broker_id: int, clock: Clock, timeout_ms: float) -> None:
    """Hands leadership over before a broker stops. Returns when no other broker could take over a partition from
    `broker_id`, or after `timeout_ms`.

    The broker announces that it is about to stop. From then on the controller elects others where it can, and no leader
    takes this broker into an ISR; the broker continues to serve what it still leads. It waits for partitions that
    another broker might lead: one with a replica that lives and does not stop, even if that has to catch up before. A
    broker whose partitions have no other replica, or none that lives, need not wait. Kafka's broker sends
    ControlledShutdown to the controller, and waits also if no other replica lives.
    Source: kafka.server.KafkaServer.controlledShutdown, kafka.controller.KafkaController.doControlledShutdown.
    """
    shared = {key for key, state in _partitions(metadata) if broker_id in state.replicas and len(state.replicas) > 1}
    if not shared or not _is_member(metadata):
        return
    await metadata.begin_to_stop()
    if not _is_stopping(metadata, broker_id):
        return  # it was not announced, so no other broker would act on it
    waiters = ConditionWaiters(clock)
    unlisten = metadata.listen(lambda change, name: waiters.check() if change in _HEARD else None)
    led = shared

    def is_over() -> bool:
        nonlocal led
        led = {key for key in led if _is_led_until_another_is(metadata, key, broker_id)}
        return not led or not _is_member(metadata)

    try:
        await waiters.until(is_over, int(clock.monotonic_ms() + timeout_ms))
    finally:
        unlisten()
    if led:
        logger.warning("%d partitions are still led here, and the broker stops nevertheless", len(led))
        return
    logger.info("leadership of the partitions that others have as well is handed over")


def _is_led_until_another_is(metadata: ClusterMetadata, key: TopicPartition, broker_id: int) -> bool:
    topic = metadata.topics.get(key[0])
    state = topic.partitions.get(key[1]) if topic is not None else None
    if state is None or state.leader != broker_id:
        return False
    brokers = metadata.brokers
    return any(one in brokers and not brokers[one].stopping for one in state.replicas if one != broker_id)


def _is_member(metadata: ClusterMetadata) -> bool:
    return metadata.registration_state is RegistrationState.MEMBER


def _is_stopping(metadata: ClusterMetadata, broker_id: int) -> bool:
    broker = metadata.brokers.get(broker_id)
    return broker is not None and broker.stopping


def _partitions(metadata: ClusterMetadata) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
    for topic in metadata.topics.values():
        for index, state in topic.partitions.items():
            yield (topic.name, index), state
