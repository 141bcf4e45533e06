"""The table of permissions: for each API, which operation on which resource it needs.

A refusal is the error of the resource's type: 29 for a topic, 30 for a group, 31 for the cluster, 53 for a
transactional id. Rules apply in their order.

    Cluster   one of these operations on the cluster, or the whole request is refused
    Named     an operation on the one resource that a field of the request names, or the whole request is refused
    Asked     operations that the handler asks for itself (`RequestContext.may`), mostly for each resource of a list

Cluster and Named are carried out here, before the handler. tests/unit/api/test_permissions.py compares Asked with the
questions of the handlers.
Source: kafka.server.KafkaApis; the operations of each API are in the documentation's "Authorization primitives".
"""

# ruff: noqa: E501
# The table is wide, so that one API stays one line.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.api.request.error_answer import error_answer
from kafkalite.api.request.request_context import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, RequestContext, refusal
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.apis import Api
from kafkalite.protocol.codec.schema import Message
from kafkalite.security.acl.acl import Operation as Op
from kafkalite.security.acl.acl import ResourceType

DELEGATION_TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER


class Cluster(NamedTuple):
    operations: tuple[Op, ...]
    type: ResourceType = CLUSTER

    def is_allowed(self, request: Any, context: RequestContext) -> bool:
        return context.may_cluster(*self.operations)


class Named(NamedTuple):
    """`field` of the request; None in it names nothing and needs nothing."""

    operation: Op
    type: ResourceType
    field: str

    def is_allowed(self, request: Any, context: RequestContext) -> bool:
        name = getattr(request, self.field)
        return name is None or context.may(self.operation, self.type, name)


class Asked(NamedTuple):
    """`note` says when, if not for each resource of the request."""

    needs: tuple[tuple[Op, ResourceType], ...]
    note: str = ""


Rule = Cluster | Named | Asked
Rules = tuple[Rule, ...]


def cluster(*operations: Op) -> Rules:
    return (Cluster(operations),)


def asked(*needs: tuple[Op, ResourceType], note: str = "") -> Rules:
    return (Asked(needs, note),)


_READS_GROUP = (Named(Op.READ, GROUP, "group_id"),)
_WRITES_ID = (Named(Op.WRITE, TRANSACTIONAL_ID, "transactional_id"),)

