"""The broker that tests hold in their hands: records, groups, maintenance, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kafkalite import Broker
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.server.broker_server import BrokerServer
from kafkalite.testing import data_directory
from kafkalite.testing.async_broker import AsyncBroker
from kafkalite.testing.data_directory import is_in_memory, remove_abandoned, throwaway_path
from kafkalite.testing.records.stored_record import READ_COMMITTED
from tests.support.descriptors import open_files
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until


def producer(broker: Broker, **settings: object) -> confluent_kafka.Producer:
    return confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings})


def consumer(broker: Broker, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )


def take(client: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    taken: list[confluent_kafka.Message] = []

    def enough() -> bool:
        message = client.poll(0.1)
        if message is not None and message.error() is None:
            taken.append(message)
        return len(taken) >= count

    until(enough, f"{count} records")
    return taken


# data


def test_without_a_directory_the_data_are_gone_at_the_end() -> None:
    with Broker() as broker:
        broker.produce("orders", "x")
        directory = broker.data_dir
        assert (directory / "orders-0").is_dir()
    assert not directory.exists()
    with broker:  # again: as new
        assert broker.topics == {}


def test_in_memory_one_thread_is_enough() -> None:
    if not is_in_memory(throwaway_path()):
        pytest.skip("needs room in /dev/shm")
    before = set(threading.enumerate())
    with Broker() as broker:
        broker.create_topic("orders", flush_messages=1)
        broker.produce("orders", "x")
        broker.delete_topic("orders")
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["kafkalite"]


def test_with_a_directory_the_data_stay(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.produce("orders", "x")
    with Broker(data_dir=tmp_path) as broker:
        assert [record.value for record in broker.records("orders")] == [b"x"]


def test_a_start_that_fails_leaves_no_directory() -> None:
    with Broker() as first:
        second = Broker(port=first.port)
        with pytest.raises(Exception, match=str(first.port)), second:
            pass
        assert not second.data_dir.exists()


def test_a_broker_removes_what_a_killed_process_has_left(tmp_path: Path) -> None:
    script = (
        "import kafkalite, signal; b = kafkalite.Broker().__enter__(); print(b.data_dir, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        remove_abandoned(left.parent)
        assert left.is_dir(), "its process lives"
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
    remove_abandoned(left.parent)
    assert not left.exists()


def test_a_directory_that_was_removed_by_half_goes_and_one_that_is_only_begun_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(DEADLINE_S)
    begun, half = tmp_path / f"kafkalite-broker-{process.pid}-a", tmp_path / f"kafkalite-broker-{process.pid}-b"
    begun.mkdir()
    half.mkdir()
    (half / "meta.properties").touch()
    remove_abandoned(tmp_path)
    assert begun.exists() and not half.exists()


def test_a_directory_that_another_removes_at_the_same_time_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / f"kafkalite-broker-{os.getpid()}1-a"
    left.mkdir()

    def is_alive_no_more(pid: int) -> bool:
        left.rmdir()
        return False

    monkeypatch.setattr(data_directory, "_is_alive", is_alive_no_more)
    remove_abandoned(tmp_path)
    assert not left.exists()


def test_directories_of_this_process_are_not_abandoned() -> None:
    path = throwaway_path()
    assert f"-{os.getpid()}-" in path.name
    with Broker() as one, Broker() as two:
        assert one.data_dir.is_dir() and two.data_dir.is_dir()


# records


def test_a_record_is_stored_as_it_was_produced() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        made = broker.produce("orders", {"id": 1}, key="a", headers={"trace": "t1"}, partition=2, timestamp=1_000)
        assert broker.records("orders") == [made]
        assert made == ("orders", 2, 0, 1_000, b"a", b'{"id":1}', (("trace", b"t1"),))
        [decoded] = broker.records("orders", 2, key=bytes.decode, value=json.loads)
        assert (decoded.key, decoded.value) == ("a", {"id": 1})
        assert broker.records("orders", 0) == []


def test_keys_choose_the_partitions_that_clients_choose() -> None:
    keys = [f"key-{number}" for number in range(50)]
    with Broker() as broker:
        broker.create_topic("ours", partitions=7)
        broker.create_topic("theirs", partitions=7)
        client = producer(broker, partitioner="murmur2")
        for key in keys:
            broker.produce("ours", None, key=key)
            client.produce("theirs", None, key=key)
        client.flush(DEADLINE_S)
        ours, theirs = ({r.key: r.partition for r in broker.records(topic)} for topic in ("ours", "theirs"))
        assert ours == theirs


def test_records_without_a_key_go_round_the_partitions() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        assert [broker.produce("orders", "x").partition for _ in range(4)] == [0, 1, 2, 0]


def test_what_clients_are_refused_is_refused() -> None:
    with Broker(auto_create_topics_enable=False) as broker:
        with pytest.raises(KafkaError, match="topic 'orders' not found"):
            broker.produce("orders", "x")
        broker.create_topic("orders", max_message_bytes=200)
        with pytest.raises(KafkaError) as caught:
            broker.produce("orders", "x" * 500)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(KafkaError, match="no partition 5"):
            broker.produce("orders", "x", partition=5)
        with pytest.raises(TypeError, match="int"):
            broker.produce("orders", 5)  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match="nonsense"):
            broker.create_topic("other", nonsense="x")
        with pytest.raises(ValueError, match="isolation"):
            broker.records("orders", isolation="dirty")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"partition": "0"}, TypeError, "partition is a whole number or None, not '0'"),
        ({"timestamp": "now"}, TypeError, "timestamp is a whole number"),
        ({"timestamp": 1 << 63}, ValueError, "more than 64 bits"),
        ({"headers": 5}, TypeError, "headers are a mapping, or pairs"),
        ({"headers": "abc"}, TypeError, "headers are a mapping, or pairs"),
        ({"headers": ["abc"]}, TypeError, "a header is a name and a value, not 'abc'"),
        ({"headers": {"n": 5}}, TypeError, "not int"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(wrong: dict[str, Any], error: type[Exception], words: str) -> None:
    with Broker() as broker:
        with pytest.raises(error, match=words):
            broker.produce("orders", "x", **wrong)
        assert broker.topics == {}
        with pytest.raises(TypeError, match="partitions is a whole number"):
            broker.create_topic("orders", "3")  # type: ignore[arg-type]
        for act in (broker.create_topic, lambda name: broker.produce(name, "x")):
            with pytest.raises(TypeError, match="is text, not None"):
                act(None)  # type: ignore[arg-type]


def test_a_record_that_cannot_be_decoded_is_named() -> None:
    with Broker() as broker:
        broker.produce("orders", "{}")
        broker.produce("orders", b"\xff", key="k")
        with pytest.raises(ValueError) as caught:
            broker.records("orders", value=json.loads)
        assert caught.value.__notes__ == [r"record 1 of orders-0: b'k', b'\xff'"]


def test_compressed_batches_of_clients_are_read() -> None:
    with Broker() as broker:
        client = producer(broker, **{"compression.type": "zstd", "linger.ms": 50})
        for number in range(100):
            client.produce("orders", str(number), headers=[("n", b"1"), ("n", b"2")])
        client.flush(DEADLINE_S)
        records = broker.records("orders")
        assert [record.value for record in records] == [str(number).encode() for number in range(100)]
        assert records[0].headers == (("n", b"1"), ("n", b"2"))


def test_read_committed_sees_neither_open_nor_aborted_transactions() -> None:
    with Broker() as broker:
        client = producer(broker, **{"transactional.id": "t"})
        client.init_transactions(DEADLINE_S)
        for value, ends in (("a", client.commit_transaction), ("b", client.abort_transaction), ("c", None)):
            client.begin_transaction()
            client.produce("orders", value)
            client.flush(DEADLINE_S)
            if ends is not None:
                ends(DEADLINE_S)
        assert [r.value for r in broker.records("orders", isolation=READ_COMMITTED)] == [b"a"]
        assert [r.value for r in broker.records("orders")] == [b"a", b"b", b"c"]
        client.commit_transaction(DEADLINE_S)
        assert [r.value for r in broker.wait_for("orders", 2, isolation=READ_COMMITTED)] == [b"a", b"c"]
        assert broker.lag("nobody", "orders", isolation=READ_COMMITTED) == 2


def test_wait_for_returns_when_enough_have_come() -> None:
    with Broker() as broker, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.wait_for, "orders", 3)  # the topic comes later
        for value in "abc":
            broker.produce("orders", value)
        assert [record.value for record in waiting.result(DEADLINE_S)] == [b"a", b"b", b"c"]
        with pytest.raises(TimeoutError, match=r"4 records of 'orders' did not come within 0\.01 s: 3"):
            broker.wait_for("orders", 4, timeout=0.01)
        with pytest.raises(TimeoutError, match="no such topic"):
            broker.wait_for("other", timeout=0.01)


def test_has_finds_a_record_or_says_what_there_is() -> None:
    with Broker() as broker:
        orders = broker.create_topic("orders")
        orders.produce({"id": 1, "by": "me"}, key="a", headers={"x": "1", "y": "2"})
        orders.produce(None, key="b")
        assert orders.has(key="a").offset == 0
        assert orders.has(value={"by": "me", "id": 1}, headers={"y": "2"}).offset == 0
        assert orders.has(value=None).offset == 1
        assert orders.has(value=lambda value: value is not None and b"me" in value).offset == 0
        with pytest.raises(AssertionError, match=r"no record with key='c'[\s\S]*0@1 key=b'b' value=None"):
            orders.has(key="c", within=0)
        with pytest.raises(AssertionError, match="There is no such topic; there are: orders"):
            broker.topic("other").has(within=0)


# groups


def test_the_first_request_of_a_group_finds_its_coordinator_and_forms_at_once() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "x")
        client = consumer(broker, "readers")
        client.subscribe(["orders"])
        [message] = take(client, 1)
        group = broker.groups["readers"]
        assert (group.state, len(group.members)) == ("Stable", 1)
        assert group.members[0].partitions == {("orders", 0), ("orders", 1)}
        assert broker.lag("readers") == 1, "nothing is committed"
        client.commit(message, asynchronous=False)
        assert broker.groups["readers"].offsets == {("orders", 0): 1}
        assert broker.lag("readers") == 0
        client.close()
        assert broker.groups["readers"].state == "Empty"


def test_lag_counts_records_and_not_offsets() -> None:
    with Broker() as broker:
        broker.create_topic("changes", cleanup_policy="compact")
        for number in range(10):
            broker.produce("changes", str(number), key="only")
        broker.compact("changes")
        assert broker.lag("nobody", "changes") == 1
        with pytest.raises(KafkaError, match="group 'nobody' not found"):
            broker.lag("nobody")


# maintenance


def test_compact_keeps_the_latest_of_each_key_and_leaves_no_process_and_no_thread() -> None:
    with Broker() as broker:
        broker.create_topic("changes", partitions=2, cleanup_policy="compact")
        for number in range(20):
            broker.produce("changes", str(number), key=f"k{number % 4}")
        broker.compact("changes")
        assert sorted(record.value for record in broker.records("changes")) == [b"16", b"17", b"18", b"19"]
        broker.compact("changes")  # nothing to be done is no error
        broker.create_topic("orders")
        with pytest.raises(KafkaError, match=r"orders-0: it is not compacted: its cleanup\.policy is delete"):
            broker.compact("orders")
        with pytest.raises(KafkaError, match="topic 'other' not found"):
            broker.compact("other")
        names = {thread.name for thread in threading.enumerate()}
        assert "kafkalite-cleaner" in names
    assert "kafkalite-cleaner" not in {thread.name for thread in threading.enumerate()}


def test_roll_begins_a_segment_and_expire_applies_retention() -> None:
    with Broker() as broker:
        broker.create_topic("orders", retention_ms=60_000)
        broker.produce("orders", "old", timestamp=1_000)
        broker.roll("orders")
        broker.produce("orders", "new")
        assert len(list((broker.data_dir / "orders-0").glob("*.log"))) == 2
        broker.expire()
        assert [record.value for record in broker.records("orders")] == [b"new"]


def test_a_reset_leaves_nothing_and_the_broker_goes_on() -> None:
    with Broker() as broker:
        for round_ in range(3):
            broker.create_topic("orders", partitions=2)
            client = producer(broker, **{"transactional.id": "t"})
            client.init_transactions(DEADLINE_S)
            client.begin_transaction()
            client.produce("orders", str(round_), partition=0)
            client.commit_transaction(DEADLINE_S)
            reader = consumer(broker, "readers")
            reader.subscribe(["orders"])
            [message] = take(reader, 1)
            assert (message.offset(), message.value()) == (0, str(round_).encode())
            reader.commit(message, asynchronous=False)
            reader.close()
            broker.reset()
            assert broker.topics == {} and broker.groups == {}
            assert not broker.server.transactions.store.by_id
            assert not broker.server.logs.logs


def test_a_reset_takes_changed_settings_back() -> None:
    with Broker(num_partitions=2) as broker:
        broker.run(lambda: broker.server.metadata.writes.set_broker_config("", {"log.retention.ms": "5"}))
        assert broker.server.config.log_retention_ms == 5
        broker.reset()
        assert broker.server.config.log_retention_ms != 5


def test_a_snapshot_is_a_broker_s_data_at_a_moment(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("changes", partitions=2, cleanup_policy="compact")
        for number in range(10):
            broker.produce("changes", str(number), key=f"k{number % 3}")
            broker.roll("changes")
        broker.compact("changes")
        expected = broker.records("changes")
        reader = consumer(broker, "readers")
        reader.subscribe(["changes"])
        reader.commit(take(reader, 1)[0], asynchronous=False)
        reader.close()
        offsets = broker.groups["readers"].offsets
        broker.snapshot(tmp_path / "snapshot")
        broker.produce("changes", "later", key="k")
        with pytest.raises(FileExistsError, match="not empty"):
            broker.snapshot(tmp_path / "snapshot")
        with pytest.raises(ValueError, match="within the data"):
            broker.snapshot(broker.data_dir / "snapshot")
        assert not (broker.data_dir / "snapshot").exists()
    for _ in range(2):  # any number of times
        with Broker.from_snapshot(tmp_path / "snapshot") as again:
            assert again.topics == {"changes": 2}
            assert again.records("changes") == expected
            assert again.groups["readers"].offsets == offsets
            again.produce("changes", "more", key="k")
    with pytest.raises(FileNotFoundError, match="no snapshot"), Broker.from_snapshot(tmp_path):
        pass


def test_a_second_start_leaves_the_running_broker_its_data() -> None:
    with Broker() as broker:
        broker.produce("orders", "1")
        with pytest.raises(RuntimeError, match="already running"), broker:
            pass
        assert broker.data_dir.exists()
        broker.produce("payments", "2")
        assert broker.topics == {"orders": 1, "payments": 1}


def test_a_start_that_is_given_up_while_groups_are_loaded_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        loading = asyncio.Event()

        async def loaded(_: BrokerServer) -> None:
            loading.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(BrokerServer, "loaded", loaded)
        broker = AsyncBroker()
        starting = asyncio.create_task(broker.start())
        await loading.wait()
        port = broker.port
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not broker.data_dir.exists()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(story())


def test_nothing_is_left_of_a_snapshot_that_cannot_be_copied(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.snapshot(tmp_path / "snapshot")
    (tmp_path / "snapshot" / "nowhere").symlink_to(tmp_path / "nothing")
    again = Broker.from_snapshot(tmp_path / "snapshot")
    with pytest.raises(shutil.Error), again:
        pass
    assert not again.data_dir.exists()


# many brokers, threads, loops


def test_async_with_gives_the_same_with_coroutines() -> None:
    async def story() -> None:
        async with Broker() as broker:
            changes = await broker.create_topic("changes", cleanup_policy="compact")
            waiting = asyncio.ensure_future(broker.wait_for("changes", 2))
            await broker.produce("changes", "1", key="a")
            await broker.produce("changes", "2", key="a")
            assert len(await waiting) == 2
            assert (await changes.has(value="2")).offset == 1
            with pytest.raises(AssertionError, match="It has 2:"):
                await broker.topic("changes").has(value="3", within=0)
            assert [r.key for r in changes.records()] == [b"a", b"a"] and len(await changes.wait_for(2)) == 2
            await broker.compact("changes")
            assert [record.value for record in broker.records("changes")] == [b"2"]
            assert broker.topics == {"changes": 1} and broker.groups == {}
            broker.roll("changes")
            broker.expire()
            await broker.reset()
            assert broker.topics == {}

    asyncio.run(story())


def test_methods_outside_of_the_block_are_refused_in_plain_words() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="not running in a thread: enter it with `with`"):
        broker.produce("orders", "x")
    with pytest.raises(RuntimeError, match="not running"):
        broker.bootstrap_servers  # noqa: B018


@pytest.mark.parametrize("end", [lambda broker: None, Broker.crash], ids=["stop", "crash"])
def test_a_thread_that_waits_for_records_hears_of_the_broker_s_end(end: Callable[[Broker], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        with Broker() as broker:
            waiting = pool.submit(broker.wait_for, "orders", 1, timeout=10 * DEADLINE_S)
            until(waiting.running, "the wait")
            broker.call(lambda: None)
            end(broker)
        with pytest.raises(RuntimeError, match=r"has ended|not running"):
            waiting.result(DEADLINE_S)


def test_threads_share_a_broker() -> None:
    with Broker() as broker, ThreadPoolExecutor(8) as pool:
        broker.create_topic("orders")
        list(pool.map(lambda number: broker.produce("orders", str(number)), range(200)))
        assert sorted(int(record.value) for record in broker.records("orders")) == list(range(200))


def test_a_hundred_brokers_live_at_once() -> None:
    brokers = [Broker() for _ in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Broker.__enter__, brokers))
        try:
            assert len({broker.port for broker in brokers}) == 100
            list(pool.map(lambda broker: broker.produce("orders", str(broker.port)), brokers))
            for broker in brokers:
                assert [record.value for record in broker.records("orders")] == [str(broker.port).encode()]
        finally:
            list(pool.map(Broker.__exit__, brokers))
    assert not any(broker.data_dir.exists() for broker in brokers)


def test_one_after_the_other_they_leave_nothing_behind() -> None:
    """In a process of its own: brokers of other tests may start threads in this one at any time."""
    script = "from tests.unit.testing.test_broker import leave_nothing_behind as run; run()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def leave_nothing_behind() -> None:
    def live_once() -> None:
        with Broker() as broker:
            broker.create_topic("changes", cleanup_policy="compact")
            broker.produce("changes", "1", key="a")
            broker.compact("changes")
            broker.reset()

    live_once()  # imports and caches
    gc.collect()
    threads, files = set(threading.enumerate()), set(open_files().values())
    for _ in range(20):
        live_once()
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert {name for name in set(open_files().values()) - files if not name.startswith("/proc")} == set()
