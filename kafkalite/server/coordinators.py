"""The coordinators of a broker, of groups and of transactions, with the topics that keep their state.

Source: kafka.server.BrokerServer (groupCoordinator, transactionCoordinator, addPartitionsToTxnManager).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.common.names import GROUP_METADATA_TOPIC, NO_LEADER, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkalite.config.group_config import GroupConfig, GroupConfigs, begins_at
from kafkalite.coordinator.add_partitions_manager import AddPartitionsToTxnManager, send_nothing
from kafkalite.coordinator.group.consumer import group_environment
from kafkalite.coordinator.group.group import SHARE
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.internal_topic import InternalTopic
from kafkalite.coordinator.internal_topic_settings import consumer_offsets, share_state, transaction_state
from kafkalite.coordinator.marker_writer import MarkerAppender, MarkerWriter, no_other_brokers
from kafkalite.coordinator.share_coordinator import ShareCoordinator, ShareStateLoader
from kafkalite.coordinator.transaction_coordinator import ProducerIdManager, TransactionCoordinator
from kafkalite.coordinator.transaction_store import TransactionLoader
from kafkalite.metadata.cluster_metadata import Change
from kafkalite.server.metadata_followers import follow_group_configs
from kafkalite.server.share_states import ShareStateClient
from kafkalite.server.topics_view import TopicsView

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalite.common.clock import Clock, PeriodicTasks
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.group_config import GroupConfig
    from kafkalite.coordinator.group.share.share_group import ShareGroupConfig
    from kafkalite.coordinator.group.streams.streams_environment import StreamsGroupConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.replication.share.share_partitions import ShareReading
    from kafkalite.replication.topic_admin import TopicAdmin
    from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests


logger = logging.getLogger(__name__)

_READINGS_MAX = 1_000
_LOAD_GRACE_MS = 100  # a small state loads within it; with more, clients get COORDINATOR_LOAD_IN_PROGRESS


class Coordinators:
    """`groups` and `transactions`, each with its topic; `internal_topics` has both by their names.

    `config` gives the current settings. `requests` sends requests to the other brokers of a cluster; None for a broker
    alone.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        metadata: ClusterMetadata,
        logs: LogManager,
        replica_manager: ReplicaManager,
        topic_admin: TopicAdmin,
        broker_id: int,
        requests: InterBrokerRequests | None,
    ) -> None:
        self.offsets_topic = InternalTopic(
            consumer_offsets(config()),
            GroupLoader,
            clock,
            replica_manager,
            topic_admin,
            config().offsets_commit_timeout_ms,
        )
        self._topics = TopicsView(metadata)
        self._stop_listening = metadata.listen(self._on_metadata)
        self.group_configs = GroupConfigs(config())
        self._last_streams_config: tuple[GroupConfig, BrokerConfig, StreamsGroupConfig] | None = None
        self._metadata = metadata
        self._config = config
        self._stop_following: Callable[[], None] | None = None
        self._share_readings: dict[str, tuple[GroupConfig, ShareReading]] = {}
        self._add_share_coordinator(clock, replica_manager, topic_admin, broker_id, requests)
        self._add_group_coordinator(clock)
        writes = metadata.writes
        self.producer_ids = ProducerIdManager(
            writes.next_producer_id_block, writes.skip_producer_ids, logs.highest_producer_id
        )
        self.markers = MarkerAppender(replica_manager, clock, self.groups.offsets)
        self.transaction_topic = InternalTopic(
            transaction_state(config()), TransactionLoader, clock, replica_manager, topic_admin
        )
        send_markers = no_other_brokers if requests is None else requests.send_markers
        self.transactions = TransactionCoordinator(
            config,
            clock,
            self.transaction_topic.append,
            MarkerWriter(broker_id, replica_manager.leader_of, self.markers, send_markers, clock),
            self.producer_ids,
            coordinator_epoch=self.transaction_topic.leader_epoch,
            group_partition=self.offsets_topic.partition_for,
        )
        self.transaction_topic.attach(self.transactions.store)
        self._replica_manager = replica_manager
        self.add_partitions = self._add_partitions_manager(config, clock, broker_id, requests)
        self._loading: list[asyncio.Future[None]] = []
        self.internal_topics = {
            GROUP_METADATA_TOPIC: self.offsets_topic,
            TRANSACTION_STATE_TOPIC: self.transaction_topic,
            SHARE_STATE_TOPIC: self.share_topic,
        }
        self._subscribe(replica_manager)

    def _add_group_coordinator(self, clock: Clock) -> None:
        config = self._config
        settings = group_environment.ConsumerGroupSettings(config, self.group_configs)
        self.group_totals = group_environment.GroupTotals()
        environment = group_environment.GroupEnvironment(self._topics, settings.of, _compile_regex, self.group_totals)
        self.groups = GroupCoordinator(
            config(),
            clock,
            self.offsets_topic.append,
            environment,
            share_config=self._share_config,
            states=self.share_states,
            streams_config=self._streams_config,
        )
        self.offsets_topic.attach(self.groups.store)

    def _add_share_coordinator(
        self,
        clock: Clock,
        replica_manager: ReplicaManager,
        topic_admin: TopicAdmin,
        broker_id: int,
        requests: InterBrokerRequests | None,
    ) -> None:
        config = self._config
        self.share_topic = InternalTopic(
            share_state(config()),
            ShareStateLoader,
            clock,
            replica_manager,
            topic_admin,
            config().share_coordinator_write_timeout_ms,
        )
        self.shares = ShareCoordinator(
            config, clock, self.share_topic.append, self._partition_count, self.share_topic.end_offset
        )
        self.share_topic.attach(self.shares.store)
        self.end_offsets = EndOffsets(replica_manager, requests)
        self.share_states = ShareStateClient(self.shares, self.share_topic, replica_manager, broker_id, clock, requests)

    def _add_partitions_manager(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        broker_id: int,
        requests: InterBrokerRequests | None,
    ) -> AddPartitionsToTxnManager:
        """Verifies transactions with their coordinators, on this broker or others."""
        return AddPartitionsToTxnManager(
            self.transactions,
            broker_id,
            self._coordinator_of,
            clock,
            send_nothing if requests is None else requests.send_add_partitions,
            self._replica_manager,
            lambda: config().transaction_partition_verification_enable,
        )

    def _partition_count(self, topic_id: UUID) -> int | None:
        return self._topics.partition_counts([topic_id]).get(topic_id)

    def _share_config(self, group_id: str) -> ShareGroupConfig:
        from kafkalite.coordinator.group.share.share_group import ShareGroupConfig

        group, broker = self.group_configs.of(group_id), self._config()
        return ShareGroupConfig(
            group.share_session_timeout_ms,
            group.share_heartbeat_interval_ms,
            group.share_assignment_interval_ms,
            broker.group_share_max_size,
        )

    def _streams_config(self, group_id: str) -> StreamsGroupConfig:
        """That of the last group is kept, as most groups have no settings of their own: 0.4 us instead of 2.9."""
        group, broker = self.group_configs.of(group_id), self._config()
        if self._last_streams_config is not None:
            known_group, known_broker, config = self._last_streams_config
            if group is known_group and broker is known_broker:
                return config
        from kafkalite.coordinator.group.streams.streams_environment import StreamsGroupConfig

        config = StreamsGroupConfig(
            group.streams_session_timeout_ms,
            group.streams_heartbeat_interval_ms,
            group.streams_num_standby_replicas,
            group.streams_initial_rebalance_delay_ms,
            group.streams_assignment_interval_ms,
            broker.group_streams_max_size,
        )
        self._last_streams_config = group, broker, config
        return config

    def share_reading(self, group_id: str) -> ShareReading:
        """How a group reads: its own settings over the broker's."""
        group = self.group_configs.of(group_id)
        known = self._share_readings.get(group_id)
        if known is None or known[0] is not group:  # each share fetch asks for it ten times
            if len(self._share_readings) >= _READINGS_MAX:
                self._share_readings.clear()
            known = self._share_readings[group_id] = group, _share_reading(group)
        return known[1]

    def _subscribe(self, replica_manager: ReplicaManager) -> None:
        """Has elections load partitions of the topics, resignations unload them, and deletions drop their offsets."""
        for topic in self.internal_topics.values():
            replica_manager.on_election.subscribe(topic.on_election)
            replica_manager.on_resignation.subscribe(topic.on_resignation)
        replica_manager.when_deleted.subscribe(self.groups.offsets.on_topic_deleted)

    async def load(self) -> None:
        """Begin to load the partitions that are led here, and wait for `_LOAD_GRACE_MS`: the others load while clients
        get COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._topics.load()
        self._stop_following = follow_group_configs(self._metadata, self.group_configs)
        self._loading = [asyncio.ensure_future(topic.load()) for topic in self.internal_topics.values()]
        await asyncio.wait(self._loading, timeout=_LOAD_GRACE_MS / 1000)

    async def loaded(self) -> None:
        """Waits for the end of `load`, without a timeout."""
        if self._loading:
            await asyncio.wait(self._loading)

    async def close(self) -> None:
        """Stop loading; every request gets COORDINATOR_NOT_AVAILABLE. Errors of the loading are logged."""
        if self._stop_following is not None:
            self._stop_following()
        for loading in self._loading:
            loading.cancel()
        for ended in await asyncio.gather(*self._loading, return_exceptions=True):
            if isinstance(ended, Exception):
                logger.error("loading groups or transactions failed", exc_info=ended)
        self.share_states.close()
        await self.share_topic.close()
        await self.transaction_topic.close()
        await self.offsets_topic.close()
        self.transactions.close()
        self.groups.close()
        self.shares.close()
        self._topics.close()
        self._stop_listening()

    def _on_metadata(self, change: Change, name: str) -> None:
        if change is Change.TOPIC_DELETED:
            self.shares.forget_deleted_topics()
            if any(group.kind == SHARE for group in self.groups.store):
                self.groups.share_groups.forget_deleted_topics()

    def _prune_share_state(self) -> None:
        """Delete the records of `__share_group_state` that no snapshot needs."""
        self.shares.refresh_cold()
        for index in sorted(self.shares.store.owned):
            self.share_topic.delete_before(index, self.shares.store.redundant_before(index))

    def add_periodic_tasks(self, tasks: PeriodicTasks, config: BrokerConfig) -> None:
        interval_ms = config.share_coordinator_state_topic_prune_interval_ms
        tasks.add("share state", interval_ms, self._prune_share_state, first_after_ms=interval_ms)
        tasks.add("offset expiry", config.offsets_retention_check_interval_ms, self.groups.offsets.expire)
        self._schedule_timeouts(tasks, config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        tasks.add(
            "transactional id expiry",
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.expire,
        )

    def _schedule_timeouts(self, tasks: PeriodicTasks, interval_ms: int) -> None:
        """Every `interval_ms`, as long as a transaction is open: an idle broker does not wake for it."""
        store = self.transactions.store
        is_due = False

        def schedule() -> None:
            nonlocal is_due
            if not is_due:
                is_due = True
                tasks.add("transaction timeouts", 0, check_timeouts, first_after_ms=interval_ms)

        def check_timeouts() -> None:
            nonlocal is_due
            is_due = False
            if store.open:
                schedule()
                self.transactions.abort_timed_out()

        store.on_open = schedule
        if store.open:
            schedule()

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates the id's transactions; NO_LEADER if none does at the moment."""
        index = self.transaction_topic.partition_for(transactional_id)
        leader = self._replica_manager.leader_of(TRANSACTION_STATE_TOPIC, index)
        return NO_LEADER if leader is None else leader


