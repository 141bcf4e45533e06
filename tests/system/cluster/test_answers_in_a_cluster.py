"""Answers of each of three brokers in one cluster on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages.configs import (
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
)
from kafkalite.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.server.broker import Broker
from kafkalite.zk.client.operations import Create
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

NONE = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LATEST = -1

Story = Callable[[ThreeBrokers], Awaitable[None]]


@pytest.fixture
def together(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Callable[..., None]:
    """`together(story, **settings)`: one life of the three."""

    def together(story: Story, **settings: Any) -> None:
        async def life() -> None:
            async with three_brokers(zookeeper.connect + chroot, tmp_path, **settings) as cluster:
                await story(cluster)

        uvloop.run(life())

    return together


def versions(name: str) -> range:
    (api,) = (api for api in APIS.values() if api.name == name)
    return range(api.min_version, api.max_version + 1)


def test_every_broker_tells_of_all_of_them_in_every_version(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 6)
        leaders = cluster.leaders("t")
        assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
        ports = {number: broker.port for number, broker in cluster.brokers.items()}
        for version in versions("Metadata"):
            for number in IDS:
                asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
                answer = await cluster.ask(number, asked, version)
                assert {broker.node_id: broker.port for broker in answer.brokers} == ports
                if version >= 1:
                    assert answer.controller_id == 1
                    assert {broker.node_id: broker.rack for broker in answer.brokers} == {1: "r1", 2: "r2", 3: None}
                (topic,) = answer.topics
                assert {p.partition_index: p.leader_id for p in topic.partitions} == leaders
                for partition in topic.partitions:
                    assert (partition.error_code, list(partition.replica_nodes)) == (NONE, [partition.leader_id])
                    assert list(partition.isr_nodes) == [partition.leader_id]
        for number in IDS:
            answer = await cluster.ask(number, DescribeClusterRequest(), 1)
            assert {broker.broker_id: broker.port for broker in answer.brokers} == ports
            assert answer.controller_id == 1

    together(story, own={1: {"broker_rack": "r1"}, 2: {"broker_rack": "r2"}})


def test_who_asks_the_wrong_broker_is_told_and_where_to_go(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 3)
        leader = cluster.leaders("t")[0]
        other = next(number for number in IDS if number != leader)
        for broker, index, code in ((leader, 0, NONE), (other, 0, NOT_LEADER), (other, 9, UNKNOWN)):
            assert (await cluster.produce(broker, "t", index)).error_code == code
            assert (await cluster.fetch(broker, "t", index)).error_code == code
            assert await list_offsets(cluster, broker, index) == code
            assert await offsets_for_epoch(cluster, broker, index) == code
            assert await delete_records(cluster, broker, index) == code
        answer = await cluster.produce(other, "t", 0, version=10)
        told = answer.responses[0].partition_responses[0].current_leader
        assert (told.leader_id, told.leader_epoch) == (leader, 0)
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(leader, cluster.brokers[leader].port)]
        answer = await cluster.fetch(other, "t", 0, version=16)
        told = answer.responses[0].partitions[0].current_leader
        assert (told.leader_id, told.leader_epoch) == (leader, 0)
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(leader, cluster.brokers[leader].port)]
        # within a session the refusal is news each time
        wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        crowd = await cluster.crowds[other].join()
        first = await crowd.ask(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[wanted]), 11)
        assert first.session_id
        for epoch in (1, 2):
            again = FetchRequest(max_wait_ms=5_000, min_bytes=1, session_id=first.session_id, session_epoch=epoch)
            answer = await crowd.ask(again, 11)
            assert answer.responses[0].partitions[0].error_code == NOT_LEADER

    together(story)


async def list_offsets(cluster: ThreeBrokers, broker: int, index: int) -> int:
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
    answer = await cluster.ask(broker, ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def offsets_for_epoch(cluster: ThreeBrokers, broker: int, index: int) -> int:
    wanted = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0)])
    answer = await cluster.ask(broker, OffsetForLeaderEpochRequest(topics=[wanted]), 4)
    return int(answer.topics[0].partitions[0].error_code)


async def delete_records(cluster: ThreeBrokers, broker: int, index: int) -> int:
    wanted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=index, offset=0)])
    answer = await cluster.ask(broker, DeleteRecordsRequest(topics=[wanted], timeout_ms=5_000), 2)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_client_finds_at_one_broker_what_another_has_acknowledged(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        for number in range(10):
            name, at, elsewhere, third = f"passing-{number}", *(IDS[(number + n) % 3] for n in range(3))
            wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            made = await cluster.ask(at, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
            assert made.topics[0].error_code == NONE
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            (topic,) = (await cluster.ask(elsewhere, asked, 9)).topics
            assert topic.error_code == NONE
            by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=made.topics[0].topic_id, name=None)])
            (topic,) = (await cluster.ask(third, by_id, 12)).topics
            assert (topic.error_code, topic.name) == (NONE, name)
            await alter(cluster, at, TOPIC, name, "retention.ms", "123456")
            assert (await describe(cluster, elsewhere, TOPIC, name))["retention.ms"] == "123456"
            gone = await cluster.ask(at, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            assert gone.responses[0].error_code == NONE
            listed = await cluster.ask(elsewhere, MetadataRequest(topics=None), 9)
            assert name not in [topic.name for topic in listed.topics]

    together(story)


def test_topics_are_made_grown_configured_and_deleted_anywhere(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        async def create(at: int, **wanted: Any) -> Any:
            request = CreateTopicsRequest(topics=[CreatableTopic(**wanted)], timeout_ms=10_000)
            return (await cluster.ask(at, request, 7)).topics[0]

        def placed(*rows: tuple[int, list[int]]) -> list[CreatableReplicaAssignment]:
            return [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in rows]

        made = await create(
            2, name="chosen", num_partitions=-1, replication_factor=-1, assignments=placed((0, [3]), (1, [1]))
        )
        assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 2, 1)
        await cluster.until(lambda: cluster.is_led("chosen", 2))
        assert cluster.leaders("chosen") == {0: 3, 1: 1}
        assert (
            await create(3, name="chosen", num_partitions=1, replication_factor=1)
        ).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        refused = await create(3, name="four", num_partitions=1, replication_factor=4)
        assert refused.error_message == "Replication factor: 4 larger than available brokers: 3."
        for ids, code in (
            ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ):
            refused = await create(1, name="x", num_partitions=-1, replication_factor=-1, assignments=placed((0, ids)))
            assert refused.error_code == code

        # on demand, at a broker that need not lead any of it
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="demanded")], allow_auto_topic_creation=True)
        (topic,) = (await cluster.ask(1, asked, 9)).topics
        assert (topic.error_code, [p.error_code for p in topic.partitions]) == (NONE, [NONE] * 4)

        async def add(at: int, count: int, assignments: list[list[int]] | None) -> int:
            chosen = (
                None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
            )
            wanted = CreatePartitionsTopic(name="chosen", count=count, assignments=chosen)
            answer = await cluster.ask(at, CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000), 3)
            return int(answer.results[0].error_code)

        assert await add(1, 3, [[2]]) == NONE
        await cluster.until(lambda: cluster.is_led("chosen", 3))  # a broker that knows of two would refuse the next
        assert await add(3, 6, None) == NONE
        assert await add(2, 7, [[8]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cluster.until(lambda: cluster.is_led("chosen", 6))
        leaders = cluster.leaders("chosen")
        assert leaders[2] == 2 and sorted(leaders[index] for index in (3, 4, 5)) == [1, 2, 3]

        await alter(cluster, 1, TOPIC, "chosen", "retention.ms", "123456")
        await cluster.until(
            lambda: all(cluster.topics(number).by_name["chosen"].config.retention_ms == 123456 for number in IDS)
        )
        assert cluster.topics(3).require("chosen", 0).log.config.retention_ms == 123456
        for number in IDS:
            assert (await describe(cluster, number, TOPIC, "chosen"))["retention.ms"] == "123456"

        answer = await cluster.ask(2, DeleteTopicsRequest(topic_names=["chosen"], timeout_ms=10_000), 5)
        assert answer.responses[0].error_code == NONE
        await cluster.until(lambda: not any("chosen" in cluster.topics(number).by_name for number in IDS))
        assert (await cluster.fetch(3, "chosen", 0)).error_code == UNKNOWN

    together(story, num_partitions=4)


TOPIC, BROKER, SET = 2, 4, 0


async def alter(cluster: ThreeBrokers, at: int, kind: int, name: str, key: str, value: str) -> None:
    entry = IncrementalAlterableConfig(name=key, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[entry])
    answer = await cluster.ask(at, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == NONE, answer.responses[0].error_message


async def describe(cluster: ThreeBrokers, at: int, kind: int, name: str) -> Any:
    """The settings by name, or the error."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = (await cluster.ask(at, DescribeConfigsRequest(resources=[resource]), 4)).results
    return result.error_code or {entry.name: entry.value for entry in result.configs}


