"""ApiVersions (18), Metadata (3) and DescribeCluster (60): APIs and versions, the brokers, topics, leaders of
partitions.

A kafkalite broker may also ask, in kafkalite's own tagged field (see `log_dirs`), whether it has been removed from the
cluster. Without that field the answer equals Apache Kafka's, to the byte. ApiVersions in an unknown version is answered
in version 0.
"""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import INT32, Message, array, boolean, int8, int16, int32, int64, string, uuid
from kafkalite.protocol.messages.log_dirs import OWN_TAG

AUTHORIZED_OPERATIONS_OMITTED = -2147483648  # the bit field that means "not asked for"


class MetadataRequestTopic(Message):
    topic_id: UUID = uuid("10+")
    name: str | None = string("0+", nullable="10+", default="")


class MetadataRequest(Message, flexible="9+"):
    # All topics: null from version 1 on, the empty list in version 0.
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")
    is_missing: int = int32("9+", default=-1, tag=OWN_TAG)  # a broker's id


class MetadataResponseBroker(Message):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+")


class MetadataResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    offline_replicas: list[int] = array(INT32, "5+")


class MetadataResponseTopic(Message, flexible="9+"):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+", default="")
    topic_id: UUID = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=AUTHORIZED_OPERATIONS_OMITTED)


class MetadataResponse(Message, flexible="9+"):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+")
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+", may_be_encoded=True)
    cluster_authorized_operations: int = int32("8-10", default=AUTHORIZED_OPERATIONS_OMITTED)
    error_code: int = int16("13+")
    # The broker of `is_missing` is not in the cluster as of this ZooKeeper transaction; -1: it is in the cluster.
    missing_at: int = int64("9+", default=-1, tag=OWN_TAG)


class DescribeClusterRequest(Message, flexible="0+"):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Message):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+")
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


class LeaderIdAndEpoch(Message):
    """The current leader, which Produce and Fetch send with NOT_LEADER_OR_FOLLOWER (KIP-951)."""

    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)


class NodeEndpoint(Message):
    """The address of such a leader."""

    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+")


class ApiVersionsRequest(Message, flexible="3+"):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Message):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Message):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Message):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, flexible="3+"):
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
