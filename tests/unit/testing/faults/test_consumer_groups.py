"""Consumer groups (KIP-848) of a test's broker: their description, the turned clock, disruptions and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from kafkalite import Broker
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.common.errors import Unanswered
from kafkalite.testing.broker_report import broker_report
from tests.support.consumer_members import ConsumerMember
from tests.support.streams_members import StreamsMember, counting_topology
from tests.support.wait import DEADLINE_S, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(group_consumer_assignment_interval_ms=0) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def member(broker: Broker, member_id: str) -> ConsumerMember:
    return ConsumerMember(broker.bootstrap_servers, "billing", member_id, subscribed_topic_names=["orders"])


def test_a_group_is_shown_with_epochs_and_targets(broker: Broker) -> None:
    first = member(broker, "m1")
    member(broker, "m2")
    group = broker.groups["billing"]
    assert (group.kind, group.state, group.protocol) == ("consumer", "Reconciling", "uniform")
    assert group.generation == group.target_epoch == 3
    one, two = sorted(group.members)
    assert (one.epoch, two.epoch) == (2, 3)
    assert one.partitions == {("orders", 0), ("orders", 1)} and two.partitions == frozenset()
    assert one.target is not None and two.target is not None and one.target | two.target == one.partitions
    assert broker.lag("billing") == 0
    first.beat()
    assert "group billing: Reconciling, epoch 3, target epoch 3, lag 0" in broker_report(broker)


def test_a_session_ends_when_the_clock_is_turned(broker: Broker) -> None:
    first, _ = member(broker, "m1"), member(broker, "m2")
    broker.clock.advance(seconds=40)
    first.beat()
    broker.clock.advance(seconds=10)
    assert [each.member_id for each in broker.groups["billing"].members] == ["m1"]
    broker.clock.advance(seconds=50)
    assert broker.groups["billing"].state == "Empty"


def test_a_members_session_is_ended(broker: Broker) -> None:
    first, _ = member(broker, "m1"), member(broker, "m2")
    broker.faults.expire_session("billing", "m2")
    assert broker.groups["billing"].state == "Assigning"
    first.beat()
    assert [each.member_id for each in broker.groups["billing"].members] == ["m1"]
    assert broker.groups["billing"].state == "Stable"
    with pytest.raises(ValueError, match="has no member 'm2'; it has m1"):
        broker.faults.expire_session("billing", "m2")


def test_in_a_rebalance_members_give_up_their_partitions_and_get_some_again(broker: Broker) -> None:
    first = member(broker, "m1")
    second = member(broker, "m2")
    first.beat()
    first.confirm()
    second.beat()
    before = broker.groups["billing"]
    assert before.state == "Stable" and [len(each.partitions) for each in before.members] == [1, 1]
    broker.faults.rebalance("billing")
    for each in (first, second):
        each.beat()
        assert each.owned == {}
    first.confirm()
    first.beat()
    assert first.owned == {}, "not before all of them have given up theirs"
    second.confirm()
    until(lambda: broker.groups["billing"].state == "Assigning", "the new assignment")
    for each in (first, second):
        each.beat()
        assert [len(indexes) for indexes in each.owned.values()] == [1]
    after = broker.groups["billing"]
    assert after.state == "Stable" and after.generation == before.generation + 2
    assert [fired.fault for fired in broker.faults.fired] == ["rebalance"]


def test_a_rebalance_goes_on_without_a_member_that_leaves(broker: Broker) -> None:
    first, second = member(broker, "m1"), member(broker, "m2")
    broker.faults.rebalance("billing")
    second.leave()
    first.beat()
    first.confirm()
    first.beat()
    until(lambda: broker.groups["billing"].state == "Stable", "the end of the rebalance")
    assert sorted(first.owned.values()) == [[0, 1]]


def test_a_member_of_a_streams_group_is_expelled_and_no_rebalance_is_made(broker: Broker) -> None:
    topology = counting_topology("app", "orders")
    one, _ = (StreamsMember(broker.bootstrap_servers, "app", member_id, topology) for member_id in ("m1", "m2"))
    assert broker.groups["app"].kind == "streams"
    broker.faults.expire_session("app", "m2")
    one.beat()
    assert [each.member_id for each in broker.groups["app"].members] == ["m1"]
    with pytest.raises(ValueError, match="'app' is of Kafka Streams: it rebalances when a member comes or goes"):
        broker.faults.rebalance("app")
    one.leave()


def test_heartbeats_and_descriptions_get_errors(broker: Broker) -> None:
    only = member(broker, "m1")
    with (
        broker.faults.error("CONSUMER_GROUP_HEARTBEAT", "FENCED_MEMBER_EPOCH"),
        pytest.raises(AssertionError, match="110"),
    ):
        only.beat()
    only.beat()
    with ClusterClient(broker.bootstrap_servers, DEADLINE_S) as cluster:
        admin = GroupAdmin(cluster, DEADLINE_S)
        with (
            broker.faults.error("CONSUMER_GROUP_DESCRIBE", "GROUP_AUTHORIZATION_FAILED"),
            pytest.raises(Unanswered, match="GROUP_AUTHORIZATION_FAILED"),
        ):
            admin.describe("billing")
        with broker.faults.error("CONSUMER_GROUP_DESCRIBE", "COORDINATOR_LOAD_IN_PROGRESS", times=2):
            assert admin.describe("billing").epoch == only.epoch


def test_stock_consumers_give_up_their_partitions_and_get_them_back() -> None:
    quick = {"group_consumer_heartbeat_interval_ms": 100, "group_consumer_min_heartbeat_interval_ms": 100}
    with Broker(group_consumer_assignment_interval_ms=0, **quick) as broker:
        broker.create_topic("orders", partitions=2)
        events: list[tuple[str, int]] = []

        def note(event: str, number: int) -> Callable[..., None]:
            return lambda _, partitions: events.append((event, number)) if partitions else None

        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "group.protocol": "consumer"}
        consumers = [Consumer(settings) for _ in range(2)]
        for number, each in enumerate(consumers):
            each.subscribe(["orders"], on_assign=note("assign", number), on_revoke=note("revoke", number))

        def are_polled() -> bool:
            for each in consumers:
                each.poll(0.05)
            return True

        def is_stable() -> bool:
            shares = [len(each.assignment()) for each in consumers]
            return are_polled() and shares == [1, 1] and broker.groups["billing"].state == "Stable"

        until(is_stable, "a partition for each")
        events.clear()
        broker.faults.rebalance("billing")
        until(lambda: are_polled() and len(events) == 4, lambda: f"a rebalance: {events}")
        assert sorted(events[:2]) == [("revoke", 0), ("revoke", 1)]
        assert sorted(events[2:]) == [("assign", 0), ("assign", 1)]
        for each in consumers:
            each.close()
