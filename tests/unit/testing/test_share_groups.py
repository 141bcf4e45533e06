"""Share groups of a test's broker: members, records in flight, locks that a test ends, and what remains afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from kafkalite import Broker
from kafkalite.testing.broker_report import broker_report
from kafkalite.testing.cluster import Cluster
from tests.support.consumer_members import ConsumerMember
from tests.support.share_requests import ACCEPT, REJECT, RELEASE, ShareRequester, acquired, begin_at_earliest, the_row
from tests.support.wait import DEADLINE_S, until

QUICK = {"group_share_heartbeat_interval_ms": 100, "group_share_min_heartbeat_interval_ms": 100}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(group_share_assignment_interval_ms=0) as broker:
        broker.create_topic("jobs")
        begin_at_earliest(broker.bootstrap_servers, "workers")
        yield broker


def member(broker: Broker, member_id: str = "m") -> ShareRequester:
    return ShareRequester(broker.bootstrap_servers, "workers", "jobs", member_id).join()


def stock_worker(bootstrap: str) -> ShareConsumer:
    """A member that acknowledges each record itself."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(settings)
    consumer.subscribe(["jobs"])
    return consumer


def send(broker: Broker, count: int) -> None:
    for number in range(count):
        broker.produce("jobs", str(number))


def test_records_in_flight_are_shown_with_their_holders(broker: Broker) -> None:
    send(broker, 4)
    one = member(broker)
    assert acquired(one.fetch(max_records=3)) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    group = broker.share_group("workers")
    before = broker.clock.now + timedelta(milliseconds=1)  # the times come from two clocks, each in whole milliseconds
    held = group.acquired
    assert [(each.topic, each.partition, each.offset, each.member_id) for each in held] == [
        ("jobs", 0, offset, "m") for offset in range(3)
    ]
    for each in held:
        assert each.acquired_at is not None and each.locked_until is not None
        assert each.locked_until - each.acquired_at == timedelta(seconds=30) and each.acquired_at <= before
    assert the_row(one.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT]))).error_code == 0
    assert [(each.offset, each.state, each.delivery_count) for each in group.in_flight] == [
        (1, "available", 1),
        (2, "archived", 1),
    ]
    assert group.start_offsets == {("jobs", 0): 1}
    assert (group.acknowledged, group.archived, group.acquired) == (1, 1, [])
    assert broker.lag("workers") == broker.lag("workers", "jobs") == 2


def test_members_and_states_are_shown(broker: Broker) -> None:
    group = broker.share_group("workers")
    assert (group.state, group.members, group.start_offsets) == ("Dead", (), {})
    one = member(broker)
    assert group.state == "Stable" and broker.groups["workers"].kind == "share"
    [shown] = group.members
    assert (shown.member_id, shown.partitions, shown.epoch) == ("m", {("jobs", 0)}, one.epoch)
    assert group.start_offsets == {("jobs", 0): None}, "nothing was fetched yet"
    send(broker, 2)
    assert broker.lag("workers") == 2
    one.fetch()
    assert "group workers: Stable" in (report := broker_report(broker))
    assert "from jobs-0@0, 2 records acquired" in report


def test_locks_end_when_a_test_says_so(broker: Broker) -> None:
    send(broker, 2)
    one = member(broker)
    group = broker.share_group("workers")
    assert group.expire_locks() == 0
    one.fetch()
    assert group.expire_locks() == 2
    assert {each.state for each in group.in_flight} == {"available"}
    assert group.describe().partitions["jobs", 0].lock_timeouts == 2
    assert acquired(one.fetch()) == [(0, 0, 2), (1, 1, 2)], "the member may get them again"
    assert the_row(one.acknowledge((0, 1, [ACCEPT]))).error_code == 0
    assert group.expire_locks() == 0 and group.acknowledged == 2


def test_locks_end_by_the_clock_as_well(broker: Broker) -> None:
    send(broker, 1)
    one = member(broker)
    one.fetch()
    broker.clock.advance(seconds=29)
    assert len(broker.share_group("workers").acquired) == 1
    broker.clock.advance(seconds=2)
    assert broker.share_group("workers").acquired == []