# fmt: off
PERMISSIONS: Mapping[str, Rules] = {
    "Produce": asked((Op.WRITE, TRANSACTIONAL_ID), (Op.WRITE, TOPIC), note="the id for transactional batches"),
    "Fetch": asked((Op.READ, TOPIC), (Op.CLUSTER_ACTION, CLUSTER), note="the cluster for a follower"),
    "ListOffsets": asked((Op.DESCRIBE, TOPIC)),
    "Metadata": asked((Op.DESCRIBE, TOPIC), (Op.CREATE, CLUSTER), (Op.CREATE, TOPIC), note="CREATE one of them, for a missing topic"),
    "OffsetCommit": _READS_GROUP + asked((Op.READ, TOPIC)),
    "OffsetFetch": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
    "FindCoordinator": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TRANSACTIONAL_ID), note="by the type of the key"),
    "JoinGroup": _READS_GROUP,
    "Heartbeat": _READS_GROUP,
    "LeaveGroup": _READS_GROUP,
    "SyncGroup": asked((Op.READ, GROUP), note="a request without its protocol is refused for that first"),
    "DescribeGroups": asked((Op.DESCRIBE, GROUP)),
    "ListGroups": asked((Op.DESCRIBE, CLUSTER), (Op.DESCRIBE, GROUP), note="the cluster, or each group"),
    "ApiVersions": (),
    "CreateTopics": asked((Op.CREATE, CLUSTER), (Op.CREATE, TOPIC), (Op.DESCRIBE_CONFIGS, TOPIC), note="CREATE one of them; DESCRIBE_CONFIGS to see its settings"),
    "DeleteTopics": asked((Op.DELETE, TOPIC), (Op.DESCRIBE, TOPIC), note="DESCRIBE for a topic by its id"),
    "DeleteRecords": asked((Op.DELETE, TOPIC)),
    "InitProducerId": asked((Op.WRITE, TRANSACTIONAL_ID), (Op.IDEMPOTENT_WRITE, CLUSTER), (Op.WRITE, TOPIC), note="without an id IDEMPOTENT_WRITE, or WRITE of any topic"),
    "AddPartitionsToTxn": asked((Op.WRITE, TRANSACTIONAL_ID), (Op.WRITE, TOPIC), (Op.CLUSTER_ACTION, CLUSTER), note="brokers the cluster alone"),
    "AddOffsetsToTxn": _WRITES_ID + _READS_GROUP,
    "EndTxn": _WRITES_ID,
    "WriteTxnMarkers": cluster(Op.ALTER, Op.CLUSTER_ACTION),
    "TxnOffsetCommit": _WRITES_ID + _READS_GROUP + asked((Op.READ, TOPIC)),
    "OffsetForLeaderEpoch": asked((Op.CLUSTER_ACTION, CLUSTER), (Op.DESCRIBE, TOPIC), note="the cluster, or each topic"),
    "DescribeAcls": cluster(Op.DESCRIBE),
    "CreateAcls": cluster(Op.ALTER),
    "DeleteAcls": cluster(Op.ALTER),
    "DescribeConfigs": asked((Op.DESCRIBE_CONFIGS, TOPIC), (Op.DESCRIBE_CONFIGS, GROUP), (Op.DESCRIBE_CONFIGS, CLUSTER), note="the cluster for brokers and metrics of clients"),
    "AlterConfigs": asked((Op.ALTER_CONFIGS, TOPIC), (Op.ALTER_CONFIGS, GROUP), (Op.ALTER_CONFIGS, CLUSTER), note="the cluster for brokers and metrics of clients"),
    "IncrementalAlterConfigs": asked((Op.ALTER_CONFIGS, TOPIC), (Op.ALTER_CONFIGS, GROUP), (Op.ALTER_CONFIGS, CLUSTER), note="the cluster for brokers and metrics of clients"),
    "GetTelemetrySubscriptions": (),
    "PushTelemetry": (),
    "UpdateFeatures": cluster(Op.ALTER),
    "DescribeQuorum": cluster(Op.DESCRIBE),
    "ListConfigResources": cluster(Op.DESCRIBE_CONFIGS),
    "AlterReplicaLogDirs": cluster(Op.ALTER),
    "DescribeLogDirs": cluster(Op.DESCRIBE),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "CreatePartitions": asked((Op.ALTER, TOPIC)),
    "CreateDelegationToken": asked((Op.CREATE_TOKENS, USER), note="for another owner"),
    "RenewDelegationToken": asked(note="nothing; it is for the owner and the renewers"),
    "ExpireDelegationToken": asked(note="nothing; it is for the owner and the renewers"),
    "DescribeDelegationToken": asked((Op.DESCRIBE, DELEGATION_TOKEN), (Op.DESCRIBE_TOKENS, USER), note="one of them, for those of others"),
    "DeleteGroups": asked((Op.DELETE, GROUP)),
    "ElectLeaders": cluster(Op.ALTER),
    "AlterPartitionReassignments": cluster(Op.ALTER),
    "ListPartitionReassignments": cluster(Op.DESCRIBE),
    "OffsetDelete": (Named(Op.DELETE, GROUP, "group_id"), *asked((Op.READ, TOPIC))),
    "DescribeClientQuotas": asked((Op.DESCRIBE_CONFIGS, CLUSTER)),
    "AlterClientQuotas": cluster(Op.ALTER_CONFIGS),
    "DescribeUserScramCredentials": asked((Op.DESCRIBE, CLUSTER)),
    "AlterUserScramCredentials": asked((Op.ALTER, CLUSTER)),
    "DescribeTopicPartitions": asked((Op.DESCRIBE, TOPIC)),
    "DescribeCluster": asked((Op.DESCRIBE, CLUSTER), note="to see its operations"),
    "DescribeProducers": asked((Op.READ, TOPIC)),
    "DescribeTransactions": asked((Op.DESCRIBE, TRANSACTIONAL_ID), (Op.DESCRIBE, TOPIC), note="the topic to see it"),
    "ListTransactions": asked((Op.DESCRIBE, TRANSACTIONAL_ID)),
    "ConsumerGroupHeartbeat": asked((Op.READ, GROUP), (Op.DESCRIBE, TOPIC), note="for topics by name; a regular expression matches those that it may describe"),
    "ConsumerGroupDescribe": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
    "ShareGroupHeartbeat": asked((Op.READ, GROUP), (Op.DESCRIBE, TOPIC)),
    "ShareGroupDescribe": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
    "ShareFetch": asked((Op.READ, GROUP), (Op.READ, TOPIC)),
    "ShareAcknowledge": asked((Op.READ, GROUP), (Op.READ, TOPIC)),
    "InitializeShareGroupState": asked((Op.CLUSTER_ACTION, CLUSTER)),
    "ReadShareGroupState": asked((Op.CLUSTER_ACTION, CLUSTER)),
    "WriteShareGroupState": asked((Op.CLUSTER_ACTION, CLUSTER)),
    "DeleteShareGroupState": asked((Op.CLUSTER_ACTION, CLUSTER)),
    "ReadShareGroupStateSummary": asked((Op.CLUSTER_ACTION, CLUSTER)),
    "DescribeShareGroupOffsets": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
    "AlterShareGroupOffsets": asked((Op.READ, GROUP), (Op.READ, TOPIC)),
    "DeleteShareGroupOffsets": asked((Op.DELETE, GROUP), (Op.READ, TOPIC)),
    "StreamsGroupHeartbeat": asked((Op.READ, GROUP), (Op.DESCRIBE, TOPIC), (Op.CREATE, CLUSTER), (Op.CREATE, TOPIC), note="CREATE one of them, for missing internal topics"),
    "StreamsGroupDescribe": asked((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
    "RunCleaner": cluster(Op.ALTER),
    "BrokerReport": cluster(Op.DESCRIBE),
    "AppendAt": asked((Op.WRITE, TOPIC), (Op.ALTER, TOPIC)),
}
# fmt: on

_WITH_MESSAGES = (
    "DescribeAcls", "CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterPartitionReassignments",
    "ListPartitionReassignments", "UpdateFeatures", "DescribeQuorum",
)  # fmt: skip
"""Refusals of other whole requests have a code alone."""


def guarded(api: Api, handler: Callable[..., Any]) -> Callable[..., Any]:
    """`handler` behind the rules of its API that decide about whole requests."""
    rules = [rule for rule in PERMISSIONS[api.name] if not isinstance(rule, Asked)]
    if not rules:
        return handler

    def guard(request: Message, context: RequestContext) -> Any:
        for rule in rules:
            if not rule.is_allowed(request, context):
                return _refused(api, request, rule.type, context.api_version)
        return handler(request, context)

    return guard


def _refused(api: Api, request: Message, type_: ResourceType, version: int) -> Message:
    """The answer in which everything is refused."""
    error = refusal(type_)
    answer = error_answer(api.response, request, error.code, version)
    if api.name in _WITH_MESSAGES:
        _add_messages(answer, error.code, error.message)
    return answer


def _add_messages(answer: Any, code: int, message: str | None) -> None:
    if getattr(answer, "error_code", 0) == code:
        answer.error_message = message
    for name, field in answer.__fields__.items():
        if field.is_array and isinstance(field.kind, type) and issubclass(field.kind, Message):
            for each in getattr(answer, name) or ():
                _add_messages(each, code, message)
