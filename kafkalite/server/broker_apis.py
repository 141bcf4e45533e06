"""The handlers of all APIs, each bound to the parts of the broker that it uses.

A file of handlers is imported at the first request for one of them: a broker is ready without the others.
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
from kafkalite.api.request.topic_describer import EncodedTopics
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.metadata.finalized_features import FinalizedFeatures
from kafkalite.replication.replica.replication_quota import ReplicationQuota
from kafkalite.server.share_apis import ShareApis

if TYPE_CHECKING:
    from kafkalite.api.handlers.acls import AclApi
    from kafkalite.api.handlers.append_at import AppendAtApi
    from kafkalite.api.handlers.broker_report import BrokerReportApi
    from kafkalite.api.handlers.cleaner import CleanerApi
    from kafkalite.api.handlers.configs import ConfigApi
    from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi
    from kafkalite.api.handlers.delegation_tokens import DelegationTokenApi
    from kafkalite.api.handlers.delete_records import DeleteRecordsApi
    from kafkalite.api.handlers.entity_configs import EntityConfigApi
    from kafkalite.api.handlers.features import FeatureApi
    from kafkalite.api.handlers.group_offsets import GroupOffsetApi
    from kafkalite.api.handlers.groups import GroupApi
    from kafkalite.api.handlers.list_offsets import ListOffsetsApi
    from kafkalite.api.handlers.log_dirs import LogDirApi
    from kafkalite.api.handlers.partition_admin import PartitionAdminApi
    from kafkalite.api.handlers.streams_groups import StreamsGroupApi
    from kafkalite.api.handlers.telemetry import TelemetryApi
    from kafkalite.api.handlers.topic_partitions import TopicPartitionApi
    from kafkalite.api.handlers.topics import TopicApi
    from kafkalite.api.handlers.transactions import TransactionApi
    from kafkalite.api.request.client_telemetry import ClientTelemetry
    from kafkalite.api.request.streams_topics import StreamsTopics
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
        config = dynamic_config.now
        self._broker_id = broker_id = member.broker_id
        self._streams_topics: StreamsTopics | None = None
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

    async def close(self) -> None:
        """Waits for the work in the background that requests have begun."""
        if self._streams_topics is not None:
            await self._streams_topics.close()

    def handler_of(self, api: str) -> Handler:
        return _HANDLERS[api](self)

    def _own_address(self, connection: ClientConnection) -> tuple[str, int]:
        """The host and port that this broker advertises on the listener of a connection."""
        advertised = self._config().advertised(connection.listener_name)
        if advertised is not None:
            return advertised.host, advertised.port
        return connection.local_host, connection.local_port

    # The other parts that more than one handler uses, and the handlers of each file in `api/handlers/`

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

    @cached_property
    def shares(self) -> ShareApis:
        return ShareApis(
            self._runtime,
            self._config,
            self._metadata,
            self._brokers,
            self._replica_manager,
            self._coordinators,
            self._features,
        )

    @cached_property
    def _metadata_api(self) -> MetadataApi:
        return MetadataApi(
            self._runtime,
            self._config,
            self._metadata,
            self._brokers,
            self._replica_manager,
            self._topic_admin,
            self._coordinators.internal_topics,
            self._features,
            EncodedTopics(self._replica_manager),
        )

    @cached_property
    def consumer_groups(self) -> ConsumerGroupApi:
        from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi

        groups = self._coordinators.groups
        return ConsumerGroupApi(self._runtime, self._config, groups, self._features, self.admission_epoch)

    @cached_property
    def _offset_api(self) -> ListOffsetsApi:
        from kafkalite.api.handlers.list_offsets import ListOffsetsApi

        return ListOffsetsApi(self._runtime, self._metadata, self._replica_manager, self._broker_id)

    @cached_property
    def _group_api(self) -> GroupApi:
        from kafkalite.api.handlers.groups import GroupApi

        its = self._coordinators
        return GroupApi(
            self._runtime,
            self._brokers,
            its.groups,
            its.offsets_topic,
            its.transactions,
            its.transaction_topic,
            its.share_topic,
        )

    @cached_property
    def _group_offset_api(self) -> GroupOffsetApi:
        from kafkalite.api.handlers.group_offsets import GroupOffsetApi

        return GroupOffsetApi(
            self._runtime,
            self._config,
            self._replica_manager,
            self._coordinators.groups,
            self._coordinators.add_partitions,
            self._member.legacy_offsets(),
        )

    @cached_property
    def _topic_partition_api(self) -> TopicPartitionApi:
        from kafkalite.api.handlers.topic_partitions import TopicPartitionApi

        return TopicPartitionApi(self._config, self._metadata, self._brokers, self._replica_manager)

    @cached_property
    def _transaction_api(self) -> TransactionApi:
        from kafkalite.api.handlers.transactions import TransactionApi

        its, error_log = self._coordinators, RateLimitedLogger(self._runtime.clock, logger.error)
        return TransactionApi(
            self._runtime, self._replica_manager, its.transactions, its.producer_ids, its.markers, error_log
        )

    @cached_property
    def _config_api(self) -> ConfigApi:
        from kafkalite.api.handlers.configs import ConfigApi

        return ConfigApi(
            self._dynamic_config, self._metadata, self._replica_manager, self._topic_admin, self._broker_id
        )

    @cached_property
    def _entity_config_api(self) -> EntityConfigApi:
        from kafkalite.api.handlers.entity_configs import EntityConfigApi

        return EntityConfigApi(self._runtime, self._metadata)

    @cached_property
    def _feature_api(self) -> FeatureApi:
        from kafkalite.api.handlers.features import FeatureApi

        return FeatureApi(self._features)

    @cached_property
    def _telemetry_api(self) -> TelemetryApi:
        from kafkalite.api.handlers.telemetry import TelemetryApi

        return TelemetryApi(self._config, self.telemetry)

    @cached_property
    def _acl_api(self) -> AclApi:
        from kafkalite.api.handlers.acls import AclApi

        return AclApi(self._metadata)

    @cached_property
    def _log_dir_api(self) -> LogDirApi:
        from kafkalite.api.handlers.log_dirs import LogDirApi

        return LogDirApi(self._config, self._metadata, self._logs, self._replica_manager, self._cleaner)

    @cached_property
    def _partition_admin_api(self) -> PartitionAdminApi:
        from kafkalite.api.handlers.partition_admin import PartitionAdminApi

        return PartitionAdminApi(self._metadata, self._member.partition_admin)

    @cached_property
    def _token_api(self) -> DelegationTokenApi:
        from kafkalite.api.handlers.delegation_tokens import DelegationTokenApi
        from kafkalite.security.delegation_tokens import TokenHmacs

        metadata = self._metadata
        return DelegationTokenApi(self._runtime, self._config, metadata, TokenHmacs(lambda: metadata.delegation_tokens))

    @cached_property
    def _topic_api(self) -> TopicApi:
        from kafkalite.api.handlers.topics import TopicApi

        return TopicApi(
            self._runtime,
            self._config,
            self._metadata,
            self._replica_manager,
            self._topic_admin,
            self._member.partition_admin,
        )

    @cached_property
    def _delete_records_api(self) -> DeleteRecordsApi:
        from kafkalite.api.handlers.delete_records import DeleteRecordsApi

        return DeleteRecordsApi(self._runtime, self._logs, self._replica_manager)

    @cached_property
    def _append_at_api(self) -> AppendAtApi:
        from kafkalite.api.handlers.append_at import AppendAtApi

        return AppendAtApi(self._runtime, self._replica_manager)

    @cached_property
    def _cleaner_api(self) -> CleanerApi:
        from kafkalite.api.handlers.cleaner import CleanerApi

        return CleanerApi(self._runtime, self._config, self._replica_manager, self._cleaner)

    @cached_property
    def _streams_group_api(self) -> StreamsGroupApi:
        from kafkalite.api.handlers.streams_groups import StreamsGroupApi
        from kafkalite.api.request.streams_topics import StreamsTopics

        topics = self._streams_topics = StreamsTopics(self._runtime, self._topic_api.create_for_client)
        return StreamsGroupApi(self._runtime, self._config, self._coordinators.groups, self._features, topics)

    @cached_property
    def _report_api(self) -> BrokerReportApi:
        from kafkalite.api.handlers.broker_report import BrokerReportApi

        return BrokerReportApi(
            self._runtime,
            self._config,
            self._metadata,
            self._logs,
            self._replica_manager,
            self._coordinators.groups,
            self._cleaner,
            self._reports,
            lambda: None if (used := self.shares.used_fetches) is None else used.shares,
        )


def _sasl_handshake(_: BrokerApis) -> Handler:
    from kafkalite.api.sasl_authenticator import sasl_handshake

    return sasl_handshake


def _sasl_authenticate(_: BrokerApis) -> Handler:
    from kafkalite.api.sasl_authenticator import sasl_authenticate

    return sasl_authenticate


def _describe_quorum(_: BrokerApis) -> Handler:
    from kafkalite.api.handlers.quorum import describe_quorum

    return describe_quorum


_HANDLERS: Mapping[str, Callable[[BrokerApis], Handler]] = {
    "Produce": lambda its: its.produce.produce,
    "Fetch": lambda its: its.fetch.fetch,
    "ListOffsets": lambda its: its._offset_api.list_offsets,
    "Metadata": lambda its: its._metadata_api.metadata,
    "OffsetCommit": lambda its: its._group_offset_api.offset_commit,
    "OffsetFetch": lambda its: its._group_offset_api.offset_fetch,
    "FindCoordinator": lambda its: its._group_api.find_coordinator,
    "JoinGroup": lambda its: its._group_api.join_group,
    "Heartbeat": lambda its: its._group_api.heartbeat,
    "LeaveGroup": lambda its: its._group_api.leave_group,
    "SyncGroup": lambda its: its._group_api.sync_group,
    "DescribeGroups": lambda its: its._group_api.describe_groups,
    "ListGroups": lambda its: its._group_api.list_groups,
    "SaslHandshake": _sasl_handshake,
    "ApiVersions": lambda its: its._metadata_api.api_versions,
    "CreateTopics": lambda its: its._topic_api.create_topics,
    "DeleteTopics": lambda its: its._topic_api.delete_topics,
    "DeleteRecords": lambda its: its._delete_records_api.delete_records,
    "InitProducerId": lambda its: its._transaction_api.init_producer_id,
    "OffsetForLeaderEpoch": lambda its: its._offset_api.offset_for_leader_epoch,
    "AddPartitionsToTxn": lambda its: its._transaction_api.add_partitions_to_txn,
    "AddOffsetsToTxn": lambda its: its._transaction_api.add_offsets_to_txn,
    "EndTxn": lambda its: its._transaction_api.end_txn,
    "WriteTxnMarkers": lambda its: its._transaction_api.write_txn_markers,
    "TxnOffsetCommit": lambda its: its._group_offset_api.txn_offset_commit,
    "DescribeAcls": lambda its: its._acl_api.describe_acls,
    "CreateAcls": lambda its: its._acl_api.create_acls,
    "DeleteAcls": lambda its: its._acl_api.delete_acls,
    "DescribeConfigs": lambda its: its._config_api.describe_configs,
    "AlterConfigs": lambda its: its._config_api.alter_configs,
    "AlterReplicaLogDirs": lambda its: its._log_dir_api.alter_replica_log_dirs,
    "DescribeLogDirs": lambda its: its._log_dir_api.describe_log_dirs,
    "SaslAuthenticate": _sasl_authenticate,
    "CreatePartitions": lambda its: its._topic_api.create_partitions,
    "CreateDelegationToken": lambda its: its._token_api.create_delegation_token,
    "RenewDelegationToken": lambda its: its._token_api.renew_delegation_token,
    "ExpireDelegationToken": lambda its: its._token_api.expire_delegation_token,
    "DescribeDelegationToken": lambda its: its._token_api.describe_delegation_token,
    "DeleteGroups": lambda its: its._group_api.delete_groups,
    "ElectLeaders": lambda its: its._partition_admin_api.elect_leaders,
    "IncrementalAlterConfigs": lambda its: its._config_api.incremental_alter_configs,
    "AlterPartitionReassignments": lambda its: its._partition_admin_api.alter_partition_reassignments,
    "ListPartitionReassignments": lambda its: its._partition_admin_api.list_partition_reassignments,
    "OffsetDelete": lambda its: its._group_offset_api.offset_delete,
    "DescribeClientQuotas": lambda its: its._entity_config_api.describe_client_quotas,
    "AlterClientQuotas": lambda its: its._entity_config_api.alter_client_quotas,
    "DescribeUserScramCredentials": lambda its: its._entity_config_api.describe_user_scram_credentials,
    "AlterUserScramCredentials": lambda its: its._entity_config_api.alter_user_scram_credentials,
    "DescribeQuorum": _describe_quorum,
    "UpdateFeatures": lambda its: its._feature_api.update_features,
    "DescribeCluster": lambda its: its._metadata_api.describe_cluster,
    "DescribeProducers": lambda its: its._transaction_api.describe_producers,
    "DescribeTransactions": lambda its: its._transaction_api.describe_transactions,
    "ListTransactions": lambda its: its._transaction_api.list_transactions,
    "ConsumerGroupHeartbeat": lambda its: its.consumer_groups.consumer_group_heartbeat,
    "ConsumerGroupDescribe": lambda its: its.consumer_groups.consumer_group_describe,
    "GetTelemetrySubscriptions": lambda its: its._telemetry_api.get_telemetry_subscriptions,
    "PushTelemetry": lambda its: its._telemetry_api.push_telemetry,
    "ListConfigResources": lambda its: its._config_api.list_config_resources,
    "DescribeTopicPartitions": lambda its: its._topic_partition_api.describe_topic_partitions,
    "RunCleaner": lambda its: its._cleaner_api.run_cleaner,
    "BrokerReport": lambda its: its._report_api.broker_report,
    "AppendAt": lambda its: its._append_at_api.append_at,
    "ShareFetch": lambda its: its.shares.fetches.share_fetch,
    "ShareAcknowledge": lambda its: its.shares.fetches.share_acknowledge,
    "ShareGroupHeartbeat": lambda its: its.shares.groups.share_group_heartbeat,
    "ShareGroupDescribe": lambda its: its.shares.groups.share_group_describe,
    "DescribeShareGroupOffsets": lambda its: its.shares.groups.describe_share_group_offsets,
    "AlterShareGroupOffsets": lambda its: its.shares.groups.alter_share_group_offsets,
    "DeleteShareGroupOffsets": lambda its: its.shares.groups.delete_share_group_offsets,
    "StreamsGroupHeartbeat": lambda its: its._streams_group_api.streams_group_heartbeat,
    "StreamsGroupDescribe": lambda its: its._streams_group_api.streams_group_describe,
    "InitializeShareGroupState": lambda its: its.shares.states.initialize_share_group_state,
    "ReadShareGroupState": lambda its: its.shares.states.read_share_group_state,
    "WriteShareGroupState": lambda its: its.shares.states.write_share_group_state,
    "DeleteShareGroupState": lambda its: its.shares.states.delete_share_group_state,
    "ReadShareGroupStateSummary": lambda its: its.shares.states.read_share_group_state_summary,
}
"""The method or function that answers each API, found at its first request, which imports the file."""
