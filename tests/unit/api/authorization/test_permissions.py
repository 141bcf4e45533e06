"""The table of permissions, and each API as a principal meets it that may do one thing and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalite.api.authorization.permissions import PERMISSIONS, Cluster, Each, Named, Special
from kafkalite.api.dispatch import HANDLERS
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import API_OF_REQUEST, APIS, SERVED
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import (
    acls,
    cleaner,
    configs,
    elections,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    list_offsets,
    log_dirs,
    metadata,
    producer_ids,
    reassignments,
    topics,
    transaction_admin,
    transactions,
)
from kafkalite.protocol.messages import produce as produce_messages
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.security.acl.acl import Entry, Operation, Permission, Resource, ResourceType
from kafkalite.server.broker import Broker
from tests.unit.api.conftest import Asker

ALICE = "User:alice"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: "kafka-cluster", TRANSACTIONAL_ID: "x"}
O = Operation  # noqa: E741
NONE = ErrorCode.NONE
T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
REFUSALS = {T29, G30, C31, X53, ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_every_api_has_a_row_and_every_special_rule_a_function() -> None:
    missing = {api.name for api in SERVED.values()} - PERMISSIONS.keys()
    assert not missing, "APIs without a row"
    assert HANDLERS.keys() <= PERMISSIONS.keys()
    for rules in PERMISSIONS.values():
        for rule in rules:
            assert isinstance(rule, Cluster | Named | Each | Special)


def test_the_fields_that_rules_name_exist() -> None:
    for api in SERVED.values():
        for rule in PERMISSIONS[api.name]:
            if isinstance(rule, Named):
                assert rule.field in api.request.__fields__


def codes(message: Message) -> Iterable[int]:
    """All error codes in an answer."""
    for name, field in message.__fields__.items():
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        elif field.is_array and value and isinstance(value[0], Message):
            for each in value:
                yield from codes(each)


def batch() -> memoryview:
    return memoryview(bytes(build_batch([NewRecord(None, b"value", timestamp=1)])))


def produce(transactional_id: str | None = None) -> Message:
    data = produce_messages.PartitionProduceData(index=0, records=batch())
    topic = produce_messages.TopicProduceData(name="t", partition_data=[data])
    return produce_messages.ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[topic]
    )


def fetched(replica_id: int = -1) -> Message:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        replica_id=replica_id, max_bytes=1000, topics=[fetch.FetchTopic(topic="t", partitions=[wanted])]
    )


def group_topics(topic: type[Any], partition: type[Any]) -> list[Any]:
    return [topic(name="t", partitions=[partition(partition_index=0, committed_offset=1)])]


def resources(kind: type[Any], type_: int, name: str) -> list[Any]:
    return [kind(resource_type=type_, resource_name=name)]


_Off = group_offsets.OffsetCommitRequestTopic, group_offsets.OffsetCommitRequestPartition
_Txn = group_offsets.TxnOffsetCommitRequestTopic, group_offsets.TxnOffsetCommitRequestPartition
_Add = transactions.AddPartitionsToTxnTopic

# request, version, what it needs: (operation, resource) -> the code without it. Of several each is taken away in turn.
CASES: dict[str, tuple[Callable[[], Message], int, dict[tuple[Operation, ResourceType], ErrorCode]]] = {
    "produce": (produce, 9, {(O.WRITE, TOPIC): T29}),
    "produce, transactional": (
        lambda: produce("x"),
        9,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.WRITE, TOPIC): T29},
    ),
    "fetch": (fetched, 11, {(O.READ, TOPIC): T29}),
    "fetch of a follower": (lambda: fetched(2), 11, {(O.CLUSTER_ACTION, CLUSTER): T29}),
    "list offsets": (
        lambda: list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ]
        ),
        5,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "metadata": (
        lambda: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
        9,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "commit": (
        lambda: group_offsets.OffsetCommitRequest(group_id="g", topics=group_topics(*_Off)),
        8,
        {(O.READ, GROUP): G30, (O.READ, TOPIC): T29},
    ),
    "offset fetch": (
        lambda: group_offsets.OffsetFetchRequest(
            group_id="g", topics=[group_offsets.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        ),
        7,
        {(O.DESCRIBE, GROUP): G30, (O.DESCRIBE, TOPIC): T29},
    ),
    "offset fetch of many groups": (
        lambda: group_offsets.OffsetFetchRequest(
            groups=[
                group_offsets.OffsetFetchRequestGroup(
                    group_id="g", topics=[group_offsets.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
                )
            ]
        ),
        8,
        {(O.DESCRIBE, GROUP): G30, (O.DESCRIBE, TOPIC): T29},
    ),
    "coordinator": (lambda: group_admin.FindCoordinatorRequest(key="g"), 2, {(O.DESCRIBE, GROUP): G30}),
    "coordinators": (
        lambda: group_admin.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        4,
        {(O.DESCRIBE, TRANSACTIONAL_ID): X53},
    ),
    "join": (
        lambda: group_membership.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[group_membership.JoinGroupRequestProtocol(name="range")],
        ),
        4,
        {(O.READ, GROUP): G30},
    ),
    "sync": (lambda: group_membership.SyncGroupRequest(group_id="g"), 5, {(O.READ, GROUP): G30}),
    "heartbeat": (lambda: group_membership.HeartbeatRequest(group_id="g"), 4, {(O.READ, GROUP): G30}),
    "leave": (
        lambda: group_membership.LeaveGroupRequest(group_id="g", members=[]),
        4,
        {(O.READ, GROUP): G30},
    ),
    "describe groups": (lambda: group_admin.DescribeGroupsRequest(groups=["g"]), 5, {(O.DESCRIBE, GROUP): G30}),
    "delete groups": (lambda: group_admin.DeleteGroupsRequest(groups_names=["g"]), 2, {(O.DELETE, GROUP): G30}),
    "create a topic": (
        lambda: topics.CreateTopicsRequest(
            topics=[topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        4,
        {(O.CREATE, TOPIC): T29},
    ),
    "delete a topic": (lambda: topics.DeleteTopicsRequest(topic_names=["t"]), 5, {(O.DELETE, TOPIC): T29}),
    "delete records": (
        lambda: topics.DeleteRecordsRequest(
            topics=[topics.DeleteRecordsTopic(name="t", partitions=[topics.DeleteRecordsPartition(partition_index=0)])]
        ),
        2,
        {(O.DELETE, TOPIC): T29},
    ),
    "create partitions": (
        lambda: topics.CreatePartitionsRequest(topics=[topics.CreatePartitionsTopic(name="t", count=1)]),
        3,
        {(O.ALTER, TOPIC): T29},
    ),
    "an idempotent producer": (
        lambda: producer_ids.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        {(O.IDEMPOTENT_WRITE, CLUSTER): C31},
    ),
    "an idempotent producer that may write somewhere": (
        lambda: producer_ids.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        {(O.WRITE, TOPIC): C31},
    ),
    "a transactional producer": (
        lambda: producer_ids.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        4,
        {(O.WRITE, TRANSACTIONAL_ID): X53},
    ),
    "epochs": (
        lambda: list_offsets.OffsetForLeaderEpochRequest(
            topics=[
                list_offsets.OffsetForLeaderTopic(
                    topic="t", partitions=[list_offsets.OffsetForLeaderPartition(partition=0)]
                )
            ]
        ),
        3,
        {(O.DESCRIBE, TOPIC): T29},
    ),
    "add partitions": (
        lambda: transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_topics=[_Add(name="t", partitions=[0])]
        ),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.WRITE, TOPIC): T29},
    ),
    "add partitions of a broker": (
        lambda: transactions.AddPartitionsToTxnRequest(
            transactions=[
                transactions.AddPartitionsToTxnTransaction(
                    transactional_id="x", topics=[_Add(name="t", partitions=[0])]
                )
            ]
        ),
        4,
        {(O.CLUSTER_ACTION, CLUSTER): C31},
    ),
    "add offsets": (
        lambda: transactions.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.READ, GROUP): G30},
    ),
    "end": (lambda: transactions.EndTxnRequest(transactional_id="x"), 3, {(O.WRITE, TRANSACTIONAL_ID): X53}),
    "markers": (
        lambda: transactions.WriteTxnMarkersRequest(
            markers=[
                transactions.WritableTxnMarker(
                    topics=[transactions.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
                )
            ]
        ),
        1,
        {(O.CLUSTER_ACTION, CLUSTER): C31},
    ),
    "commit in a transaction": (
        lambda: group_offsets.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=group_topics(*_Txn)),
        3,
        {(O.WRITE, TRANSACTIONAL_ID): X53, (O.READ, GROUP): G30, (O.READ, TOPIC): T29},
    ),
    "describe lists": (
        lambda: acls.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
        3,
        {(O.DESCRIBE, CLUSTER): C31},
    ),
    "create a list": (
        lambda: acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(
                    resource_type=2, resource_name="u", principal=ALICE, host="*", operation=3, permission_type=3
                )
            ]
        ),
        3,
        {(O.ALTER, CLUSTER): C31},
    ),
    "delete lists": (
        lambda: acls.DeleteAclsRequest(
            filters=[
                acls.DeleteAclsFilter(
                    resource_type_filter=2, resource_name_filter="none", operation=1, permission_type=1
                )
            ]
        ),
        3,
        {(O.ALTER, CLUSTER): C31},
    ),
    "describe the settings of a topic": (
        lambda: configs.DescribeConfigsRequest(resources=resources(configs.DescribeConfigsResource, 2, "t")),
        4,
        {(O.DESCRIBE_CONFIGS, TOPIC): T29},
    ),
    "describe the settings of a broker": (
        lambda: configs.DescribeConfigsRequest(resources=resources(configs.DescribeConfigsResource, 4, "0")),
        4,
        {(O.DESCRIBE_CONFIGS, CLUSTER): C31},
    ),
    "alter the settings of a topic": (
        lambda: configs.AlterConfigsRequest(resources=resources(configs.AlterConfigsResource, 2, "t")),
        2,
        {(O.ALTER_CONFIGS, TOPIC): T29},
    ),
    "alter some settings of a topic": (
        lambda: configs.IncrementalAlterConfigsRequest(
            resources=resources(configs.IncrementalAlterConfigsResource, 2, "t")
        ),
        1,
        {(O.ALTER_CONFIGS, TOPIC): T29},
    ),
    "log directories": (lambda: log_dirs.DescribeLogDirsRequest(topics=None), 4, {(O.DESCRIBE, CLUSTER): C31}),
    "elections": (
        lambda: elections.ElectLeadersRequest(topic_partitions=None, timeout_ms=1000),
        2,
        {(O.ALTER, CLUSTER): C31},
    ),
    "reassignments": (
        lambda: reassignments.AlterPartitionReassignmentsRequest(timeout_ms=1000),
        0,
        {(O.ALTER, CLUSTER): C31},
    ),
    "list reassignments": (
        lambda: reassignments.ListPartitionReassignmentsRequest(timeout_ms=1000),
        0,
        {(O.DESCRIBE, CLUSTER): C31},
    ),
    "delete offsets": (
        lambda: group_offsets.OffsetDeleteRequest(
            group_id="g",
            topics=[
                group_offsets.OffsetDeleteRequestTopic(
                    name="t", partitions=[group_offsets.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        0,
        {(O.DELETE, GROUP): G30, (O.READ, TOPIC): T29},
    ),
    "producers": (
        lambda: transaction_admin.DescribeProducersRequest(
            topics=[transaction_admin.DescribeProducersTopicRequest(name="t", partition_indexes=[0])]
        ),
        0,
        {(O.READ, TOPIC): T29},
    ),
    "describe transactions": (
        lambda: transaction_admin.DescribeTransactionsRequest(transactional_ids=["x"]),
        0,
        {(O.DESCRIBE, TRANSACTIONAL_ID): X53},
    ),
    "run the cleaner": (lambda: cleaner.RunCleanerRequest(), 0, {(O.ALTER, CLUSTER): C31}),
}


def be_alice(broker: Broker) -> None:
    running: Any = broker._running
    for processor in running.server.processors:
        for connection in processor.connections:
            connection.client.principal = ALICE


async def allow(broker: Broker, needs: Iterable[tuple[Operation, ResourceType]]) -> None:
    running: Any = broker._running
    for operation, type_ in needs:
        entry = Entry(ALICE, Permission.ALLOW, operation)
        await running.metadata.change_acls(Resource(type_, NAMES[type_]), lambda there, entry=entry: (*there, entry))


ONE_BY_ONE = [(name, missing) for name, (_, _, needs) in CASES.items() for missing in (None, *needs)]


@pytest.mark.parametrize(("name", "missing"), ONE_BY_ONE)
def test_each_need_is_enough_and_is_needed(
    tell: Callable[..., None], name: str, missing: tuple[Operation, ResourceType] | None
) -> None:
    make, version, needs = CASES[name]

    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        if name != "create a topic":
            await running.topic_admin.create("t", 1, {})
        await running._services.offsets_topic.ensure()
        await asker.ask(metadata.MetadataRequest(topics=[]), 9)  # accepted
        be_alice(broker)
        await allow(broker, [each for each in needs if each != missing])
        found = set(codes(await asker.ask(make(), version)))
        if missing is None:
            assert not found & REFUSALS
        else:
            assert needs[missing] in found, found
            assert found <= {NONE, needs[missing]}

    tell(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:admin", auto_create_topics_enable=False)


def test_all_cases_together_know_every_api_with_a_rule() -> None:
    told = {API_OF_REQUEST[type(make())].name for make, _, _ in CASES.values()}
    beside = {
        "ListGroups",
        "ListTransactions",
        "DescribeCluster",
        "AlterReplicaLogDirs",
    }
    ruled = {api.name for api in APIS.values() if PERMISSIONS[api.name]}
    assert ruled - told <= beside
