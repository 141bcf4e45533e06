"""Tests that freeze or set the date of their process: its broker has that date, and time passes for all that waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

import confluent_kafka
import freezegun
import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite import Broker
from kafkalite.common.clock import date_ms, monotonic_ms, monotonic_s
from kafkalite.testing.cluster import Cluster
from tests.support.wait import DEADLINE_S

Freeze = Callable[[datetime], AbstractContextManager[object]]

WAYS: dict[str, Freeze] = {
    "freezegun": lambda date: freezegun.freeze_time(date),
    "freezegun, ticking": lambda date: freezegun.freeze_time(date, tick=True),
    "freezegun, east of Greenwich": lambda date: freezegun.freeze_time(date, tz_offset=9),
    "freezegun, asyncio": lambda date: freezegun.freeze_time(date, real_asyncio=True),
    "time-machine": lambda date: time_machine.travel(date, tick=False),
    "time-machine, ticking": lambda date: time_machine.travel(date, tick=True),
}
PAST, FUTURE = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2041, 5, 6, tzinfo=UTC)
TICKED_MS_MAX = DEADLINE_S * 1000

frozen_ways = pytest.mark.parametrize(
    "freeze",
    [
        pytest.param(way, id=name, marks=() if name in ("freezegun", "time-machine") else pytest.mark.thorough)
        for name, way in WAYS.items()
    ],
)
dates = pytest.mark.parametrize(
    "date", [pytest.param(PAST, id="past"), pytest.param(FUTURE, id="future", marks=pytest.mark.thorough)]
)


def use(broker: Broker) -> None:
    """A client that waits: for records that are not there, for its group, and for the end of its own session."""
    broker.create_topic("orders")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "transactional.id": "shop"}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", "1")
    producer.commit_transaction(DEADLINE_S)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(DEADLINE_S)
    assert message is not None and message.error() is None and message.value() == b"1"
    consumer.commit(asynchronous=False)
    assert consumer.poll(0.3) is None  # some answers without records
    consumer.close()
    assert broker.lag("billing", "orders") == 0


@dates
@frozen_ways
def test_clients_work_though_time_is_frozen_before_the_broker_starts(freeze: Freeze, date: datetime) -> None:
    with freeze(date), Broker() as broker:
        use(broker)


@dates
@frozen_ways
def test_clients_work_though_time_is_frozen_while_the_broker_runs(freeze: Freeze, date: datetime) -> None:
    with Broker() as broker:
        broker.produce("before", "1")
        with freeze(date):
            use(broker)
        broker.delete_topic("orders")
        use(broker)
        assert len(broker.records("before")) == 1


@dates
@frozen_ways
def test_a_record_has_the_date_of_the_test(freeze: Freeze, date: datetime) -> None:
    with Broker() as broker:
        broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
        with freeze(date):
            broker.produce("orders", "1")
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
            producer.produce("stamped", "1")
            assert producer.flush(DEADLINE_S) == 0
            for topic in ("orders", "stamped"):
                [record] = broker.records(topic)
                assert 0 <= record.timestamp - date.timestamp() * 1000 < TICKED_MS_MAX
            assert abs(broker.clock.now - date) < timedelta(milliseconds=TICKED_MS_MAX)


@frozen_ways
def test_what_falls_due_by_the_broker_s_timers_does_so_by_the_date_of_the_test(freeze: Freeze) -> None:
    with Broker() as broker:
        seen: list[int] = []
        done = threading.Event()

        def look() -> None:  # as a timer: nothing but the thread's beginning calls it
            seen.append(broker.asynchronous.clock.wall_ms())
            done.set()

        with freeze(PAST):
            broker.call(lambda: broker.asynchronous.clock.call_later(1, look))
            assert done.wait(DEADLINE_S)
        assert 0 <= seen[0] - PAST.timestamp() * 1000 < TICKED_MS_MAX


def test_retention_goes_by_the_date_of_the_test() -> None:
    with freezegun.freeze_time(PAST) as frozen, Broker() as broker:
        broker.create_topic("orders", retention_ms=7 * 86_400_000)
        broker.produce("orders", "1")
        broker.roll("orders")
        frozen.tick(timedelta(days=6))
        broker.expire()
        assert len(broker.records("orders")) == 1
        frozen.tick(timedelta(days=2))
        broker.expire()
        assert broker.records("orders") == []


def test_the_broker_s_own_clock_goes_on_from_a_frozen_date() -> None:
    with time_machine.travel(PAST, tick=False), Broker() as broker:
        broker.clock.advance(days=8)
        assert broker.clock.now == PAST + timedelta(days=8)


@frozen_ways
def test_sessions_end_and_waits_give_up_though_time_is_frozen(freeze: Freeze) -> None:
    with Broker(group_min_session_timeout_ms=100) as broker:
        broker.create_topic("orders")
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "billing",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe(["orders"])
        with freeze(FUTURE):
            while not consumer.assignment():
                consumer.poll(0.05)
            with pytest.raises(TimeoutError):
                broker.wait_for("orders", timeout=0.05)
            broker.clock.advance(seconds=7)  # within which it is not heard of
            assert not broker.groups["billing"].members
        consumer.close()


@pytest.mark.parametrize("way", ["freezegun, asyncio", "time-machine", "time-machine, ticking"])
def test_a_broker_in_a_loop_of_asyncio_works_though_time_is_frozen(way: str) -> None:
    def consume(bootstrap_servers: str) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.value() == b"1"
        assert consumer.poll(0.7) is None  # a long poll is over, and another begins
        consumer.close()

    async def use_broker() -> None:
        async with Broker() as broker:
            with WAYS[way](FUTURE):
                record = await broker.produce("orders", "1")
                assert 0 <= record.timestamp - FUTURE.timestamp() * 1000 < TICKED_MS_MAX
                await asyncio.to_thread(consume, broker.bootstrap_servers)
                with pytest.raises(TimeoutError):
                    await broker.wait_for("orders", 2, timeout=0.05)

    asyncio.run(use_broker())


@pytest.mark.parametrize("freeze", [WAYS["freezegun"], WAYS["time-machine"]], ids=["freezegun", "time-machine"])
def test_a_cluster_works_though_time_is_frozen(freeze: Freeze) -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", message_timestamp_type="LogAppendTime")
        with freeze(FUTURE):
            cluster.kill(cluster.wait_for_leader("orders", 0))
            leader = cluster.wait_for_leader("orders", 0)
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
            stamps: list[int] = []
            producer.produce("orders", "1", on_delivery=lambda _, message: stamps.append(message.timestamp()[1]))
            assert producer.flush(DEADLINE_S) == 0
            assert 0 <= stamps[0] - FUTURE.timestamp() * 1000 < TICKED_MS_MAX
            with pytest.raises(TimeoutError):
                cluster.wait_until(lambda: False, lambda: "nothing", timeout_s=0.05)
            cluster.start(1 - leader)


@given(
    st.sampled_from(sorted(WAYS)),
    st.datetimes(datetime(1971, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),
)
@settings(deadline=None, max_examples=40)
def test_the_date_is_that_of_the_test_and_time_passes(way: str, date: datetime) -> None:
    before_s, before_ms = monotonic_s(), monotonic_ms()
    with WAYS[way](date):
        assert abs(date_ms() - date.timestamp() * 1000) <= TICKED_MS_MAX
        assert before_s <= monotonic_s() < before_s + DEADLINE_S
        assert before_ms <= monotonic_ms() < before_ms + DEADLINE_S * 1000
    assert abs(date_ms() - time.time() * 1000) < TICKED_MS_MAX


@pytest.mark.thorough
def test_the_date_can_be_asked_for_while_a_freeze_begins_and_ends() -> None:
    failures: list[BaseException] = []
    is_over = threading.Event()

    def ask() -> None:
        try:
            while not is_over.is_set():
                date_ms()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(30):
        with freezegun.freeze_time(PAST):
            pass
    is_over.set()
    thread.join()
    assert not failures
