"""The table of APIs: every request that this broker answers, with the versions that it answers.

ApiVersions lists exactly Kafka's rows. A new API is one row here, one declaration in `messages/`, one handler of the
same file name in `api/handlers/`. Requests of our own commands are rows of their own (`_OWN_ROWS`), and are not listed.
Source: org.apache.kafka.common.protocol.ApiKeys; the numbers in the schema files.
"""

# ruff: noqa: E501
# The table is wide, so that one API stays one line.

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import (
    acls,
    append_at,
    broker_report,
    cleaner,
    configs,
    consumer_groups,
    delegation_tokens,
    entity_configs,
    features,
    fetch,
    group_offsets,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    partition_admin,
    produce,
    quorum,
    sasl,
    share_fetch,
    share_groups,
    share_state,
    streams_groups,
    telemetry,
    topic_partitions,
    topics,
    transactions,
)


class Api(NamedTuple):
    """One row: the key on the wire, Kafka's name, the two messages, and the versions that are answered."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int


# fmt: off
_ROWS = (
    Api(0, "Produce", produce.ProduceRequest, produce.ProduceResponse, 0, 13),
    Api(1, "Fetch", fetch.FetchRequest, fetch.FetchResponse, 0, 18),
    Api(2, "ListOffsets", list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse, 0, 11),
    Api(3, "Metadata", metadata.MetadataRequest, metadata.MetadataResponse, 0, 13),
    Api(8, "OffsetCommit", group_offsets.OffsetCommitRequest, group_offsets.OffsetCommitResponse, 0, 10),
    Api(9, "OffsetFetch", group_offsets.OffsetFetchRequest, group_offsets.OffsetFetchResponse, 0, 10),
    Api(10, "FindCoordinator", groups.FindCoordinatorRequest, groups.FindCoordinatorResponse, 0, 6),
    Api(11, "JoinGroup", groups.JoinGroupRequest, groups.JoinGroupResponse, 0, 9),
    Api(12, "Heartbeat", groups.HeartbeatRequest, groups.HeartbeatResponse, 0, 4),
    Api(13, "LeaveGroup", groups.LeaveGroupRequest, groups.LeaveGroupResponse, 0, 5),
    Api(14, "SyncGroup", groups.SyncGroupRequest, groups.SyncGroupResponse, 0, 5),
    Api(15, "DescribeGroups", groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, 0, 6),
    Api(16, "ListGroups", groups.ListGroupsRequest, groups.ListGroupsResponse, 0, 5),
    Api(17, "SaslHandshake", sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse, 0, 1),
    Api(18, "ApiVersions", metadata.ApiVersionsRequest, metadata.ApiVersionsResponse, 0, 4),
    Api(19, "CreateTopics", topics.CreateTopicsRequest, topics.CreateTopicsResponse, 0, 7),
    Api(20, "DeleteTopics", topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, 0, 6),
    Api(21, "DeleteRecords", topics.DeleteRecordsRequest, topics.DeleteRecordsResponse, 0, 2),
    Api(22, "InitProducerId", transactions.InitProducerIdRequest, transactions.InitProducerIdResponse, 0, 5),
    Api(23, "OffsetForLeaderEpoch", list_offsets.OffsetForLeaderEpochRequest, list_offsets.OffsetForLeaderEpochResponse, 0, 4),
    Api(24, "AddPartitionsToTxn", transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, 0, 5),
    Api(25, "AddOffsetsToTxn", transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, 0, 4),
    Api(26, "EndTxn", transactions.EndTxnRequest, transactions.EndTxnResponse, 0, 5),
    Api(27, "WriteTxnMarkers", transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, 0, 2),
    Api(28, "TxnOffsetCommit", group_offsets.TxnOffsetCommitRequest, group_offsets.TxnOffsetCommitResponse, 0, 5),
    Api(29, "DescribeAcls", acls.DescribeAclsRequest, acls.DescribeAclsResponse, 0, 3),
    Api(30, "CreateAcls", acls.CreateAclsRequest, acls.CreateAclsResponse, 0, 3),
    Api(31, "DeleteAcls", acls.DeleteAclsRequest, acls.DeleteAclsResponse, 0, 3),
    Api(32, "DescribeConfigs", configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, 0, 4),
    Api(33, "AlterConfigs", configs.AlterConfigsRequest, configs.AlterConfigsResponse, 0, 2),
    Api(34, "AlterReplicaLogDirs", log_dirs.AlterReplicaLogDirsRequest, log_dirs.AlterReplicaLogDirsResponse, 0, 2),
    Api(35, "DescribeLogDirs", log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse, 0, 4),
    Api(36, "SaslAuthenticate", sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse, 0, 2),
    Api(37, "CreatePartitions", topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, 0, 3),
    Api(38, "CreateDelegationToken", delegation_tokens.CreateDelegationTokenRequest, delegation_tokens.CreateDelegationTokenResponse, 0, 3),
    Api(39, "RenewDelegationToken", delegation_tokens.RenewDelegationTokenRequest, delegation_tokens.RenewDelegationTokenResponse, 0, 2),
    Api(40, "ExpireDelegationToken", delegation_tokens.ExpireDelegationTokenRequest, delegation_tokens.ExpireDelegationTokenResponse, 0, 2),
    Api(41, "DescribeDelegationToken", delegation_tokens.DescribeDelegationTokenRequest, delegation_tokens.DescribeDelegationTokenResponse, 0, 3),
    Api(42, "DeleteGroups", groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, 0, 2),
    Api(43, "ElectLeaders", partition_admin.ElectLeadersRequest, partition_admin.ElectLeadersResponse, 0, 2),
    Api(44, "IncrementalAlterConfigs", configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResponse, 0, 1),
    Api(45, "AlterPartitionReassignments", partition_admin.AlterPartitionReassignmentsRequest, partition_admin.AlterPartitionReassignmentsResponse, 0, 0),
    Api(46, "ListPartitionReassignments", partition_admin.ListPartitionReassignmentsRequest, partition_admin.ListPartitionReassignmentsResponse, 0, 0),
    Api(47, "OffsetDelete", group_offsets.OffsetDeleteRequest, group_offsets.OffsetDeleteResponse, 0, 0),
    Api(48, "DescribeClientQuotas", entity_configs.DescribeClientQuotasRequest, entity_configs.DescribeClientQuotasResponse, 0, 1),
    Api(49, "AlterClientQuotas", entity_configs.AlterClientQuotasRequest, entity_configs.AlterClientQuotasResponse, 0, 1),
    Api(50, "DescribeUserScramCredentials", entity_configs.DescribeUserScramCredentialsRequest, entity_configs.DescribeUserScramCredentialsResponse, 0, 0),
    Api(51, "AlterUserScramCredentials", entity_configs.AlterUserScramCredentialsRequest, entity_configs.AlterUserScramCredentialsResponse, 0, 0),
    Api(55, "DescribeQuorum", quorum.DescribeQuorumRequest, quorum.DescribeQuorumResponse, 0, 2),
    Api(57, "UpdateFeatures", features.UpdateFeaturesRequest, features.UpdateFeaturesResponse, 0, 2),
    Api(60, "DescribeCluster", metadata.DescribeClusterRequest, metadata.DescribeClusterResponse, 0, 2),
    Api(61, "DescribeProducers", transactions.DescribeProducersRequest, transactions.DescribeProducersResponse, 0, 0),
    Api(65, "DescribeTransactions", transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse, 0, 0),
    Api(66, "ListTransactions", transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, 0, 2),
    Api(68, "ConsumerGroupHeartbeat", consumer_groups.ConsumerGroupHeartbeatRequest, consumer_groups.ConsumerGroupHeartbeatResponse, 0, 1),
    Api(69, "ConsumerGroupDescribe", consumer_groups.ConsumerGroupDescribeRequest, consumer_groups.ConsumerGroupDescribeResponse, 0, 1),
    Api(71, "GetTelemetrySubscriptions", telemetry.GetTelemetrySubscriptionsRequest, telemetry.GetTelemetrySubscriptionsResponse, 0, 0),
    Api(72, "PushTelemetry", telemetry.PushTelemetryRequest, telemetry.PushTelemetryResponse, 0, 0),
    Api(74, "ListConfigResources", configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse, 0, 1),
    Api(75, "DescribeTopicPartitions", topic_partitions.DescribeTopicPartitionsRequest, topic_partitions.DescribeTopicPartitionsResponse, 0, 0),
    Api(76, "ShareGroupHeartbeat", share_groups.ShareGroupHeartbeatRequest, share_groups.ShareGroupHeartbeatResponse, 1, 1),
    Api(77, "ShareGroupDescribe", share_groups.ShareGroupDescribeRequest, share_groups.ShareGroupDescribeResponse, 1, 1),
    Api(78, "ShareFetch", share_fetch.ShareFetchRequest, share_fetch.ShareFetchResponse, 1, 2),
    Api(79, "ShareAcknowledge", share_fetch.ShareAcknowledgeRequest, share_fetch.ShareAcknowledgeResponse, 1, 2),
    Api(83, "InitializeShareGroupState", share_state.InitializeShareGroupStateRequest, share_state.InitializeShareGroupStateResponse, 0, 0),
    Api(84, "ReadShareGroupState", share_state.ReadShareGroupStateRequest, share_state.ReadShareGroupStateResponse, 0, 0),
    Api(85, "WriteShareGroupState", share_state.WriteShareGroupStateRequest, share_state.WriteShareGroupStateResponse, 0, 1),
    Api(86, "DeleteShareGroupState", share_state.DeleteShareGroupStateRequest, share_state.DeleteShareGroupStateResponse, 0, 0),
    Api(87, "ReadShareGroupStateSummary", share_state.ReadShareGroupStateSummaryRequest, share_state.ReadShareGroupStateSummaryResponse, 0, 1),
    Api(88, "StreamsGroupHeartbeat", streams_groups.StreamsGroupHeartbeatRequest, streams_groups.StreamsGroupHeartbeatResponse, 0, 0),
    Api(89, "StreamsGroupDescribe", streams_groups.StreamsGroupDescribeRequest, streams_groups.StreamsGroupDescribeResponse, 0, 0),
    Api(90, "DescribeShareGroupOffsets", share_groups.DescribeShareGroupOffsetsRequest, share_groups.DescribeShareGroupOffsetsResponse, 0, 1),
    Api(91, "AlterShareGroupOffsets", share_groups.AlterShareGroupOffsetsRequest, share_groups.AlterShareGroupOffsetsResponse, 0, 0),
    Api(92, "DeleteShareGroupOffsets", share_groups.DeleteShareGroupOffsetsRequest, share_groups.DeleteShareGroupOffsetsResponse, 0, 0),
)

_OWN_ROWS = (
    Api(cleaner.RUN_CLEANER_KEY, "RunCleaner", cleaner.RunCleanerRequest, cleaner.RunCleanerResponse, 0, 0),
    Api(broker_report.BROKER_REPORT_KEY, "BrokerReport", broker_report.BrokerReportRequest, broker_report.BrokerReportResponse, 0, 0),
    Api(append_at.APPEND_AT_KEY, "AppendAt", append_at.AppendAtRequest, append_at.AppendAtResponse, 0, 0),
)
# fmt: on

APIS: Mapping[int, Api] = MappingProxyType({row.key: row for row in _ROWS})
"""Kafka's APIs, which ApiVersions lists."""
SERVED: Mapping[int, Api] = MappingProxyType({row.key: row for row in (*_ROWS, *_OWN_ROWS)})
"""All APIs, with the ones for our own commands."""
API_OF_REQUEST: Mapping[type[Message], Api] = MappingProxyType({row.request: row for row in SERVED.values()})