def test_settings_of_brokers_change_anywhere_and_hold_where_they_are_meant_to(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 3)

        def retention() -> list[int]:
            return [cluster.topics(number).by_name["t"].config.retention_ms for number in IDS]

        before = retention()[0]
        await alter(cluster, 1, BROKER, "2", "log.retention.ms", "111111")
        await cluster.until(lambda: retention() == [before, 111111, before])
        await alter(cluster, 3, BROKER, "", "log.retention.ms", "222222")
        await cluster.until(lambda: retention() == [222222, 111111, 222222])
        (index,) = (index for index, leader in cluster.leaders("t").items() if leader == 2)
        assert cluster.topics(2).require("t", index).log.config.retention_ms == 111111
        assert (await describe(cluster, 2, BROKER, "2"))["log.retention.ms"] == "111111"
        await cluster.until(lambda: CLUSTER_DEFAULT in cluster.metadata(2).broker_configs)  # its own setting hides it
        assert (await describe(cluster, 2, BROKER, ""))["log.retention.ms"] == "222222"
        assert await describe(cluster, 1, BROKER, "2") == ErrorCode.INVALID_REQUEST

    together(story)


def test_acks_of_all_keeps_what_min_insync_replicas_promises(together: Callable[..., None]) -> None:
    """A topic with a single replica asks for no more than that one, as in Kafka."""

    async def story(cluster: ThreeBrokers) -> None:
        session = cluster.metadata(1).session
        config = znode_data.config_json({"min.insync.replicas": "2"})
        for name, replicas in (("wide", (1, 2)), ("narrow", (1,))):
            topic = znode_data.TopicNode({0: replicas})
            await session.write(
                [
                    Create(znode_paths.config("topics", name), config),
                    Create(znode_paths.topic(name), znode_data.topic_json(topic)),
                ]
            )
            await cluster.until(lambda name=name: cluster.leaders(name) == {0: 1} and cluster.is_led(name, 1))
        assert (await cluster.produce(1, "wide", 0)).error_code == NONE
        await cluster.stop(2)
        await cluster.until(lambda: cluster.topics(1).by_name["wide"].states[0].isr == (1,))
        for _ in range(3):  # also once the connection knows the request
            assert (await cluster.produce(1, "narrow", 0)).error_code == NONE
            assert (await cluster.produce(1, "wide", 0)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await cluster.fetch(1, "wide", 0)).high_watermark == 1
        await alter(cluster, 3, TOPIC, "wide", "min.insync.replicas", "1")
        await cluster.until(lambda: cluster.topics(1).by_name["wide"].config.min_insync_replicas == 1)
        for _ in range(3):
            assert (await cluster.produce(1, "wide", 0)).error_code == NONE
        await alter(cluster, 3, TOPIC, "wide", "min.insync.replicas", "2")
        await cluster.until(lambda: cluster.topics(1).by_name["wide"].config.min_insync_replicas == 2)
        assert (await cluster.produce(1, "wide", 0)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    together(story, replica_lag_time_max_ms=500)  # half of it until a lower number of members is enough


def test_a_broker_whose_number_was_made_up_tells_it_and_keeps_it(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    async def story() -> None:
        for _ in range(2):
            async with three_brokers(zookeeper.connect + chroot, tmp_path, {2: {"broker_id": -1}}) as cluster:
                found = await describe(cluster, 2, BROKER, "1001")
                assert (found["broker.id"], found["node.id"]) == ("1001", "1001")
                assert (await describe(cluster, 1, BROKER, "1"))["broker.id"] == "1"

    uvloop.run(story())


def test_a_number_that_is_taken_is_told_before_anything_is_made(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await cluster.create("t", 6)
            settings = {"zookeeper_connect": zookeeper.connect + chroot, "broker_id": 2, "port": 0}
            second = Broker(data_dir=tmp_path / "second", **settings)
            with pytest.raises(ConfigError, match=r"broker.id=2 is taken: the broker at PLAINTEXT://127.0.0.1:\d+ has"):
                await second.start()
            left = {path.name for path in (tmp_path / "second").iterdir()}
            assert "meta.properties" not in left and not any(name.startswith("t-") for name in left)
            third = Broker(data_dir=tmp_path / "second", **settings | {"broker_id": 4})
            await third.start()  # the same directory will do with another number
            await third.stop()

    uvloop.run(story())


def test_the_directory_of_a_member_is_not_for_a_broker_by_itself(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await cluster.create("t", 3)
            await cluster.stop(2)
            alone = Broker(data_dir=tmp_path / "broker-2", port=0, broker_id=2)
            with pytest.raises(ConfigError, match=r"belongs to a broker of a cluster, but zookeeper\.connect"):
                await alone.start()
            for adopt in (True, False):  # told to, it is one from then on
                async with Broker(data_dir=tmp_path / "broker-2", port=0, broker_id=2, adopt=adopt) as alone:
                    assert alone._require().replica_manager.exists("t", 0)

    uvloop.run(story())


def test_a_broker_without_the_clients_listener_is_left_out(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 3)
        hidden = next(index for index, leader in cluster.leaders("t").items() if leader == 3)
        for version, code in (
            (0, ErrorCode.LEADER_NOT_AVAILABLE),
            (5, ErrorCode.LEADER_NOT_AVAILABLE),
            (6, ErrorCode.LISTENER_NOT_FOUND),
        ):
            answer = await cluster.ask(1, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
            assert sorted(broker.node_id for broker in answer.brokers) == [1, 2]
            (partition,) = (each for each in answer.topics[0].partitions if each.partition_index == hidden)
            assert (partition.error_code, partition.leader_id) == (code, -1)
            assert list(partition.replica_nodes) == ([] if version == 0 else [3])

    together(
        story,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        own={3: {"listeners": "INSIDE://127.0.0.1:0"}},
    )


def test_a_broker_that_stops_takes_only_its_own_partitions_along_and_brings_them_back(
    together: Callable[..., None],
) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 3)
        leaders = cluster.leaders("t")
        for index, leader in leaders.items():
            assert (await cluster.produce(leader, "t", index)).error_code == NONE
        gone = next(index for index, leader in leaders.items() if leader == 1)  # the controller, too
        waiting = cluster.crowds[2]
        await cluster.stop(1)
        await cluster.until(lambda: cluster.leaders("t")[gone] == -1 and cluster.metadata(2).controller_id in (2, 3))
        for number in (2, 3):
            answer = await cluster.ask(number, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
            assert sorted(broker.node_id for broker in answer.brokers) == [2, 3]
            for partition in answer.topics[0].partitions:
                lost = partition.partition_index == gone
                assert partition.error_code == (ErrorCode.LEADER_NOT_AVAILABLE if lost else NONE)
                assert list(partition.offline_replicas) == ([1] if lost else [])
        for index, leader in leaders.items():
            if index != gone:
                assert (await cluster.produce(leader, "t", index)).base_offset == 1
        await cluster.start(1)
        assert cluster.topics(1).partition("t", gone) is not None  # it is ready when it has what it leads
        await cluster.until(lambda: cluster.is_led("t", 3))
        assert (await cluster.produce(1, "t", gone)).base_offset == 1
        assert cluster.topics(1).require("t", gone).leader_epoch == 2
        assert waiting is cluster.crowds[2]

    together(story)


def test_what_is_deleted_while_a_broker_is_away_is_gone_when_it_returns(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 3)
        index = next(index for index, leader in cluster.leaders("t").items() if leader == 3)
        assert (await cluster.produce(3, "t", index)).error_code == NONE
        await cluster.stop(3)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
        answer = await cluster.ask(1, request, 5)  # the controller waits for the broker, as Kafka's does
        assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        await cluster.start(3)
        await cluster.until(lambda: not any("t" in cluster.topics(number).by_name for number in IDS))
        await cluster.until(lambda: not cluster.metadata(1).view.deletions)  # the mark goes last
        await cluster.create("t", 3)
        for number in IDS:
            assert all(one.log.end_offset == 0 for one in cluster.topics(number).by_name["t"].partitions.values())

    together(story)


def test_each_group_lives_where_its_partition_is_led_and_moves_with_it(together: Callable[..., None]) -> None:
    async def coordinator(cluster: ThreeBrokers, group: str, at: int) -> Any:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        (found,) = (await cluster.ask(at, request, 4)).coordinators
        return found

    def commit(group: str) -> OffsetCommitRequest:
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[one])])

    async def committed(cluster: ThreeBrokers, at: int, group: str) -> tuple[int, int]:
        answer = await cluster.ask(at, OffsetFetchRequest(group_id=group, topics=None), 7)
        return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1

    async def story(cluster: ThreeBrokers) -> None:
        await cluster.create("t", 1)
        groups = [f"group-{number}" for number in range(12)]
        first = await coordinator(cluster, groups[0], 2)
        assert first.error_code == NONE
        await cluster.until(lambda: cluster.is_led(GROUP_METADATA_TOPIC, 6))
        homes = {}
        for group in groups:
            answers = [await coordinator(cluster, group, number) for number in IDS]
            assert len({(each.error_code, each.node_id, each.port) for each in answers}) == 1
            homes[group] = answers[0].node_id
        assert set(homes.values()) == set(IDS)
        for group, home in homes.items():
            away = next(number for number in IDS if number != home)
            (answer,) = (await cluster.ask(home, commit(group), 7)).topics
            assert answer.partitions[0].error_code == NONE
            (answer,) = (await cluster.ask(away, commit(group), 7)).topics
            assert answer.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
            assert await committed(cluster, home, group) == (NONE, 5)
            assert (await committed(cluster, away, group))[0] == ErrorCode.NOT_COORDINATOR
        for number in IDS:
            owned = cluster.server(number).groups.store.owned
            assert owned == set(cluster.topics(number).by_name[GROUP_METADATA_TOPIC].partitions)
        moved = next(group for group, home in homes.items() if home == 3)
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id=moved, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=[protocol],
        )  # fmt: skip
        joined = await cluster.ask(3, join, 3)
        assert joined.error_code == NONE
        await cluster.stop(3)
        await cluster.until(lambda: -1 in cluster.leaders(GROUP_METADATA_TOPIC, 1).values())
        assert (await coordinator(cluster, moved, 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stays = next(group for group, home in homes.items() if home == 1)
        assert (await coordinator(cluster, stays, 2)).error_code == NONE
        await cluster.start(3)
        await cluster.until(
            lambda: cluster.is_led(GROUP_METADATA_TOPIC, 6) and not cluster.server(3).groups.store.loading
        )
        assert await committed(cluster, 3, moved) == (NONE, 5)
        beat = HeartbeatRequest(group_id=moved, generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await cluster.ask(3, beat, 3)).error_code in (
            NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )

    together(story)


def test_no_two_producers_get_the_same_id(together: Callable[..., None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answers = [await cluster.ask(number, request, 4) for number in (*IDS, *IDS)]
        assert [answer.error_code for answer in answers] == [NONE] * 6
        assert len({answer.producer_id for answer in answers}) == 6

    together(story)
