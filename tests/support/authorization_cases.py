"""A request of each API, with the permissions that it needs, one by one."""

# Each request stays one expression.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import (
    acls,
    append_at,
    broker_report,
    cleaner,
    configs,
    entity_configs,
    features,
    fetch,
    group_offsets,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    partition_admin,
    quorum,
    telemetry,
    topic_partitions,
    topics,
    transactions,
)
from kafkalite.protocol.messages import produce as produce_messages
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.security.acl.acl import CLUSTER_NAME, Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
O = Operation  # noqa: E741
T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
Need = tuple[Operation, ResourceType]


class Names(NamedTuple):
    """The resources that the requests name."""

    topic: str = "t"
    group: str = "g"
    transactional_id: str = "x"
    broker: str = "0"

    def of(self, type_: ResourceType) -> str:
        return {
            TOPIC: self.topic,
            GROUP: self.group,
            TRANSACTIONAL_ID: self.transactional_id,
            CLUSTER: CLUSTER_NAME,
        }[type_]


def batch(*, is_transactional: bool) -> memoryview:
    numbers = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if is_transactional else {}
    records = [NewRecord(None, b"value", timestamp=1)]
    return memoryview(bytes(build_batch(records, transactional=is_transactional, **numbers)))


def produce(n: Names, transactional_id: str | None = None, *, is_transactional: bool = False) -> Message:
    data = produce_messages.PartitionProduceData(index=0, records=batch(is_transactional=is_transactional))
    topic = produce_messages.TopicProduceData(name=n.topic, partition_data=[data])
    return produce_messages.ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[topic]
    )


def fetched(n: Names, replica_id: int = -1) -> Message:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        replica_id=replica_id, max_bytes=1000, topics=[fetch.FetchTopic(topic=n.topic, partitions=[wanted])]
    )


def group_topics(n: Names, topic: type[Any], partition: type[Any]) -> list[Any]:
    return [topic(name=n.topic, partitions=[partition(partition_index=0, committed_offset=1)])]


def resources(kind: type[Any], type_: int, name: str) -> list[Any]:
    keys = (
        {"configuration_keys": ["retention.ms", "log.retention.hours"]}
        if "configuration_keys" in kind.__fields__
        else {}
    )
    return [kind(resource_type=type_, resource_name=name, **keys)]


_Off = group_offsets.OffsetCommitRequestTopic, group_offsets.OffsetCommitRequestPartition
_Txn = group_offsets.TxnOffsetCommitRequestTopic, group_offsets.TxnOffsetCommitRequestPartition
_Add = transactions.AddPartitionsToTxnTopic

NEWER = (
    "describe the settings of a group", "alter the settings of a group", "alter some settings of a group",
    "list what has settings", "update features", "the quorum", "subscriptions to metrics", "push metrics",
    "describe topics in pages",
)  # fmt: skip
"""Cases of APIs and resources that Kafka 3.9 with ZooKeeper lacks."""
OWN = "run the cleaner", "report", "append at offsets"
"""Cases of APIs that are not Kafka's."""

