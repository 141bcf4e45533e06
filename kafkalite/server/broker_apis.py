"""The handlers of all APIs, each bound to the parts of the broker that it uses.

Handlers of consumers, producers and admin clients are imported when one of them is first used: a broker is ready
without them.
Source: kafka.server.KafkaApis (handle).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kafkalite.api.dispatch import Handler
from kafkalite.api.handlers.fetch import FetchApi
from kafkalite.api.handlers.metadata import MetadataApi
from kafkalite.api.handlers.produce import ProduceApi
from kafkalite.api.request.admission import ProduceAdmission
from kafkalite.api.request.awaited_election import AwaitedElections
from kafkalite.api.request.broker_endpoints import BrokerEndpoints
from kafkalite.api.request.fetch_sessions import FetchSessions, FollowerFetches
from kafkalite.api.request.request_context import Runtime
from kafkalite.api.request.request_watch import ReportSources
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.metadata.finalized_features import FinalizedFeatures
from kafkalite.replication.replica.replication_quota import ReplicationQuota

if TYPE_CHECKING:
    from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi
    from kafkalite.api.request.client_telemetry import ClientTelemetry
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.network.socket_server import SocketServer
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.replication.topic_admin import TopicAdmin
    from kafkalite.server.coordinators import Coordinators
    from kafkalite.server.dynamic_config import DynamicBrokerConfig
    from kafkalite.server.membership.cluster_member import ClusterMember
    from kafkalite.server.membership.single_broker import SingleBroker

logger = logging.getLogger(__name__)


class BrokerApis:
    """`handler_of` gives the handler of an API. `produce`, `fetch` and `consumer_groups` are also what their
    fast paths use."""

    def __init__(
        self,
        runtime: Runtime,
        dynamic_config: DynamicBrokerConfig,
        member: SingleBroker | ClusterMember,
        logs: LogManager,
        replica_manager: ReplicaManager,
        topic_admin: TopicAdmin,
        coordinators: Coordinators,
        cleaner: Callable[[], LogCleaner],
        network: Callable[[], SocketServer],
    ) -> None:
        """`cleaner` and `network` give parts that are created later, before a client can ask for them."""
        self._runtime = runtime
        self._dynamic_config = dynamic_config
        self._config: Callable[[], BrokerConfig] = lambda: dynamic_config.now
        self._member = member
        self._metadata = metadata = member.metadata
        self._logs = logs
        self._replica_manager = replica_manager
        self._topic_admin = topic_admin
        self._coordinators = coordinators
        self._cleaner = cleaner
        self._reports = ReportSources(runtime.clock, network)
        self._handlers: dict[str, Handler] = {}
        config = dynamic_config.now
        self._broker_id = broker_id = member.broker_id
        self._brokers = BrokerEndpoints(metadata, replica_manager, broker_id, config.broker_rack, self._own_address)
        admission = ProduceAdmission(replica_manager)
        self.admission_epoch = admission.epoch
        replica_manager.on_config_change.subscribe(self.admission_epoch.advance)
        self.follower_fetches = FollowerFetches(
            ReplicationQuota(
                broker_id,
                lambda: dynamic_config.now.leader_replication_throttled_rate,
                config.replication_quota_window_num,
                config.replication_quota_window_size_seconds * 1_000,
            )
        )
        replica_manager.on_election.subscribe(lambda _: self.follower_fetches.on_election())
        self.fetch = FetchApi(
            runtime,
            self._config,
            metadata,
            self._brokers,
            replica_manager,
            FetchSessions(config.max_incremental_fetch_session_cache_slots),
            self.follower_fetches,
            self.admission_epoch,
        )
        self.produce = ProduceApi(
            runtime,
            metadata,
            self._brokers,
            replica_manager,
            admission,
            coordinators.add_partitions,
            AwaitedElections(runtime, metadata, replica_manager, broker_id, self.follower_fetches.ahead),
        )

    @cached_property
    def _features(self) -> FinalizedFeatures:
        return FinalizedFeatures(self._metadata)

    @cached_property
    def telemetry(self) -> ClientTelemetry:
        """Metrics of clients, from its first use on."""
        from kafkalite.api.request.client_telemetry import ClientTelemetry
        from kafkalite.server.metadata_followers import follow_client_metrics

        telemetry = ClientTelemetry(self._runtime.clock.monotonic_ms)
        follow_client_metrics(self._metadata, telemetry)
        return telemetry

    def handler_of(self, api: str) -> Handler:
        for bind in (self._first_handlers, self._client_handlers, self._settings_handlers, self._admin_handlers):
            if api not in self._handlers:
                self._handlers.update(bind())
        return self._handlers[api]

    def _first_handlers(self) -> Mapping[str, Handler]:
        metadata = MetadataApi(
            self._runtime,
            self._config,
            self._metadata,
            self._brokers,
            self._replica_manager,
            self._topic_admin,
            self._coordinators.internal_topics,
            self._features,
        )
        return {
            "Produce": self.produce.produce,
            "Fetch": self.fetch.fetch,
            "Metadata": metadata.metadata,
            "ApiVersions": metadata.api_versions,
            "DescribeCluster": metadata.describe_cluster,
        }

    @cached_property
    def consumer_groups(self) -> ConsumerGroupApi:
        from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi

        return ConsumerGroupApi(
            self._runtime, self._config, self._coordinators.groups, self._features, self.admission_epoch
        )

    def _client_handlers(self) -> Mapping[str, Handler]:
        from kafkalite.api.handlers.group_offsets import GroupOffsetApi
        from kafkalite.api.handlers.groups import GroupApi
        from kafkalite.api.handlers.list_offsets import ListOffsetsApi
        from kafkalite.api.handlers.topic_partitions import TopicPartitionApi
        from kafkalite.api.handlers.transactions import TransactionApi

        runtime, replica_manager, its = self._runtime, self._replica_manager, self._coordinators
        offsets = ListOffsetsApi(runtime, self._metadata, replica_manager, self._broker_id)
        groups = GroupApi(
            runtime, self._brokers, its.groups, its.offsets_topic, its.transactions, its.transaction_topic
        )
        group_offsets = GroupOffsetApi(
            runtime, self._config, replica_manager, its.groups, its.add_partitions, self._member.legacy_offsets()
        )
        topic_partitions = TopicPartitionApi(self._config, self._metadata, self._brokers, replica_manager)
        error_log = RateLimitedLogger(runtime.clock, logger.error)
        transactions = TransactionApi(
            runtime, replica_manager, its.transactions, its.producer_ids, its.markers, error_log
        )
        return {
            "ListOffsets": offsets.list_offsets,
            "OffsetForLeaderEpoch": offsets.offset_for_leader_epoch,
            "OffsetCommit": group_offsets.offset_commit,
            "OffsetFetch": group_offsets.offset_fetch,
            "TxnOffsetCommit": group_offsets.txn_offset_commit,
            "OffsetDelete": group_offsets.offset_delete,
            "FindCoordinator": groups.find_coordinator,
            "JoinGroup": groups.join_group,
            "Heartbeat": groups.heartbeat,
            "LeaveGroup": groups.leave_group,
            "SyncGroup": groups.sync_group,
            "DescribeGroups": groups.describe_groups,
            "ListGroups": groups.list_groups,
            "DeleteGroups": groups.delete_groups,
            "DescribeTopicPartitions": topic_partitions.describe_topic_partitions,
            "InitProducerId": transactions.init_producer_id,
            "AddPartitionsToTxn": transactions.add_partitions_to_txn,
            "AddOffsetsToTxn": transactions.add_offsets_to_txn,
            "EndTxn": transactions.end_txn,
            "WriteTxnMarkers": transactions.write_txn_markers,
            "DescribeProducers": transactions.describe_producers,
            "DescribeTransactions": transactions.describe_transactions,
            "ListTransactions": transactions.list_transactions,
            "ConsumerGroupHeartbeat": self.consumer_groups.consumer_group_heartbeat,
            "ConsumerGroupDescribe": self.consumer_groups.consumer_group_describe,
        }

    def _settings_handlers(self) -> Mapping[str, Handler]:
        from kafkalite.api.handlers.configs import ConfigApi
        from kafkalite.api.handlers.entity_configs import EntityConfigApi
        from kafkalite.api.handlers.features import FeatureApi
        from kafkalite.api.handlers.quorum import describe_quorum
        from kafkalite.api.handlers.telemetry import TelemetryApi

        metadata, telemetry = self._metadata, TelemetryApi(self._config, self.telemetry)
        configs = ConfigApi(self._dynamic_config, metadata, self._replica_manager, self._topic_admin, self._broker_id)
        entities = EntityConfigApi(self._runtime, metadata)
        return {
            "DescribeConfigs": configs.describe_configs,
            "AlterConfigs": configs.alter_configs,
            "IncrementalAlterConfigs": configs.incremental_alter_configs,
            "ListConfigResources": configs.list_config_resources,
            "DescribeUserScramCredentials": entities.describe_user_scram_credentials,
            "AlterUserScramCredentials": entities.alter_user_scram_credentials,
            "DescribeClientQuotas": entities.describe_client_quotas,
            "AlterClientQuotas": entities.alter_client_quotas,
            "UpdateFeatures": FeatureApi(self._features).update_features,
            "DescribeQuorum": describe_quorum,
            "GetTelemetrySubscriptions": telemetry.get_telemetry_subscriptions,
            "PushTelemetry": telemetry.push_telemetry,
        }

    def _admin_handlers(self) -> Mapping[str, Handler]:
        from kafkalite.api import sasl_authenticator
        from kafkalite.api.handlers.acls import AclApi
        from kafkalite.api.handlers.broker_report import BrokerReportApi
        from kafkalite.api.handlers.cleaner import CleanerApi
        from kafkalite.api.handlers.delegation_tokens import DelegationTokenApi
        from kafkalite.api.handlers.delete_records import DeleteRecordsApi
        from kafkalite.api.handlers.log_dirs import LogDirApi
        from kafkalite.api.handlers.partition_admin import PartitionAdminApi
        from kafkalite.api.handlers.topics import TopicApi
        from kafkalite.security.delegation_tokens import TokenHmacs

        runtime, config, metadata = self._runtime, self._config, self._metadata
        logs, replica_manager, topic_admin = self._logs, self._replica_manager, self._topic_admin
        partition_admin, cleaner = self._member.partition_admin, self._cleaner
        acls = AclApi(metadata)
        log_dirs = LogDirApi(config, metadata, logs, replica_manager, cleaner)
        partitions = PartitionAdminApi(metadata, partition_admin)
        tokens = DelegationTokenApi(runtime, config, metadata, TokenHmacs(lambda: metadata.delegation_tokens))
        topics = TopicApi(runtime, config, metadata, replica_manager, topic_admin, partition_admin)
        groups = self._coordinators.groups
        report = BrokerReportApi(runtime, config, metadata, logs, replica_manager, groups, cleaner, self._reports)
        return {
            "SaslHandshake": sasl_authenticator.sasl_handshake,
            "SaslAuthenticate": sasl_authenticator.sasl_authenticate,
            "CreateTopics": topics.create_topics,
            "DeleteTopics": topics.delete_topics,
            "CreatePartitions": topics.create_partitions,
            "DeleteRecords": DeleteRecordsApi(runtime, logs, replica_manager).delete_records,
            "DescribeAcls": acls.describe_acls,
            "CreateAcls": acls.create_acls,
            "DeleteAcls": acls.delete_acls,
            "AlterReplicaLogDirs": log_dirs.alter_replica_log_dirs,
            "DescribeLogDirs": log_dirs.describe_log_dirs,
            "CreateDelegationToken": tokens.create_delegation_token,
            "RenewDelegationToken": tokens.renew_delegation_token,
            "ExpireDelegationToken": tokens.expire_delegation_token,
            "DescribeDelegationToken": tokens.describe_delegation_token,
            "ElectLeaders": partitions.elect_leaders,
            "AlterPartitionReassignments": partitions.alter_partition_reassignments,
            "ListPartitionReassignments": partitions.list_partition_reassignments,
            "RunCleaner": CleanerApi(runtime, config, replica_manager, cleaner).run_cleaner,
            "BrokerReport": report.broker_report,
        }

    def _own_address(self, connection: ClientConnection) -> tuple[str, int]:
        """The host and port that this broker advertises on the listener of a connection."""
        advertised = self._config().advertised(connection.listener_name)
        if advertised is not None:
            return advertised.host, advertised.port
        return connection.local_host, connection.local_port
