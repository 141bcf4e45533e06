"""Faults of the APIs of share groups (KIP-932), and what a member's session and locks are like afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer, ShareConsumer

from kafkalite import Broker
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages import share_groups, share_state
from kafkalite.record.batches import find_bounds
from kafkalite.testing import Cluster
from tests.support.share_requests import ACCEPT, ShareRequester, acquired, begin_at_earliest, the_row
from tests.support.wait import DEADLINE_S, until

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(group_share_assignment_interval_ms=0) as broker:
        for topic in ("jobs", "others"):
            broker.create_topic(topic)
        begin_at_earliest(broker.bootstrap_servers, "workers")
        yield broker


@pytest.fixture
def member(broker: Broker) -> Iterator[ShareRequester]:
    for number in range(3):
        broker.produce("jobs", str(number))
    member = ShareRequester(broker.bootstrap_servers, "workers", "jobs")
    yield member.join()
    member.close()


def topic_id(broker: Broker, topic: str) -> UUID:
    found: UUID = broker.call(lambda: broker.asynchronous.server.replica_manager.by_name[topic].topic_id)
    return found


def test_a_heartbeat_gets_an_error(broker: Broker, member: ShareRequester) -> None:
    with broker.faults.error("SHARE_GROUP_HEARTBEAT", "FENCED_MEMBER_EPOCH"):
        assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.beat().error_code == 0


@pytest.mark.parametrize("api", ["SHARE_GROUP_HEARTBEAT", "CONSUMER_GROUP_HEARTBEAT"])
def test_an_error_for_one_of_the_subscribed_topics_does_not_change_the_subscription(broker: Broker, api: str) -> None:
    from kafkalite.protocol.messages import consumer_groups as consumers

    names = ["jobs", "others"]
    request: Any = share_groups.ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=names
    )
    if api == "CONSUMER_GROUP_HEARTBEAT":
        request = consumers.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=names, topic_partitions=[]
        )
    with BlockingClient(broker.bootstrap_servers, DEADLINE_S) as client:
        broker.produce("jobs", "x")
        with broker.faults.error(api, "TOPIC_AUTHORIZATION_FAILED", topic="jobs"):
            assert client.ask(request, 1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "g" not in broker.groups


def test_partitions_of_a_fetch_fail_and_the_session_goes_on(broker: Broker, member: ShareRequester) -> None:
    for _ in range(2):
        with broker.faults.error("SHARE_FETCH", NOT_LEADER.name, topic="jobs"):
            row = the_row(member.fetch())
        assert (row.error_code, row.acknowledge_error_code, row.acquired_records) == (NOT_LEADER, 0, [])
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (-1, -1)
    assert broker.share_group("workers").acquired == [], "nothing was acquired behind the member's back"
    assert acquired(member.fetch()) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]


def test_acknowledgements_of_a_fetch_that_fails_are_not_made(broker: Broker, member: ShareRequester) -> None:
    member.fetch(max_records=1)
    with broker.faults.error("SHARE_FETCH", NOT_LEADER.name):
        row = the_row(member.fetch((0, 0, [ACCEPT])))
    assert (row.error_code, row.acknowledge_error_code) == (NOT_LEADER, NOT_LEADER)
    with broker.faults.error("SHARE_FETCH", "INVALID_RECORD_STATE"):
        row = the_row(member.fetch((0, 0, [ACCEPT])))
    assert (row.error_code, row.acknowledge_error_code) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert [each.first_offset for each in row.acquired_records] == [1, 2], "the fetch itself is as ever"
    assert broker.share_group("workers").acknowledged == 0


def test_a_fetch_with_an_effect_leaves_its_records_locked(broker: Broker, member: ShareRequester) -> None:
    with broker.faults.error("SHARE_FETCH", NOT_LEADER.name, has_effect=True):
        assert acquired(member.fetch()) == []
    group = broker.share_group("workers")
    assert len(group.acquired) == 3
    group.expire_locks()
    assert [count for _, _, count in acquired(member.fetch())] == [2, 2, 2]


def test_acknowledgements_get_errors_before_their_effect_or_after_it(broker: Broker, member: ShareRequester) -> None:
    member.fetch()
    group = broker.share_group("workers")
    with broker.faults.error("SHARE_ACKNOWLEDGE", "INVALID_RECORD_STATE"):
        assert the_row(member.acknowledge((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_RECORD_STATE
    assert group.acknowledged == 0
    with broker.faults.error("SHARE_ACKNOWLEDGE", "COORDINATOR_NOT_AVAILABLE", has_effect=True):
        row = the_row(member.acknowledge((0, 0, [ACCEPT])))
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.acknowledged == 1
    assert the_row(member.acknowledge((1, 2, [ACCEPT]))).error_code == 0, "the session goes on"


@pytest.mark.parametrize("error", ["SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"])
def test_an_error_of_the_session_is_that_of_the_request(broker: Broker, member: ShareRequester, error: str) -> None:
    member.fetch()
    for api, ask in (
        ("SHARE_FETCH", member.fetch),
        ("SHARE_ACKNOWLEDGE", lambda: member.acknowledge((0, 0, [ACCEPT]))),
    ):
        with broker.faults.error(api, error):
            answer = ask()
        assert (answer.error_code, answer.responses) == (ErrorCode[error], [])
    assert the_row(member.acknowledge((0, 2, [ACCEPT]))).error_code == 0


def test_a_fetch_of_another_topic_is_left_alone(broker: Broker, member: ShareRequester) -> None:
    member.fetch(max_records=1)
    with broker.faults.error("SHARE_FETCH", NOT_LEADER.name, topic="others", must_fire=False) as fault:
        assert [first for first, _, _ in acquired(member.fetch())] == [1, 2]
    assert not fault.fired


def test_records_are_corrupt_on_the_wire(broker: Broker, member: ShareRequester) -> None:
    with broker.faults.corrupt("jobs", api="SHARE_FETCH"):
        spoilt = bytes(the_row(member.fetch()).records)
    broker.share_group("workers").expire_locks()
    whole = bytes(the_row(member.fetch()).records)
    assert len(spoilt) == len(whole) and spoilt != whole
    bounds, _ = find_bounds(whole)
    assert {at for at in range(len(whole)) if spoilt[at] != whole[at]} == {end - 1 for end in bounds[1:]}
    with pytest.raises(ValueError, match="not those to PRODUCE"):
        broker.faults.corrupt(api="PRODUCE")


def test_a_fetch_is_delayed_cut_and_lost(broker: Broker, member: ShareRequester) -> None:
    with broker.faults.throttle(0.001, "SHARE_FETCH"):
        assert member.fetch(max_records=1).throttle_time_ms == 1
    with broker.faults.truncate_response("SHARE_ACKNOWLEDGE"), pytest.raises(Unanswered):
        member.acknowledge((0, 0, [ACCEPT]))
    group = broker.share_group("workers")
    assert group.acknowledged == 1, "its answer was lost, not the acknowledgement"
    again = ShareRequester(broker.bootstrap_servers, "workers", "jobs", "again").join()
    with broker.faults.disconnect("SHARE_FETCH"), pytest.raises(Unanswered):
        again.fetch()
    assert group.acquired == []


def offsets_requests(topics: list[str]) -> list[tuple[str, Any]]:
    describe = [share_groups.DescribeShareGroupOffsetsTopic(topic_name=each, partitions=[0]) for each in topics]
    alter = [
        share_groups.AlterShareGroupOffsetsTopic(
            topic_name=each, partitions=[share_groups.AlterShareGroupOffsetsPartition(partition_index=0)]
        )
        for each in topics
    ]
    delete = [share_groups.DeleteShareGroupOffsetsTopic(topic_name=each) for each in topics]
    return [
        (
            "DESCRIBE_SHARE_GROUP_OFFSETS",
            share_groups.DescribeShareGroupOffsetsRequest(
                groups=[share_groups.DescribeShareGroupOffsetsGroup(group_id="g", topics=describe)]
            ),
        ),
        (
            "ALTER_SHARE_GROUP_OFFSETS",
            share_groups.AlterShareGroupOffsetsRequest(group_id="g", topics=alter),
        ),
        ("DELETE_SHARE_GROUP_OFFSETS", share_groups.DeleteShareGroupOffsetsRequest(group_id="g", topics=delete)),
    ]


def test_offsets_and_descriptions_get_errors(broker: Broker) -> None:
    with BlockingClient(broker.bootstrap_servers, DEADLINE_S) as client:
        for api, request in offsets_requests(["jobs", "others"]):
            with broker.faults.error(api, "GROUP_AUTHORIZATION_FAILED"):
                answer = client.ask(request, 0)
            top = answer.groups[0] if api.startswith("DESCRIBE") else answer
            assert top.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            with broker.faults.error(api, "TOPIC_AUTHORIZATION_FAILED"):
                answer = client.ask(request, 0)
            topics = answer.groups[0].topics if api.startswith("DESCRIBE") else answer.responses
            rows = topics if api.startswith("DELETE") else [each.partitions[0] for each in topics]
            assert [each.topic_name for each in topics] == ["jobs", "others"]
            assert {row.error_code for row in rows} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        request = share_groups.ShareGroupDescribeRequest(group_ids=["g"])
        with broker.faults.error("SHARE_GROUP_DESCRIBE", "COORDINATOR_LOAD_IN_PROGRESS"):
            [group] = client.ask(request, 1).groups
        assert (group.group_id, group.error_code) == ("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_the_state_of_share_partitions_gets_errors(broker: Broker) -> None:
    id_of_topic = topic_id(broker, "jobs")
    asked: list[tuple[str, Any, Any]] = [
        ("INITIALIZE", share_state.InitializeShareTopic, share_state.InitializeSharePartition),
        ("READ", share_state.ReadShareTopic, share_state.ReadSharePartition),
        ("WRITE", share_state.WriteShareTopic, share_state.WriteSharePartition),
        ("DELETE", share_state.DeleteShareTopic, share_state.DeleteSharePartition),
    ]
    with BlockingClient(broker.bootstrap_servers, DEADLINE_S) as client:
        for name, topic, partition in asked:
            kind = getattr(share_state, f"{name.title()}ShareGroupStateRequest")
            request = kind(group_id="g", topics=[topic(topic_id=id_of_topic, partitions=[partition(partition=3)])])
            with broker.faults.error(f"{name}_SHARE_GROUP_STATE", "FENCED_STATE_EPOCH"):
                [result] = client.ask(request, 0).results
            [row] = result.partitions
            assert (result.topic_id, row.partition) == (id_of_topic, 3)
            assert row.error_code == ErrorCode.FENCED_STATE_EPOCH
        request = share_state.ReadShareGroupStateSummaryRequest(
            group_id="g",
            topics=[
                share_state.ReadShareTopic(
                    topic_id=id_of_topic, partitions=[share_state.ReadSharePartition(partition=3)]
                )
            ],
        )
        with broker.faults.error("READ_SHARE_GROUP_STATE_SUMMARY", "NOT_COORDINATOR"):
            [result] = client.ask(request, 1).results
        assert result.partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_brokers_ask_each_other_for_state_and_try_again_after_a_fault() -> None:
    """The state of a share partition is mostly kept by another broker than its leader."""
    count = 16
    settings = {"group_share_heartbeat_interval_ms": 100, "group_share_min_heartbeat_interval_ms": 100}
    with Cluster(2, group_share_assignment_interval_ms=0, **settings) as cluster:
        cluster.create_topic("jobs", partitions=count, replicas=1)
        begin_at_earliest(cluster.brokers[0].bootstrap_servers, "workers")
        faults = [
            each.faults.error("WRITE_SHARE_GROUP_STATE", "COORDINATOR_LOAD_IN_PROGRESS", must_fire=False)
            for each in cluster.brokers
        ]
        consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "workers"})
        consumer.subscribe(["jobs"])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for index in range(count):
            producer.produce("jobs", "x", partition=index)
        assert producer.flush(DEADLINE_S) == 0
        read: list[Any] = []

        def is_read() -> bool:
            read.extend(consumer.poll(0.1))
            return len(read) >= count

        until(is_read, "all records")
        consumer.close()
        assert sum(fault.fired for fault in faults) > 0
        assert len({(each.partition(), each.offset()) for each in read}) == count