# request, version, what it needs: (operation, resource) -> the code without it. Of several each is taken away in turn.
CASES: dict[str, tuple[Callable[[Names], Message], int, dict[Need, ErrorCode]]] = {
    "produce": (produce, 9, {(O.WRITE, TOPIC): T29}),
    "describe topics in pages": (
        lambda n: topic_partitions.DescribeTopicPartitionsRequest(topics=[topic_partitions.TopicRequest(name=n.topic)]),
        0,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "produce, transactional": (
        lambda n: produce(n, n.transactional_id, is_transactional=True),
        9,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.WRITE, TOPIC): T29},
    ),
    "produce with an id alone": (lambda n: produce(n, n.transactional_id), 9, {(O.WRITE, TOPIC): T29}),
    "fetch": (fetched, 11, {(O.READ, TOPIC): T29}),
    "fetch of a follower": (lambda n: fetched(n, 2), 11, {(O.CLUSTER_ACTION, CLUSTER): T29}),
    "list offsets": (
        lambda n: list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=n.topic, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ]
        ),
        5,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "metadata": (
        lambda n: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=n.topic)]),
        9,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "commit": (
        lambda n: group_offsets.OffsetCommitRequest(group_id=n.group, topics=group_topics(n, *_Off)),
        8,
        {(O.READ, GROUP): G30, (O.READ, TOPIC): T29},
    ),
    "offset fetch": (
        lambda n: group_offsets.OffsetFetchRequest(
            group_id=n.group, topics=[group_offsets.OffsetFetchRequestTopic(name=n.topic, partition_indexes=[0])]
        ),
        7,
        {(O.DESCRIBE, GROUP): G30, (O.DESCRIBE, TOPIC): T29},
    ),
    "offset fetch of many groups": (
        lambda n: group_offsets.OffsetFetchRequest(
            groups=[
                group_offsets.OffsetFetchRequestGroup(
                    group_id=n.group,
                    topics=[group_offsets.OffsetFetchRequestTopic(name=n.topic, partition_indexes=[0])],
                )
            ]
        ),
        8,
        {(O.DESCRIBE, GROUP): G30, (O.DESCRIBE, TOPIC): T29},
    ),
    "coordinator": (lambda n: groups.FindCoordinatorRequest(key=n.group), 2, {(O.DESCRIBE, GROUP): G30}),
    "coordinators": (
        lambda n: groups.FindCoordinatorRequest(key_type=1, coordinator_keys=[n.transactional_id]),
        4,
        {(O.DESCRIBE, TRANSACTIONAL_ID): X53},
    ),
    "join": (
        lambda n: groups.JoinGroupRequest(
            group_id=n.group,
            session_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name="range")],
        ),
        4,
        {(O.READ, GROUP): G30},
    ),
    "sync": (
        lambda n: groups.SyncGroupRequest(group_id=n.group, protocol_type="consumer", protocol_name="range"),
        5,
        {(O.READ, GROUP): G30},
    ),
    "heartbeat": (lambda n: groups.HeartbeatRequest(group_id=n.group), 4, {(O.READ, GROUP): G30}),
    "leave": (
        lambda n: groups.LeaveGroupRequest(group_id=n.group, members=[]),
        4,
        {(O.READ, GROUP): G30},
    ),
    "describe groups": (lambda n: groups.DescribeGroupsRequest(groups=[n.group]), 5, {(O.DESCRIBE, GROUP): G30}),
    "delete groups": (lambda n: groups.DeleteGroupsRequest(groups_names=[n.group]), 2, {(O.DELETE, GROUP): G30}),
    "create a topic": (
        lambda n: topics.CreateTopicsRequest(
            topics=[topics.CreatableTopic(name=n.topic, num_partitions=1, replication_factor=1)]
        ),
        4,
        {(O.CREATE, TOPIC): T29},
    ),
    "delete a topic": (
        lambda n: topics.DeleteTopicsRequest(topic_names=[n.topic], timeout_ms=10_000),
        5,
        {(O.DELETE, TOPIC): T29},
    ),
    "delete records": (
        lambda n: topics.DeleteRecordsRequest(
            topics=[
                topics.DeleteRecordsTopic(name=n.topic, partitions=[topics.DeleteRecordsPartition(partition_index=0)])
            ]
        ),
        2,
        {(O.DELETE, TOPIC): T29},
    ),
    "create partitions": (
        lambda n: topics.CreatePartitionsRequest(topics=[topics.CreatePartitionsTopic(name=n.topic, count=1)]),
        3,
        {(O.ALTER, TOPIC): T29},
    ),
    "an idempotent producer": (
        lambda n: transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        {(O.IDEMPOTENT_WRITE, CLUSTER): C31},
    ),
    "an idempotent producer that may write somewhere": (
        lambda n: transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        {(O.WRITE, TOPIC): C31},
    ),
    "a transactional producer": (
        lambda n: transactions.InitProducerIdRequest(transactional_id=n.transactional_id, transaction_timeout_ms=1000),
        4,
        {(O.WRITE, TRANSACTIONAL_ID): X53},
    ),
    "epochs": (
        lambda n: list_offsets.OffsetForLeaderEpochRequest(
            topics=[
                list_offsets.OffsetForLeaderTopic(
                    topic=n.topic, partitions=[list_offsets.OffsetForLeaderPartition(partition=0)]
                )
            ]
        ),
        3,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "add partitions": (
        lambda n: transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=n.transactional_id, v3_and_below_topics=[_Add(name=n.topic, partitions=[0])]
        ),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.WRITE, TOPIC): T29},
    ),
    "add partitions of a broker": (
        lambda n: transactions.AddPartitionsToTxnRequest(
            transactions=[
                transactions.AddPartitionsToTxnTransaction(
                    transactional_id=n.transactional_id, topics=[_Add(name=n.topic, partitions=[0])]
                )
            ]
        ),
        4,
        {(O.CLUSTER_ACTION, CLUSTER): C31},
    ),
    "add offsets": (
        lambda n: transactions.AddOffsetsToTxnRequest(transactional_id=n.transactional_id, group_id=n.group),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.READ, GROUP): G30},
    ),
    "end": (
        lambda n: transactions.EndTxnRequest(transactional_id=n.transactional_id),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53},
    ),
    "markers": (
        lambda n: transactions.WriteTxnMarkersRequest(
            markers=[
                transactions.WritableTxnMarker(
                    topics=[transactions.WritableTxnMarkerTopic(name=n.topic, partition_indexes=[0])]
                )
            ]
        ),
        1,
        {(O.CLUSTER_ACTION, CLUSTER): C31},
    ),
    "commit in a transaction": (
        lambda n: group_offsets.TxnOffsetCommitRequest(
            transactional_id=n.transactional_id, group_id=n.group, topics=group_topics(n, *_Txn)
        ),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.READ, GROUP): G30, (O.READ, TOPIC): T29},
    ),
    "describe lists": (
        lambda n: acls.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=n.topic + "none",
            pattern_type_filter=1,
            operation=1,
            permission_type=1,
        ),
        3,
        {(O.DESCRIBE, CLUSTER): C31},
    ),
    "create a list": (
        lambda n: acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(
                    resource_type=2,
                    resource_name=n.topic + "u",
                    principal="User:alice",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        3,
        {(O.ALTER, CLUSTER): C31},
    ),
    "delete lists": (
        lambda n: acls.DeleteAclsRequest(
            filters=[
                acls.DeleteAclsFilter(
                    resource_type_filter=2, resource_name_filter=n.topic + "none", operation=1, permission_type=1
                )
            ]
        ),
        3,
        {(O.ALTER, CLUSTER): C31},
    ),
    "describe the settings of a topic": (
        lambda n: configs.DescribeConfigsRequest(resources=resources(configs.DescribeConfigsResource, 2, n.topic)),
        4,
        {(O.DESCRIBE_CONFIGS, TOPIC): T29},
    ),
    "describe the settings of a broker": (
        lambda n: configs.DescribeConfigsRequest(resources=resources(configs.DescribeConfigsResource, 4, n.broker)),
        4,
        {(O.DESCRIBE_CONFIGS, CLUSTER): C31},
    ),
    "alter the settings of a topic": (
        lambda n: configs.AlterConfigsRequest(resources=resources(configs.AlterConfigsResource, 2, n.topic)),
        2,
        {(O.ALTER_CONFIGS, TOPIC): T29},
    ),
    "alter some settings of a topic": (
        lambda n: configs.IncrementalAlterConfigsRequest(
            resources=resources(configs.IncrementalAlterConfigsResource, 2, n.topic)
        ),
        1,
        {(O.ALTER_CONFIGS, TOPIC): T29},
    ),
    "describe the settings of a group": (
        lambda n: configs.DescribeConfigsRequest(resources=resources(configs.DescribeConfigsResource, 32, n.group)),
        4,
        {(O.DESCRIBE_CONFIGS, GROUP): G30},
    ),
    "alter the settings of a group": (
        lambda n: configs.AlterConfigsRequest(resources=resources(configs.AlterConfigsResource, 32, n.group)),
        2,
        {(O.ALTER_CONFIGS, GROUP): G30},
    ),
    "alter some settings of a group": (
        lambda n: configs.IncrementalAlterConfigsRequest(
            resources=resources(configs.IncrementalAlterConfigsResource, 32, n.group)
        ),
        1,
        {(O.ALTER_CONFIGS, GROUP): G30},
    ),
    "list what has settings": (
        lambda n: configs.ListConfigResourcesRequest(resource_types=[2, 32]),
        1,
        {(O.DESCRIBE_CONFIGS, CLUSTER): C31},
    ),
    "subscriptions to metrics": (lambda n: telemetry.GetTelemetrySubscriptionsRequest(), 0, {}),
    "push metrics": (lambda n: telemetry.PushTelemetryRequest(), 0, {}),
    "update features": (lambda n: features.UpdateFeaturesRequest(), 2, {(O.ALTER, CLUSTER): C31}),
    "the quorum": (lambda n: quorum.DescribeQuorumRequest(), 2, {(O.DESCRIBE, CLUSTER): C31}),
    "log directories": (lambda n: log_dirs.DescribeLogDirsRequest(topics=None), 4, {(O.DESCRIBE, CLUSTER): C31}),
    "elections": (
        lambda n: partition_admin.ElectLeadersRequest(topic_partitions=None, timeout_ms=1000),
        2,
        {(O.ALTER, CLUSTER): C31},
    ),
    "reassignments": (
        lambda n: partition_admin.AlterPartitionReassignmentsRequest(timeout_ms=1000),
        0,
        {(O.ALTER, CLUSTER): C31},
    ),
    "list reassignments": (
        lambda n: partition_admin.ListPartitionReassignmentsRequest(timeout_ms=1000),
        0,
        {(O.DESCRIBE, CLUSTER): C31},
    ),
    "delete offsets": (
        lambda n: group_offsets.OffsetDeleteRequest(
            group_id=n.group,
            topics=[
                group_offsets.OffsetDeleteRequestTopic(
                    name=n.topic, partitions=[group_offsets.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        0,
        {(O.DELETE, GROUP): G30},  # the group is missing, which is told before topics are
    ),
    "producers": (
        lambda n: transactions.DescribeProducersRequest(
            topics=[transactions.DescribeProducersTopicRequest(name=n.topic, partition_indexes=[0])]
        ),
        0,
        {(O.READ, TOPIC): T29},
    ),
    "describe transactions": (
        lambda n: transactions.DescribeTransactionsRequest(transactional_ids=[n.transactional_id]),
        0,
        {(O.DESCRIBE, TRANSACTIONAL_ID): X53},
    ),
    "describe quotas": (
        lambda n: entity_configs.DescribeClientQuotasRequest(
            components=[entity_configs.QuotaFilterComponent(entity_type="user", match_type=0, match=n.group)]
        ),
        1,
        {(O.DESCRIBE_CONFIGS, CLUSTER): C31},
    ),
    "alter quotas": (
        lambda n: entity_configs.AlterClientQuotasRequest(
            entries=[
                entity_configs.AlteredEntity(
                    entity=[entity_configs.QuotaEntity(entity_type="user", entity_name=n.group)],
                    ops=[entity_configs.QuotaOperation(key="producer_byte_rate", value=1e6)],
                )
            ],
            validate_only=True,
        ),
        1,
        {(O.ALTER_CONFIGS, CLUSTER): C31},
    ),
    "describe users": (
        lambda n: entity_configs.DescribeUserScramCredentialsRequest(users=[entity_configs.UserName(name=n.group)]),
        0,
        {(O.DESCRIBE, CLUSTER): C31},
    ),
    "alter users": (
        lambda n: entity_configs.AlterUserScramCredentialsRequest(
            deletions=[entity_configs.ScramCredentialDeletion(name=n.group, mechanism=1)],
            upsertions=[
                entity_configs.ScramCredentialUpsertion(
                    name=n.group, mechanism=2, iterations=4096, salt=b"salt", salted_password=bytes(64)
                )
            ],
        ),
        0,
        {(O.ALTER, CLUSTER): C31},
    ),
    "run the cleaner": (lambda n: cleaner.RunCleanerRequest(), 0, {(O.ALTER, CLUSTER): C31}),
    "append at offsets": (
        lambda n: append_at.AppendAtRequest(
            topics=[append_at.AppendAtTopic(name=n.topic, partitions=[append_at.AppendAtPartition()])]
        ),
        0,
        {(O.WRITE, TOPIC): T29, (O.ALTER, TOPIC): T29},
    ),
    "report": (lambda n: broker_report.BrokerReportRequest(kind="cluster"), 0, {(O.DESCRIBE, CLUSTER): C31}),
}
