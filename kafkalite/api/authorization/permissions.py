"""The table of permissions: for each API, which operation on which resource it needs.

A refusal is the error of the resource's type: 29 for a topic, 30 for a group, 31 for the cluster, 53 for a
transactional id. Rules are looked at in their order.

    Cluster   one of these operations on the cluster, or the whole request is refused
    Named     an operation on the one resource that a field of the request names, or the whole request is refused
    Each      an operation on each resource that the request lists; others are refused, the rest goes on
    Special   more than these can say: a function beside this table, or the handler itself

Source: kafka.server.KafkaApis; the operations of each API are in the documentation's "Authorization primitives".
"""

# ruff: noqa: E501
# The table is wide, so that one API stays one line.

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.security.acl.acl import Operation as Op
from kafkalite.security.acl.acl import ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

REFUSALS: Mapping[ResourceType, ErrorCode] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

MESSAGES: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


class Cluster(NamedTuple):
    operations: tuple[Op, ...]


class Named(NamedTuple):
    """`field` of the request; None in it names nothing and needs nothing."""

    operation: Op
    type: ResourceType
    field: str


class Each(NamedTuple):
    """With `or_cluster` that operation on the cluster is enough for all."""

    operation: Op
    type: ResourceType
    or_cluster: Op | None = None


class Special(NamedTuple):
    """`function` is module.name below this folder; empty: the handler itself asks. `needs` says for people what."""

    function: str
    needs: str


Rule = Cluster | Named | Each | Special


def cluster(*operations: Op) -> tuple[Rule, ...]:
    return (Cluster(operations),)


_READS_GROUP = (Named(Op.READ, GROUP, "group_id"),)

# fmt: off
PERMISSIONS: Mapping[str, tuple[Rule, ...]] = {
    "Produce": (Special("transactions.produce", "WRITE TransactionalId for transactional batches"), Each(Op.WRITE, TOPIC)),
    "Fetch": (Special("", "READ Topic; a follower CLUSTER_ACTION Cluster"),),
    "ListOffsets": (Each(Op.DESCRIBE, TOPIC),),
    "Metadata": (Special("topics.metadata", "DESCRIBE Topic; to create one CREATE Cluster or Topic"),),
    "OffsetCommit": (*_READS_GROUP, Each(Op.READ, TOPIC)),
    "OffsetFetch": (Special("groups.offset_fetch", "DESCRIBE Group, DESCRIBE Topic"),),
    "FindCoordinator": (Special("groups.find_coordinator", "DESCRIBE Group or DESCRIBE TransactionalId"),),
    "JoinGroup": _READS_GROUP,
    "Heartbeat": _READS_GROUP,
    "LeaveGroup": _READS_GROUP,
    "SyncGroup": (Special("groups.sync_group", "READ Group"),),
    "DescribeGroups": (Special("groups.describe_groups", "DESCRIBE Group"),),
    "ListGroups": (Special("groups.list_groups", "DESCRIBE Cluster, or DESCRIBE Group of each"),),
    "ApiVersions": (),
    "CreateTopics": (Special("topics.create_topics", "CREATE Cluster or Topic; DESCRIBE_CONFIGS Topic to see its settings"),),
    "DeleteTopics": (Special("topics.delete_topics", "DELETE Topic; by id DESCRIBE Topic too"),),
    "DeleteRecords": (Each(Op.DELETE, TOPIC),),
    "InitProducerId": (Special("transactions.init_producer_id", "WRITE TransactionalId; without one IDEMPOTENT_WRITE Cluster or WRITE of any Topic"),),
    "AddPartitionsToTxn": (Special("transactions.add_partitions_to_txn", "WRITE TransactionalId, WRITE Topic; brokers CLUSTER_ACTION Cluster"),),
    "AddOffsetsToTxn": (Named(Op.WRITE, TRANSACTIONAL_ID, "transactional_id"), *_READS_GROUP),
    "EndTxn": (Named(Op.WRITE, TRANSACTIONAL_ID, "transactional_id"),),
    "WriteTxnMarkers": cluster(Op.ALTER, Op.CLUSTER_ACTION),
    "TxnOffsetCommit": (Named(Op.WRITE, TRANSACTIONAL_ID, "transactional_id"), *_READS_GROUP, Each(Op.READ, TOPIC)),
    "OffsetForLeaderEpoch": (Each(Op.DESCRIBE, TOPIC, or_cluster=Op.CLUSTER_ACTION),),
    "DescribeAcls": cluster(Op.DESCRIBE),
    "CreateAcls": cluster(Op.ALTER),
    "DeleteAcls": cluster(Op.ALTER),
    "DescribeConfigs": (Special("configs.describe_configs", "DESCRIBE_CONFIGS Topic, or Cluster for brokers"),),
    "AlterConfigs": (Special("configs.alter_configs", "ALTER_CONFIGS Topic, or Cluster for brokers"),),
    "IncrementalAlterConfigs": (Special("configs.alter_configs", "ALTER_CONFIGS Topic, or Cluster for brokers"),),
    "AlterReplicaLogDirs": cluster(Op.ALTER),
    "DescribeLogDirs": (Special("topics.describe_log_dirs", "DESCRIBE Cluster"),),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "CreatePartitions": (Each(Op.ALTER, TOPIC),),
    "CreateDelegationToken": (Special("", "nothing for oneself; for another owner CREATE_TOKENS User"),),
    "RenewDelegationToken": (Special("", "nothing; it is for the owner and the renewers"),),
    "ExpireDelegationToken": (Special("", "nothing; it is for the owner and the renewers"),),
    "DescribeDelegationToken": (Special("", "nothing for one's own; DESCRIBE DelegationToken or DESCRIBE_TOKENS User of each"),),
    "DeleteGroups": (Each(Op.DELETE, GROUP),),
    "ElectLeaders": cluster(Op.ALTER),
    "AlterPartitionReassignments": cluster(Op.ALTER),
    "ListPartitionReassignments": cluster(Op.DESCRIBE),
    "OffsetDelete": (Named(Op.DELETE, GROUP, "group_id"), Special("groups.offset_delete", "READ Topic")),
    "DescribeClientQuotas": cluster(Op.DESCRIBE_CONFIGS),
    "AlterClientQuotas": cluster(Op.ALTER_CONFIGS),
    "DescribeUserScramCredentials": (Special("users.describe_user_scram_credentials", "DESCRIBE Cluster"),),
    "AlterUserScramCredentials": (Special("users.alter_user_scram_credentials", "ALTER Cluster"),),
    "DescribeCluster": (Special("topics.describe_cluster", "nothing; DESCRIBE Cluster to see its operations"),),
    "DescribeProducers": (Each(Op.READ, TOPIC),),
    "DescribeTransactions": (Special("transactions.describe_transactions", "DESCRIBE TransactionalId; DESCRIBE Topic to see it"),),
    "ListTransactions": (Special("transactions.list_transactions", "DESCRIBE TransactionalId of each"),),
    "RunCleaner": cluster(Op.ALTER),
    "BrokerReport": cluster(Op.DESCRIBE),
}
# fmt: on
