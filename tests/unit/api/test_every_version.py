"""Every row of the table, in every version: asked as a client would, answered in that version."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.protocol.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.record.batch import NewRecord, build_batch

unknown_id = uuid.UUID(int=7)


def batch(*values: bytes) -> memoryview:
    return memoryview(build_batch([NewRecord(None, value, timestamp=1_000 + i) for i, value in enumerate(values)]))


async def ask_in_every_version(asker: Any, api_name: str, make: Callable[[int], Any]) -> dict[int, Any]:
    api = next(api for api in APIS.values() if api.name == api_name)
    return {v: await asker.ask(make(v), v) for v in range(api.min_version, api.max_version + 1)}


def test_brokers_and_topics(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        made = await ask_in_every_version(
            asker,
            "CreateTopics",
            lambda v: CreateTopicsRequest(
                topics=[CreatableTopic(name=f"made-{v}", num_partitions=2, replication_factor=1)], timeout_ms=1000
            ),
        )
        assert [answer.topics[0].error_code for answer in made.values()] == [0] * 8
        assert made[7].topics[0].topic_id.int != 0 and made[5].topics[0].configs

        def wanted(v: int) -> MetadataRequest:
            return MetadataRequest(
                topics=[MetadataRequestTopic(name="made-0"), MetadataRequestTopic(name=f"auto-{v}")],
                allow_auto_topic_creation=False,
            )

        for v, answer in (await ask_in_every_version(asker, "Metadata", wanted)).items():
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(0, "127.0.0.1", broker.port)], v
            assert [t.error_code for t in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if v >= 4 else 0]
            assert [(p.leader_id, p.isr_nodes) for p in answer.topics[0].partitions] == [(0, [0])] * 2
        everything = await asker.ask(MetadataRequest(topics=None), 9)
        nothing = await asker.ask(MetadataRequest(topics=[]), 1)
        assert len(everything.topics) == 12 and nothing.topics == []
        topic_id = made[7].topics[0].topic_id
        ids = [MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, unknown_id)]
        for v in (10, 11):  # have the field, but it came to life with 12
            refused = await asker.ask(MetadataRequest(topics=ids), v)
            assert [t.error_code for t in refused.topics] == [ErrorCode.INVALID_REQUEST] * 2
        by_id = (await asker.ask(MetadataRequest(topics=ids), 12)).topics
        assert [(t.error_code, t.name, t.topic_id) for t in by_id] == [
            (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown_id),
            (0, "made-7", topic_id),
        ]
        for answer in (
            await ask_in_every_version(asker, "DescribeCluster", lambda v: DescribeClusterRequest())
        ).values():
            assert answer.cluster_id == broker.cluster_id and len(answer.brokers) == 1
        for answer in (
            await ask_in_every_version(
                asker,
                "CreatePartitions",
                lambda v: CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name="made-1", count=3 + v, assignments=None)]
                ),
            )
        ).values():
            assert answer.results[0].error_code == 0
        gone = await ask_in_every_version(
            asker,
            "DeleteTopics",
            lambda v: DeleteTopicsRequest(
                topic_names=[f"made-{v}"], topics=[DeleteTopicState(name=f"made-{v}")], timeout_ms=1000
            ),
        )
        assert [answer.responses[0].error_code for answer in gone.values()] == [0] * 7

    tell(story)


def test_topics_are_deleted_by_id(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        topics = broker._running.replica_manager
        a, b, c, d = [await broker._running.topic_admin.create(name, 1, {}) for name in "abcd"]
        states = [
            DeleteTopicState(topic_id=a.topic_id),
            DeleteTopicState(name="b"),
            DeleteTopicState(name="c"),
            DeleteTopicState(topic_id=c.topic_id),  # said in both ways
            DeleteTopicState(name="d", topic_id=d.topic_id),
            DeleteTopicState(),
            DeleteTopicState(topic_id=unknown_id),
            DeleteTopicState(name="x"),
            DeleteTopicState(name="y"),
            DeleteTopicState(name="y"),
        ]
        answer = await asker.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
        invalid = ErrorCode.INVALID_REQUEST
        assert {(one.name, one.topic_id.int): one.error_code for one in answer.responses} == {
            ("a", a.topic_id.int): 0,
            ("b", b.topic_id.int): 0,
            ("c", c.topic_id.int): invalid,
            ("d", d.topic_id.int): invalid,
            (None, 0): invalid,
            (None, unknown_id.int): ErrorCode.UNKNOWN_TOPIC_ID,
            ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("y", 0): invalid,
        }
        assert sorted(topics.by_name) == ["c", "d"]
        assert sorted(topic.name for topic in topics.by_id.values()) == ["c", "d"]
        internal = (await asker.ask(FindCoordinatorRequest(key="g"), 3)) and topics.by_name["__consumer_offsets"]
        kept = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=internal.topic_id)], timeout_ms=1000)
        assert (await asker.ask(kept, 6)).responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    tell(story)


def test_records_in_and_out(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)

        topic_id = broker._running.replica_manager.by_name["t"].topic_id

        def produce(v: int) -> ProduceRequest:
            data = PartitionProduceData(index=0, records=batch(b"value-%d" % v))
            return ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])],
            )

        answers = await ask_in_every_version(asker, "Produce", produce)
        outcomes = {v: answer.responses[0].partition_responses[0] for v, answer in answers.items()}
        assert [(outcomes[v].error_code, outcomes[v].base_offset) for v in range(14)] == [(0, v) for v in range(14)]

        def fetch(v: int) -> FetchRequest:
            one = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
            named = {"topic": "t"} if v < 13 else {"topic_id": topic_id}
            return FetchRequest(max_wait_ms=0, topics=[FetchTopic(**named, partitions=[one])])

        for v, answer in (await ask_in_every_version(asker, "Fetch", fetch)).items():
            data = answer.responses[0].partitions[0]
            assert (data.error_code, data.high_watermark) == (0, 14)
            assert v < 4 or data.aborted_transactions is None
            assert bytes(data.records)[:8] == (2).to_bytes(8, "big") and b"value-9" in bytes(data.records)
            assert bytes(data.records)[16] == (0, 0, 1, 1, 2)[min(v, 4)]

        def list_offsets(v: int) -> ListOffsetsRequest:
            one = ListOffsetsPartition(partition_index=0, timestamp=-1)
            return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[one])])

        for version, answer in (await ask_in_every_version(asker, "ListOffsets", list_offsets)).items():
            (found,) = answer.topics[0].partitions
            assert (found.old_style_offsets if version == 0 else (found.offset, found.timestamp)) in ([14], (14, -1))

        def epoch_end(v: int) -> OffsetForLeaderEpochRequest:
            one = OffsetForLeaderPartition(partition=0, leader_epoch=0)
            return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[one])])

        for v, answer in (await ask_in_every_version(asker, "OffsetForLeaderEpoch", epoch_end)).items():
            assert answer.topics[0].partitions[0].end_offset == 14, v

        def delete(v: int) -> DeleteRecordsRequest:
            one = DeleteRecordsPartition(partition_index=0, offset=v + 1)
            return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[one])], timeout_ms=1000)

        lows = await ask_in_every_version(asker, "DeleteRecords", delete)
        assert [answer.topics[0].partitions[0].low_watermark for answer in lows.values()] == [1, 2, 3]
        ids = await ask_in_every_version(
            asker, "InitProducerId", lambda v: InitProducerIdRequest(transactional_id=None)
        )
        assert [answer.producer_id for answer in ids.values()] == [0, 1, 2, 3, 4, 5]
        refused_ids = await ask_in_every_version(
            asker, "InitProducerId", lambda v: InitProducerIdRequest(transactional_id="")
        )
        assert all(answer.error_code != 0 and answer.producer_id == -1 for answer in refused_ids.values())

    tell(story)


def test_groups(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)
        found = await ask_in_every_version(
            asker, "FindCoordinator", lambda v: FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        )
        for v, answer in found.items():
            where = answer.coordinators[0] if v >= 4 else answer
            assert (where.error_code, where.node_id, where.port) == (0, 0, broker.port)
        transactional = await ask_in_every_version(
            asker, "FindCoordinator", lambda v: FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=1)
        )
        for v, answer in transactional.items():
            where = answer.coordinators[0] if v >= 4 else answer
            assert (where.error_code, where.node_id, where.port) == (0, 0, broker.port)
        unknown = await asker.ask(FindCoordinatorRequest(key="x", key_type=3), 2)
        assert unknown.error_code == ErrorCode.INVALID_REQUEST

        def join(v: int, member_id: str = "") -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=f"g{v}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
            )

        members: dict[int, Any] = {}
        for v, answer in (await ask_in_every_version(asker, "JoinGroup", join)).items():
            if v >= 4:
                assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                answer = await asker.ask(join(v, answer.member_id), v)
            assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
            members[v] = answer
        synced = await ask_in_every_version(
            asker,
            "SyncGroup",
            lambda v: SyncGroupRequest(
                group_id=f"g{v}",
                generation_id=1,
                member_id=members[v].member_id,
                protocol_type="consumer",
                protocol_name="range",
            ),
        )
        assert [answer.error_code for answer in synced.values()] == [0] * 6

        def member_of(v: int) -> dict[str, Any]:
            return {"group_id": f"g{v}", "generation_id": 1, "member_id": members[v].member_id}

        beats = await ask_in_every_version(asker, "Heartbeat", lambda v: HeartbeatRequest(**member_of(v)))
        assert [answer.error_code for answer in beats.values()] == [0] * 5

        topic_id = broker._running.replica_manager.by_name["t"].topic_id

        def commit(v: int) -> OffsetCommitRequest:
            one = OffsetCommitRequestPartition(partition_index=0, committed_offset=v, committed_metadata="m")
            return OffsetCommitRequest(
                group_id=f"simple{v}", topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[one])]
            )

        for v, answer in (await ask_in_every_version(asker, "OffsetCommit", commit)).items():
            assert answer.topics[0].partitions[0].error_code == (0 if v else ErrorCode.UNSUPPORTED_VERSION)

        def fetch(v: int) -> OffsetFetchRequest:
            one = OffsetFetchRequestTopic(name="t", topic_id=topic_id, partition_indexes=[0])
            return OffsetFetchRequest(
                group_id="simple5", topics=[one], groups=[OffsetFetchRequestGroup(group_id="simple5", topics=None)]
            )

        for v, answer in (await ask_in_every_version(asker, "OffsetFetch", fetch)).items():
            [found] = (answer.groups[0] if v >= 8 else answer).topics[0].partitions
            if v == 0:
                assert (found.committed_offset, found.error_code) == (-1, ErrorCode.UNSUPPORTED_VERSION)
            else:
                assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", 0)
        described = await ask_in_every_version(
            asker, "DescribeGroups", lambda v: DescribeGroupsRequest(groups=["g0", "no"])
        )
        assert [[g.group_state for g in answer.groups] for answer in described.values()] == [["Stable", "Dead"]] * 7
        assert [answer.groups[1].error_code for answer in described.values()] == [0] * 6 + [69]
        assert described[0].groups[0].members[0].client_host == "/127.0.0.1"
        listed = await ask_in_every_version(asker, "ListGroups", lambda v: ListGroupsRequest())
        assert all({"g0", "simple2"} <= {g.group_id for g in answer.groups} for answer in listed.values())
        left = await ask_in_every_version(
            asker,
            "LeaveGroup",
            lambda v: LeaveGroupRequest(
                group_id=f"g{v}",
                member_id=members[v].member_id,
                members=[MemberIdentity(member_id=members[v].member_id)],
            ),
        )
        assert [answer.error_code for answer in left.values()] == [0] * 6
        deleted = await ask_in_every_version(
            asker, "DeleteGroups", lambda v: DeleteGroupsRequest(groups_names=[f"g{v}", "no", f"g{9 - v}"])
        )
        expected = [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP]
        assert [[g.error_code for g in answer.results] for answer in deleted.values()] == [expected] * 3

    tell(story)


def test_settings(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)

        def alter(v: int) -> AlterConfigsRequest:
            one = AlterableConfig(name="retention.ms", value=str(1000 + v))
            return AlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=[one])]
            )

        for answer in (await ask_in_every_version(asker, "AlterConfigs", alter)).values():
            assert answer.responses[0].error_code == 0

        def change(v: int) -> IncrementalAlterConfigsRequest:
            one = IncrementalAlterableConfig(name="cleanup.policy", config_operation=2, value="compact")
            return IncrementalAlterConfigsRequest(
                resources=[IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=[one])]
            )

        for answer in (await ask_in_every_version(asker, "IncrementalAlterConfigs", change)).values():
            assert answer.responses[0].error_code == 0

        def describe(v: int) -> DescribeConfigsRequest:
            keys = ["retention.ms", "cleanup.policy", "segment.bytes"]
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys),
                    DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None),
                    DescribeConfigsResource(resource_type=2, resource_name="no", configuration_keys=None),
                ],
                include_synonyms=True,
                include_documentation=True,
            )

        for v, answer in (await ask_in_every_version(asker, "DescribeConfigs", describe)).items():
            topic, own, missing = answer.results
            values = {entry.name: entry.value for entry in topic.configs}
            assert values == {
                "retention.ms": "1002",
                "cleanup.policy": "delete,compact",
                "segment.bytes": str(1 << 30),
            }, v
            assert len(own.configs) > 50
            assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        broker_wide = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=[IncrementalAlterableConfig(name="log.segment.bytes", config_operation=0, value="1048576")],
                )
            ]
        )
        assert (await asker.ask(broker_wide, 1)).responses[0].error_code == 0
        after = await asker.ask(describe(4), 4)
        entry = next(entry for entry in after.results[0].configs if entry.name == "segment.bytes")
        assert (entry.value, entry.config_source) == ("1048576", 3)  # a dynamic default of all brokers

    tell(story)


def test_what_is_listed_is_the_table_and_more_is_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        asked = ApiVersionsRequest(client_software_name="asker", client_software_version="1")
        for answer in (await ask_in_every_version(asker, "ApiVersions", lambda v: asked)).values():
            listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            assert listed == {api.key: (api.min_version, api.max_version) for api in APIS.values()}
        newer = bytearray(request_frame(ApiVersionsRequest(), 3, 99, "x"))
        newer[6:8] = (5).to_bytes(2, "big")
        await asker.send(bytes(newer))
        size = int.from_bytes(await asker._reader.readexactly(4), "big")
        body = await asker._reader.readexactly(size)
        assert body[4:6] == (35).to_bytes(2, "big") and body[10:16] == bytes([0, 18, 0, 0, 0, 4])
        huge = request_frame(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)] * 600), 1, 1, "x")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(huge)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""  # closed, without an answer
        writer.close()
        unknown = bytearray(request_frame(MetadataRequest(), 1, 1, "x"))
        unknown[6:8] = (99).to_bytes(2, "big")
        await asker.send(bytes(unknown))
        assert await asker.is_closed()

    tell(story, metrics_listener="127.0.0.1:0")  # with telemetry


def test_who_knows_an_old_leader_is_told_the_new_one(tell: Callable[..., None]) -> None:
    """KIP-951: from version 16 on the answer says who leads now, and where it is."""

    async def story(asker: Any, broker: Any) -> None:
        topic = await broker._running.topic_admin.create("t", 2, {})
        topic.partitions[0].leader_epoch = 5
        for version in (15, 16, 17):
            known = [FetchPartition(partition=i, current_leader_epoch=epoch) for i, epoch in ((0, 4), (1, 9))]
            topics = [FetchTopic(topic_id=topic.topic_id, partitions=known)]
            answer = await asker.ask(FetchRequest(max_wait_ms=0, topics=topics), version)
            old, to_come = (data for each in answer.responses for data in each.partitions)
            assert (old.error_code, to_come.error_code) == (
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
            assert to_come.current_leader is None
            if version < 16:
                assert old.current_leader is None
            else:
                assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (0, 5)
                (node,) = answer.node_endpoints
                assert (node.node_id, node.host, node.port) == (0, "127.0.0.1", broker.port)
            known[0].current_leader_epoch = 5
            assert not (await asker.ask(FetchRequest(max_wait_ms=0, topics=topics), version)).node_endpoints

    tell(story)
