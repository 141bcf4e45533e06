"""The clock of a test's broker: what an advance fires and in which order, and what a month means to a broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
import pytest

from kafkalite import Broker
from kafkalite.common.clock import SystemClock
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.testing.async_broker import AsyncBroker
from kafkalite.testing.broker_clock import STEPS_MAX, BrokerClock
from tests.support.wait import until

DAY_MS = 86_400_000


def on_a_loop(story: Callable[[BrokerClock], Awaitable[None]]) -> None:
    async def play() -> None:
        await story(BrokerClock())

    asyncio.run(play())


# the clock alone


def test_timers_fire_in_the_order_of_their_deadlines_and_see_their_time() -> None:
    async def story(clock: BrokerClock) -> None:
        clock.freeze()
        began_ms = clock.monotonic_ms()
        fired: list[tuple[str, int]] = []

        def note(name: str) -> Callable[[], None]:
            return lambda: fired.append((name, clock.monotonic_ms() - began_ms))

        for name, delay_ms in (("c", 9_000), ("a", 2_000), ("b", 5_000), ("later", 10_001)):
            clock.call_later(delay_ms, note(name))
        await clock.advance(seconds=10)
        assert fired == [("a", 2_000), ("b", 5_000), ("c", 9_000)]
        assert clock.monotonic_ms() - began_ms == 10_000

    on_a_loop(story)


def test_a_timer_that_sets_the_next_one_does_so_in_its_own_time() -> None:
    async def story(clock: BrokerClock) -> None:
        clock.freeze()
        began_ms = clock.wall_ms()
        fired: list[int] = []

        def again() -> None:
            fired.append(clock.wall_ms() - began_ms)
            clock.call_later(1_000, again)

        clock.call_later(1_000, again)
        await clock.advance(timedelta(seconds=5))
        assert fired == [1_000, 2_000, 3_000, 4_000, 5_000]

    on_a_loop(story)


def test_a_long_advance_has_so_many_steps_at_most() -> None:
    async def story(clock: BrokerClock) -> None:
        fired = 0

        def again() -> None:
            nonlocal fired
            fired += 1
            clock.call_later(1_000, again)

        clock.call_later(1_000, again)
        await clock.advance(days=30)
        assert 0 < fired <= STEPS_MAX + 1

    on_a_loop(story)


def test_coroutines_that_a_timer_wakes_have_run_when_the_time_has_passed() -> None:
    async def story(clock: BrokerClock) -> None:
        woken, done = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            await woken.wait()
            clock.call_later(0, done.set)

        task = asyncio.ensure_future(wait())
        clock.call_later(60_000, woken.set)
        await clock.advance(minutes=1)
        assert done.is_set()
        await task

    on_a_loop(story)


def test_an_advance_waits_for_the_work_of_other_threads() -> None:
    async def story() -> None:
        at_work = threading.Event()
        clock = BrokerClock(at_work.is_set)
        ended: list[str] = []
        loop = asyncio.get_running_loop()

        def work() -> None:
            ended.append("work")
            loop.call_soon_threadsafe(at_work.clear)

        def begin() -> None:
            at_work.set()
            threading.Thread(target=work).start()

        clock.call_later(10, begin)
        await clock.advance(milliseconds=10)
        assert ended == ["work"] and not at_work.is_set()

    asyncio.run(story())


def test_a_cancelled_timer_never_fires() -> None:
    async def story(clock: BrokerClock) -> None:
        fired: list[str] = []
        second = clock.call_later(20, lambda: fired.append("second"))
        clock.call_later(10, second.cancel)
        clock.call_later(5, lambda: fired.append("gone")).cancel()
        await clock.advance(1)
        second.cancel()
        assert fired == []

    on_a_loop(story)


def test_frozen_time_stands_still_and_goes_on_from_there() -> None:
    async def story(clock: BrokerClock) -> None:
        clock.freeze()
        assert clock.is_frozen
        before, date = clock.monotonic_ms(), clock.now
        fired: list[str] = []
        due = asyncio.Event()
        clock.call_later(1, due.set)
        clock.call_later(0, lambda: fired.append("at once"))
        await asyncio.sleep(0.005)
        assert (clock.monotonic_ms(), clock.now, fired, due.is_set()) == (before, date, ["at once"], False)
        resumed_ms = time.monotonic_ns() // 1_000_000
        clock.resume()
        passed_ms = clock.monotonic_ms() - before
        assert passed_ms <= time.monotonic_ns() // 1_000_000 - resumed_ms, "the pause does not count"
        await due.wait()
        await clock.advance(hours=1)
        assert not clock.is_frozen

    on_a_loop(story)


def test_without_a_turn_timers_fire_by_themselves() -> None:
    async def story(clock: BrokerClock) -> None:
        fired = asyncio.Event()
        clock.call_later(1, fired.set)
        await fired.wait()

    on_a_loop(story)


def test_the_date_is_set_and_no_time_passes() -> None:
    async def story(clock: BrokerClock) -> None:
        clock.freeze()
        before = clock.monotonic_ms()
        clock.set(datetime(2030, 2, 1, tzinfo=UTC))
        assert clock.now == datetime(2030, 2, 1, tzinfo=UTC)
        await clock.advance(days=1)
        assert clock.now == datetime(2030, 2, 2, tzinfo=UTC)
        assert clock.monotonic_ms() - before == DAY_MS
        clock.reset()
        assert not clock.is_frozen and abs(clock.now - datetime.now(UTC)) < timedelta(minutes=1)
        assert clock.monotonic_ms() - before >= DAY_MS, "for timers it never goes back"
        with pytest.raises(ValueError, match="time zone"):
            clock.set(datetime(2030, 1, 1))
        with pytest.raises(ValueError, match="forward only"):
            await clock.advance(days=-1)
        with pytest.raises(TypeError):
            await clock.advance(fortnights=1)

    on_a_loop(story)


# a broker's


@pytest.fixture(params=["memory", "disk"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    return Broker() if request.param == "memory" else Broker(data_dir=tmp_path, num_network_threads=1)


def test_retention_deletes_what_has_become_too_old(broker: Broker) -> None:
    with broker:
        broker.create_topic("orders", retention_ms=7 * DAY_MS, segment_ms=DAY_MS)
        broker.produce("orders", "1")
        broker.clock.advance(days=6)
        assert len(broker.records("orders")) == 1
        broker.clock.advance(days=2)
        assert broker.records("orders") == []


def test_a_month_of_a_changelog(broker: Broker) -> None:
    with broker:
        broker.create_topic("prices", cleanup_policy="compact", segment_ms=DAY_MS, min_cleanable_dirty_ratio=0.01)
        for day in range(30):
            broker.produce("prices", str(day), key="apple")
            broker.clock.advance(days=1)
        broker.produce("prices", "30", key="apple")  # begins the segment after the last that is due
        broker.clock.advance(minutes=1)
        assert len(broker.records("prices")) <= 3, "the cleaner has had its time"
        assert broker.records("prices")[-1].value == b"30"


def test_a_member_that_is_not_heard_of_leaves_its_group(broker: Broker) -> None:
    with broker:
        broker.create_topic("orders")
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "billing",
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 20_000,
            }
        )
        consumer.subscribe(["orders"])

        def is_stable() -> bool:
            consumer.poll(0.05)
            group = broker.groups.get("billing")
            return group is not None and group.state == "Stable"

        until(is_stable, "the group is stable")
        broker.clock.freeze()
        broker.clock.advance(seconds=61)
        assert broker.groups["billing"].state == "Empty"
        broker.clock.resume()
        consumer.close()


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    with Broker() as broker:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "shop",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", "1")
        producer.flush(30)
        assert len(broker.records("orders")) == 1
        broker.clock.advance(minutes=2)
        broker.produce("orders", "2")
        seen = [record.value for record in broker.records("orders", isolation="read_committed")]
        assert seen == [b"2"], "the last stable offset has moved on"
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.commit_transaction(30)
        assert raised.value.args[0].code() in (
            confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
            confluent_kafka.KafkaError._FENCED,
        )


def test_committed_offsets_of_a_group_that_is_gone_expire() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "1")
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()
        broker.clock.advance(days=6)
        assert broker.lag("billing") == 0
        broker.clock.advance(days=2)
        assert "billing" not in broker.groups


def test_a_client_whose_login_is_too_old_has_to_log_in_again(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="secret";'
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "connections.max.reauth.ms": "600000",
        "log.dirs": str(tmp_path / "data"),
    }
    with Broker(BrokerConfig.load(properties)) as broker:

        def ports() -> set[int]:
            return {client.port for client in broker.call(lambda: list(broker.server.server.clients()))}

        login = {"sasl.mechanism": "PLAIN", "sasl.username": "shop", "sasl.password": "secret"}
        address = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"}
        producer = confluent_kafka.Producer({**address, **login, "log_level": 0, "linger.ms": 0})
        for advance in (0, 60, 660):  # the client keeps its connection for ten minutes
            before = ports()
            broker.clock.advance(advance)
            producer.produce("orders", "x")
            assert producer.flush(30) == 0
            if advance:
                assert bool(ports() & before) is (advance == 60)
        assert len(broker.records("orders")) == 3


def test_a_time_that_makes_no_sense_is_refused() -> None:
    with Broker() as broker:
        with pytest.raises(TypeError, match="no unit is named 'day'; there are weeks, days"):
            broker.clock.advance(day=1)
        with pytest.raises(TypeError, match="the date is a datetime, not '2030-01-01'"):
            broker.clock.set("2030-01-01")  # type: ignore[arg-type]


def test_a_reset_broker_has_todays_date() -> None:
    with Broker() as broker:
        broker.clock.advance(weeks=4)
        broker.clock.freeze()
        broker.reset()
        assert abs(broker.clock.now - datetime.now(UTC)) < timedelta(minutes=1)
        assert not broker.clock.is_frozen


def test_an_asynchronous_broker_has_the_clock_itself() -> None:
    async def story() -> None:
        async with Broker() as broker:
            await broker.create_topic("orders", retention_ms=DAY_MS, segment_ms=DAY_MS)
            await broker.produce("orders", "1")
            await broker.clock.advance(days=3)
            assert broker.records("orders") == []

    asyncio.run(story())


def test_a_clock_from_outside_is_turned_outside() -> None:
    async def story() -> None:
        clock = SystemClock(asyncio.get_running_loop())
        async with AsyncBroker(clock=clock) as broker:
            with pytest.raises(RuntimeError, match="advance that one"):
                broker.clock  # noqa: B018

    asyncio.run(story())