def _share_reading(group: GroupConfig) -> ShareReading:
    """Imported with the first share group."""
    from kafkalite.replication.share.share_partition import ShareLimits
    from kafkalite.replication.share.share_partitions import ShareReading

    return ShareReading(
        ShareLimits(
            group.share_record_lock_duration_ms,
            group.share_delivery_count_limit,
            group.share_partition_max_record_locks,
            group.share_renew_acknowledge_enable,
        ),
        group.share_isolation_level == "read_committed",
        begins_at(group.share_auto_offset_reset),
    )


def _compile_regex(regex: str) -> group_environment.TopicRegex:
    """Imported with the first regular expression. Raises ValueError, which names its fault."""
    from kafkalite.common.linear_regex import LinearRegex

    return LinearRegex(regex)


_LATEST = -1
_VERSION = 5  # of ListOffsets; every broker that may be in the cluster has it


class EndOffsets:
    """The ends of partitions anywhere in the cluster, for the lag of share groups: asks the leaders. `requests` sends
    to other brokers; None for a broker alone. Source: NetworkPartitionMetadataClient (4.3), whose offsets are the
    latest of uncommitted reads."""

    def __init__(self, replica_manager: ReplicaManager, requests: InterBrokerRequests | None) -> None:
        self._replica_manager = replica_manager
        self._requests = requests

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks. A partition whose leader does not answer is left out."""
        found: dict[TopicPartition, int] = {}
        elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for topic, index in partitions:
            partition = self._replica_manager.partition(topic, index)
            if partition is not None:
                found[topic, index] = partition.high_watermark
            elif (leader := self._replica_manager.leader_of(topic, index)) is not None and leader >= 0:
                elsewhere[leader].append((topic, index))
        if self._requests is not None:
            for answer in await asyncio.gather(*(self._ask(*each) for each in elsewhere.items())):
                found |= answer
        return found

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        assert self._requests is not None
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in partitions:
            row = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(row)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_response(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        self._requests.send(leader, ListOffsetsRequest(topics=[*topics.values()]), _VERSION, on_response)
        response = await answered
        rows = ((topic.name, each) for topic in response.topics for each in topic.partitions) if response else ()
        return {(topic, each.partition_index): each.offset for topic, each in rows if not each.error_code}
