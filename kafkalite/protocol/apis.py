"""THE TABLE: every request that this broker answers, with the versions it answers.

ApiVersions lists exactly Kafka's rows. A new API is one row here, one declaration in `messages/`, one handler of the
same file name in `api/handlers/`. Requests of our own commands are rows of their own (`_OWN_ROWS`), and are not listed.
Source: org.apache.kafka.common.protocol.ApiKeys; the numbers in the schema files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.cleaner import RUN_CLEANER_KEY, RunCleanerRequest, RunCleanerResponse
from kafkalite.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafkalite.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkalite.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkalite.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkalite.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


class Api(NamedTuple):
    """One row: the key on the wire, Kafka's name, the two messages, and the versions that are answered."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int


_ROWS = (
    Api(0, "Produce", ProduceRequest, ProduceResponse, 0, 11),
    Api(1, "Fetch", FetchRequest, FetchResponse, 0, 17),
    Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse, 0, 9),
    Api(3, "Metadata", MetadataRequest, MetadataResponse, 0, 12),
    Api(8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse, 0, 9),
    Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse, 0, 9),
    Api(10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse, 0, 6),
    Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, 0, 9),
    Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse, 0, 4),
    Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, 0, 5),
    Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse, 0, 5),
    Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse, 0, 5),
    Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse, 0, 5),
    Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse, 0, 4),
    Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse, 0, 7),
    Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse, 0, 6),
    Api(21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse, 0, 2),
    Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse, 0, 5),
    Api(23, "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 0, 4),
    Api(32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse, 0, 4),
    Api(33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse, 0, 2),
    Api(35, "DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse, 0, 4),
    Api(37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse, 0, 3),
    Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse, 0, 2),
    Api(44, "IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1),
    Api(46, "ListPartitionReassignments", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, 0, 0),
    Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse, 0, 0),
    Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse, 0, 1),
)

_OWN_ROWS = (Api(RUN_CLEANER_KEY, "RunCleaner", RunCleanerRequest, RunCleanerResponse, 0, 0),)

APIS: Mapping[int, Api] = MappingProxyType({row.key: row for row in _ROWS})
"""Kafka's APIs, which ApiVersions lists."""
SERVED: Mapping[int, Api] = MappingProxyType({row.key: row for row in (*_ROWS, *_OWN_ROWS)})
"""All APIs, with the ones for our own commands."""
API_OF_REQUEST: Mapping[type[Message], Api] = MappingProxyType({row.request: row for row in SERVED.values()})