def test_a_record_that_was_locked_too_often_is_archived(broker: Broker) -> None:
    begin_at_earliest(broker.bootstrap_servers, "workers", share_delivery_count_limit="2")
    send(broker, 1)
    one = member(broker)
    group = broker.share_group("workers")
    for count in (1, 2):
        assert acquired(one.fetch()) == [(0, 0, count)]
        group.expire_locks()
    assert acquired(one.fetch()) == []
    until(lambda: group.start_offsets == {("jobs", 0): 1}, "the start offset to pass it")
    assert (group.archived, group.acknowledged, broker.lag("workers")) == (1, 0, 0)


def test_the_numbers_stay_when_the_members_are_gone(broker: Broker) -> None:
    send(broker, 5)
    one = member(broker)
    one.fetch()
    one.acknowledge((0, 2, [ACCEPT]))
    one.close()
    group = broker.share_group("workers")
    until(lambda: group.acquired == [], "the release of what it held")
    assert (group.acknowledged, group.start_offsets) == (3, {("jobs", 0): 3})
    assert [(each.offset, each.state, each.delivery_count) for each in group.in_flight] == [
        (3, "available", 1),
        (4, "available", 1),
    ]
    assert broker.lag("workers") == 2


def test_a_members_session_is_ended(broker: Broker) -> None:
    member(broker, "m1")
    two = member(broker, "m2")
    broker.faults.expire_session("workers", "m1")
    two.beat()
    assert [each.member_id for each in broker.share_group("workers").members] == ["m2"]


def test_a_rebalance_is_a_new_epoch(broker: Broker) -> None:
    one = member(broker)
    before = one.epoch
    broker.faults.rebalance("workers")
    answer = one.beat()
    assert one.epoch > before and answer.assignment is None, "it keeps its partitions"


def test_a_stock_worker_gets_again_what_it_held_for_too_long() -> None:
    with Broker(group_share_assignment_interval_ms=0, **QUICK) as broker:
        broker.create_topic("jobs")
        begin_at_earliest(broker.bootstrap_servers, "workers")
        send(broker, 3)
        group = broker.share_group("workers")
        consumer = stock_worker(broker.bootstrap_servers)
        counts: list[int] = []

        def is_accepted() -> bool:
            for message in consumer.poll(0.1):
                counts.append(message.delivery_count())
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            if counts == [1] * 3 and group.acquired:
                assert group.expire_locks() == 3
            consumer.commit_sync(DEADLINE_S)
            return group.acknowledged == 3

        until(is_accepted, lambda: f"three records at their second delivery: {counts}")
        consumer.close()
        assert counts == [1, 1, 1, 2, 2, 2]
        assert (group.archived, group.acquired, broker.lag("workers")) == (0, [], 0)


def test_a_group_of_another_kind_is_refused(broker: Broker) -> None:
    ConsumerMember(broker.bootstrap_servers, "billing", "m1", subscribed_topic_names=["jobs"])
    with pytest.raises(ValueError, match="'billing' is no share group, but of kind consumer"):
        broker.share_group("billing").describe()


def test_a_cluster_takes_each_part_from_the_broker_that_has_it() -> None:
    with Cluster(
        3, group_share_assignment_interval_ms=0, share_coordinator_state_topic_num_partitions=1, **QUICK
    ) as cluster:
        group = cluster.share_group("workers")
        assert (group.state, group.members, group.start_offsets, group.expire_locks()) == ("Dead", (), {}, 0)
        cluster.create_topic("jobs", partitions=3)
        begin_at_earliest(cluster.bootstrap_servers.partition(",")[0], "workers")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for partition in range(3):
            producer.produce("jobs", b"one", partition=partition)
        producer.flush(DEADLINE_S)
        consumer = stock_worker(cluster.bootstrap_servers)
        seen: list[int] = []

        def is_accepted() -> bool:
            for message in consumer.poll(0.1):
                partition = message.partition()
                assert partition is not None
                [held] = [each for each in group.acquired if each.partition == partition]
                assert held.delivery_count == 1
                seen.append(partition)
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync(DEADLINE_S)
            return group.acknowledged == 3

        until(is_accepted, lambda: f"three records of three leaders: {seen}")
        assert {cluster.leader_of("jobs", partition) for partition in range(3)} == {0, 1, 2}
        assert (group.state, len(group.members), group.acquired) == ("Stable", 1, [])
        assert group.start_offsets == {("jobs", partition): 1 for partition in range(3)}
        consumer.close()
