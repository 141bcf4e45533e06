"""The table of permissions, and each API as a principal meets it that may do one thing and no other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalite.api.permissions import PERMISSIONS, Asked, Named
from kafkalite.api.request.request_context import Access, RequestContext
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import API_OF_REQUEST, APIS, SERVED
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import (
    configs,
    consumer_groups,
    groups,
    log_dirs,
    metadata,
    share_fetch,
    share_groups,
    share_state,
    streams_groups,
    topics,
    transactions,
)
from kafkalite.protocol.messages.produce import TopicProduceData
from kafkalite.security.acl.acl import Entry, Operation, Permission, Resource, ResourceType
from kafkalite.server.broker import Broker
from tests.support.authorization_cases import C31, CASES, G30, T29, X53, Names, Need, resources
from tests.support.fast_path_client import batch, produce
from tests.unit.api.conftest import Asker

ALICE = "User:alice"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
NONE = ErrorCode.NONE
REFUSALS = {T29, G30, C31, X53, ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_every_api_has_a_row() -> None:
    assert PERMISSIONS.keys() == {api.name for api in SERVED.values()}


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


def be_alice(broker: Broker) -> None:
    running: Any = broker._running
    for processor in running.server.processors:
        for connection in processor.connections:
            connection.client.principal = ALICE


async def allow(broker: Broker, needs: Iterable[tuple[Operation, ResourceType]]) -> None:
    running: Any = broker._running
    for operation, type_ in needs:
        entry = Entry(ALICE, Permission.ALLOW, operation)
        await running.metadata.writes.change_acls(
            Resource(type_, Names().of(type_)), lambda there, entry=entry: (*there, entry)
        )


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
        await running.coordinators.offsets_topic.ensure()
        await asker.ask(metadata.MetadataRequest(topics=[]), 9)  # accepted
        be_alice(broker)
        await allow(broker, [each for each in needs if each != missing])
        found = set(codes(await asker.ask(make(Names()), version)))
        if missing is None:
            assert not found & REFUSALS
        else:
            assert needs[missing] in found, found
            assert found <= {NONE, needs[missing]}

    tell(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:admin", auto_create_topics_enable=False)


LOGINS_NEEDED = {  # tests/system/security/test_delegation_tokens.py
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
}


def needs_of(api: str) -> set[Need]:
    """The operations in the row of an API."""
    needs: set[Need] = set()
    for rule in PERMISSIONS[api]:
        if isinstance(rule, Asked):
            needs.update(rule.needs)
        elif isinstance(rule, Named):
            needs.add((rule.operation, rule.type))
        else:
            needs.update((operation, ResourceType.CLUSTER) for operation in rule.operations)
    return needs


JOIN_OF_CONSUMER = consumer_groups.ConsumerGroupHeartbeatRequest(
    group_id="consumers", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> set[Need]:
    """The operations that handlers ask for, until they are cleared."""
    asked: set[Need] = set()
    may, may_cluster, allows_any = RequestContext.may, RequestContext.may_cluster, Access.allows_any

    def record(self: RequestContext, operation: Operation, type_: ResourceType, *rest: Any, **more: Any) -> bool:
        asked.add((operation, type_))
        return may(self, operation, type_, *rest, **more)

    def record_cluster(self: RequestContext, *operations: Operation, **more: Any) -> bool:
        asked.update((each, ResourceType.CLUSTER) for each in operations)
        return may_cluster(self, *operations, **more)

    def record_any(self: Access, connection: Any, operation: Operation, type_: ResourceType) -> bool:
        asked.add((operation, type_))
        return allows_any(self, connection, operation, type_)

    monkeypatch.setattr(RequestContext, "may", record)
    monkeypatch.setattr(RequestContext, "may_cluster", record_cluster)
    monkeypatch.setattr(Access, "allows_any", record_any)
    return asked


def test_a_topic_by_its_id_is_refused_and_an_unknown_id_is_unknown(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        await running.topic_admin.create("t", 1, {})
        await running.topic_admin.create("u", 1, {})
        await asker.ask(metadata.MetadataRequest(topics=[]), 9)  # accepted
        be_alice(broker)
        await allow(broker, [(Operation.WRITE, ResourceType.TOPIC)])  # of t
        by_name = running.replica_manager.by_name
        request = produce(batch())
        ids = [by_name["t"].topic_id, by_name["u"].topic_id, uuid.UUID(int=7)]
        request.topic_data = [
            TopicProduceData(topic_id=one, partition_data=request.topic_data[0].partition_data) for one in ids
        ]
        answer = await asker.ask(request, 13)
        found = {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses}
        assert found == dict(zip(ids, (NONE, T29, ErrorCode.UNKNOWN_TOPIC_ID), strict=True))

    tell(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:admin")


def test_handlers_ask_what_the_table_says(tell: Callable[..., None], questions: set[Need]) -> None:
    broker_settings = resources(configs.IncrementalAlterConfigsResource, 4, "0")
    requests = [(make(Names()), version) for make, version, _ in CASES.values()]
    requests += [
        (transactions.ListTransactionsRequest(), 0),
        (log_dirs.AlterReplicaLogDirsRequest(), 2),
        (metadata.DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
        (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="missing")]), 9),
        (configs.AlterConfigsRequest(resources=resources(configs.AlterConfigsResource, 4, "0")), 2),
        (configs.IncrementalAlterConfigsRequest(resources=broker_settings), 1),
        (JOIN_OF_CONSUMER, 1),
        (consumer_groups.ConsumerGroupDescribeRequest(group_ids=["consumers"]), 1),
    ]
    found: dict[str, set[Need]] = {}

    async def ask(asker: Asker, request: Message, version: int) -> Any:
        questions.clear()
        answer = await asker.ask(request, version)
        found.setdefault(API_OF_REQUEST[type(request)].name, set()).update(questions)
        return answer

    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        topic = await running.topic_admin.create("t", 1, {})
        await running.coordinators.offsets_topic.ensure()
        await running.coordinators.transaction_topic.ensure()
        await running.coordinators.share_topic.ensure()
        await asker.ask(metadata.MetadataRequest(topics=[]), 9)  # accepted
        be_alice(broker)
        by_id = topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=None, topic_id=topic.topic_id)])
        for types in ((), (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)):
            for type_ in types:
                entry = Entry(ALICE, Permission.ALLOW, Operation.ALL)
                await running.metadata.writes.change_acls(
                    Resource(type_, "*"), lambda there, entry=entry: (*there, entry)
                )
            if types:
                await ask(asker, *in_a_transaction(await asker.ask(*PRODUCER)))
                await ask(asker, transactions.DescribeTransactionsRequest(transactional_ids=["x"]), 0)
                await ask(asker, CASES["commit"][0](Names()), 8)
                await ask(asker, groups.ListGroupsRequest(), 4)
            for request, version in [*share_requests(topic.topic_id), *STREAMS_REQUESTS, *requests]:
                await ask(asker, request, version)
            await ask(asker, by_id, 6)

    tell(
        story,
        authorizer_class_name=ACL_AUTHORIZER,
        super_users="User:admin",
        group_share_assignment_interval_ms=0,
    )
    assert found == {name: needs_of(name) for name in found}
    ruled = {api.name for api in APIS.values() if PERMISSIONS[api.name]}
    assert ruled - found.keys() == LOGINS_NEEDED


def share_requests(topic_id: uuid.UUID) -> list[tuple[Message, int]]:
    """A member of a share group that joins, gets a partition, fetches and acknowledges; and the rest of its APIs."""
    join = share_groups.ShareGroupHeartbeatRequest(
        group_id="shares", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    fetched = share_fetch.ShareFetchTopic(
        topic_id=topic_id, partitions=[share_fetch.ShareFetchPartition(partition_index=0)]
    )
    acknowledged = share_fetch.ShareAcknowledgeTopic(
        topic_id=topic_id, partitions=[share_fetch.ShareAcknowledgePartition(partition_index=0)]
    )
    offsets = share_groups.DescribeShareGroupOffsetsTopic(topic_name="t", partitions=[0])
    altered = share_groups.AlterShareGroupOffsetsTopic(topic_name="t")
    return [
        (join, 1),
        (join, 1),
        (share_groups.ShareGroupDescribeRequest(group_ids=["shares"]), 1),
        (share_fetch.ShareFetchRequest(group_id="shares", member_id="m", topics=[fetched]), 1),
        (
            share_fetch.ShareAcknowledgeRequest(
                group_id="shares", member_id="m", share_session_epoch=1, topics=[acknowledged]
            ),
            1,
        ),
        (share_state.InitializeShareGroupStateRequest(), 0),
        (share_state.ReadShareGroupStateRequest(), 0),
        (share_state.WriteShareGroupStateRequest(), 0),
        (share_state.DeleteShareGroupStateRequest(), 0),
        (share_state.ReadShareGroupStateSummaryRequest(), 0),
        (
            share_groups.DescribeShareGroupOffsetsRequest(
                groups=[share_groups.DescribeShareGroupOffsetsGroup(group_id="shares", topics=[offsets])]
            ),
            0,
        ),
        (share_groups.AlterShareGroupOffsetsRequest(group_id="shares", topics=[altered]), 0),
        (
            share_groups.DeleteShareGroupOffsetsRequest(
                group_id="shares", topics=[share_groups.DeleteShareGroupOffsetsTopic(topic_name="t")]
            ),
            0,
        ),
    ]


_SUBTOPOLOGY = streams_groups.StreamsSubtopology(
    subtopology_id="0",
    source_topics=["t"],
    state_changelog_topics=[streams_groups.StreamsTopicInfo(name="changelog")],
)
STREAMS_REQUESTS: list[tuple[Message, int]] = [
    (
        streams_groups.StreamsGroupHeartbeatRequest(
            group_id="streams",
            member_id="m",
            rebalance_timeout_ms=60_000,
            topology=streams_groups.StreamsTopology(subtopologies=[_SUBTOPOLOGY]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        ),
        0,
    ),
    (streams_groups.StreamsGroupDescribeRequest(group_ids=["streams"]), 0),
]
PRODUCER = transactions.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4


def in_a_transaction(producer: transactions.InitProducerIdResponse) -> tuple[Message, int]:
    """A request that adds the topic to the producer's transaction."""
    request = transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return request, 3
