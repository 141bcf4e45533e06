"""Clusters in this process, with one replica of each partition: started, disturbed, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN
from kafkalite.metadata.cluster_metadata import DISCONNECTED, MEMBER
from kafkalite.testing import Cluster, InMemoryZooKeeper, data_directory
from tests.support.replication.live_cluster import Writer, create_topic, read_all
from tests.support.wait import until

ROOT = Path(__file__).parents[3]


def test_clients_find_all_brokers_and_their_records_again():
    with Cluster(3) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1], [2]])
        assert [cluster.leader_of("orders", i) for i in range(3)] == [0, 1, 2]
        assert cluster.isr("orders", 1) == {1} and cluster.leader_of("orders", 7) is None
        writer = Writer(cluster)
        for partition in range(3):
            writer.write("orders", [b"%d" % i for i in range(100)], partition)
        writer.flush()
        for partition in range(3):
            assert list(read_all(cluster, "orders", partition).values()) == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_that_went_comes_back_at_its_address_with_its_records(ending):
    with Cluster(2) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1]])
        writer = Writer(cluster)
        writer.write("orders", [b"before"], 1)
        writer.flush()
        address = cluster.brokers[1].bootstrap_servers
        getattr(cluster, ending)(1)
        assert cluster.running == [0] and not cluster.brokers[1].is_running
        was_clean = (cluster.brokers[1].data_dir / CLEAN_SHUTDOWN).exists()
        assert was_clean == (ending == "stop"), "a killed broker writes nothing any more"
        cluster.wait_until(lambda: cluster.leader_of("orders", 1) is None, lambda: "the others to notice")
        writer.write("orders", [b"meanwhile"], 0)
        writer.write("orders", [b"after"], 1)
        cluster.start(1)
        assert cluster.wait_for_leader("orders", 1) == 1
        writer.flush()
        assert not writer.failures and cluster.brokers[1].bootstrap_servers == address
        assert list(read_all(cluster, "orders", 1).values()) == [b"before", b"after"]
        assert list(read_all(cluster, "orders", 0).values()) == [b"meanwhile"]


def test_a_killed_broker_is_missed_only_when_its_session_ends():
    with Cluster(2, zookeeper_session_timeout_ms=60_000) as cluster:
        cluster.kill(0, session_ends=False)
        assert cluster.brokers[1].server.metadata.brokers.keys() == {0, 1}
        cluster.start(0)  # it knows its old session, and does not wait for its end
        cluster.kill(0)
        until(lambda: cluster.brokers[1].server.metadata.brokers.keys() == {1}, "the end of the session")


def test_a_broker_without_zookeeper_goes_on_and_one_without_a_session_comes_back():
    with Cluster(2, zookeeper_session_timeout_ms=60_000) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1]])
        writer = Writer(cluster)
        writer.write("orders", [b"before"], 1)
        writer.flush()  # it has its producer id, which a broker without ZooKeeper may not have to give
        metadata = cluster.brokers[1].server.metadata
        cluster.cut_off(1)
        until(lambda: metadata.registration_state is DISCONNECTED, "the loss of the connection")
        writer.write("orders", [b"cut off"], 1)
        writer.flush()
        cluster.mend(1)
        until(lambda: metadata.registration_state is MEMBER, "the connection")
        before = metadata.brokers[1].epoch
        cluster.lose_session(1)
        until(lambda: metadata.registration_state is MEMBER and metadata.brokers[1].epoch > before, "a new session")
        cluster.wait_for_leader("orders", 1)
        assert list(read_all(cluster, "orders", 1).values()) == [b"before", b"cut off"] and not writer.failures


def test_a_broker_that_stands_still_answers_later_and_without_its_session():
    with Cluster(2, zookeeper_session_timeout_ms=500) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1]])
        writer = Writer(cluster)
        writer.write("orders", [b"before"], 1)
        writer.flush()
        cluster.pause(1)
        writer.write("orders", [b"meanwhile"], 1)
        until(lambda: cluster.brokers[0].server.metadata.brokers.keys() == {0}, "the end of its session")
        cluster.resume(1)
        assert cluster.wait_for_leader("orders", 1) == 1
        writer.flush()
        assert list(read_all(cluster, "orders", 1).values()) == [b"before", b"meanwhile"] and not writer.failures
        cluster.pause(1)  # the end takes no notice of it


def test_a_broker_that_there_is_not_is_none_of_the_others():
    with Cluster(2) as cluster:
        for act in (cluster.kill, cluster.stop, cluster.start, cluster.pause, cluster.cut_off):
            for number in (-1, 2):
                with pytest.raises(IndexError, match="0 to 1"):
                    act(number)
        assert cluster.running == [0, 1]
    with pytest.raises(TypeError, match="count is a whole number"):
        Cluster("3")


def test_brokers_have_settings_of_their_own():
    with Cluster(2, own={1: {"broker_rack": "b"}}, broker_rack="a") as cluster:
        assert [each.rack for _, each in sorted(cluster.brokers[0].server.metadata.brokers.items())] == ["a", "b"]


def test_a_directory_that_is_given_keeps_the_cluster(tmp_path):
    with Cluster(2, data_dir=tmp_path) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1]], retention_ms=12_345_678)
        writer = Writer(cluster)
        writer.write("orders", [b"kept"], 1)
        writer.flush()
        cluster_id = cluster.brokers[0].server.metadata.cluster_id
    with Cluster(2, data_dir=tmp_path) as cluster:
        cluster.wait_for_leader("orders", 1)
        assert list(read_all(cluster, "orders", 1).values()) == [b"kept"]
        metadata = cluster.brokers[0].server.metadata
        assert metadata.cluster_id == cluster_id and metadata.topics["orders"].config["retention.ms"] == "12345678"


def test_a_cluster_that_has_no_room_in_memory_is_a_temporary_one_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(data_directory, "_ROOM_BYTES_MIN", 1 << 60)
    with Cluster(1) as cluster:
        assert cluster.brokers[0].data_dir.is_relative_to(tmp_path)
    assert not list(tmp_path.iterdir())


def test_coroutines_have_the_same_cluster():
    async def story() -> None:
        async with Cluster(2) as cluster:
            await asyncio.to_thread(create_topic, cluster.blocking, "orders", placed_on=[[0], [1]])
            assert await cluster.wait_for_leader("orders", 0) == 0
            await cluster.kill(0)
            assert not cluster.brokers[0].is_running and cluster.brokers[1].is_running
            await cluster.start(0)
            assert await cluster.wait_for_leader("orders", 0) == 0
            await cluster.wait_for_isr("orders", 1, {1})
            await cluster.stop(1)
            assert cluster.bootstrap_servers.count(":") == 2

    asyncio.run(story())


def test_a_start_that_is_given_up_leaves_no_cluster(monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    start_all = Cluster._start_all

    def held_up(cluster: Cluster) -> None:
        start_all(cluster)
        begun.set()
        may_end.wait()

    monkeypatch.setattr(Cluster, "_start_all", held_up)
    cluster = Cluster(1)

    async def story() -> None:
        entering = asyncio.ensure_future(cluster.__aenter__())
        await asyncio.to_thread(begun.wait)
        entering.cancel()
        asyncio.get_running_loop().call_soon(may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(story())
    assert not cluster.running and not cluster.brokers[0].data_dir.exists()


def test_a_leader_that_was_waited_for_is_the_one_that_was_seen(monkeypatch):
    with Cluster(1) as cluster:
        create_topic(cluster, "orders", placed_on=[[0]])
        seen = iter([0])  # afterwards there is none: it may go at any time
        monkeypatch.setattr(cluster, "leader_of", lambda *_: next(seen, None))
        assert cluster.wait_for_leader("orders", 0) == 0


def test_waits_end_with_what_was_waited_for():
    with Cluster(1) as cluster:
        with pytest.raises(TimeoutError, match="a leader of nowhere-0: None"):
            cluster.wait_for_leader("nowhere", 0, timeout_s=0.01)
        with pytest.raises(TimeoutError, match=r"the ISR \{7\} of nowhere-0"):
            cluster.wait_for_isr("nowhere", 0, {7}, timeout_s=0.01)
        with pytest.raises(RuntimeError, match="broker 0 is running already"):
            cluster.start(0)
        with pytest.raises(IndexError):
            cluster.kill(1)
        cluster.kill(0)
        cluster.kill(0)
        cluster.stop(0)
        with pytest.raises(RuntimeError, match="broker 0 is not running"):
            _ = cluster.brokers[0].server


@pytest.mark.parametrize("what", ["refuse_settings", "leave_nothing_behind"])
def test_nothing_is_left_of_a_cluster(what):
    """In a process of its own: brokers of other tests may start threads in this one at any time."""
    script = f"from tests.unit.testing.test_cluster import {what} as run; run()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def refuse_settings():
    with pytest.raises(ConfigError, match=r"no\.such\.setting"), Cluster(2, no_such_setting=1):
        pass
    until(lambda: not _threads(), "the end of all threads")


def leave_nothing_behind():
    with Cluster(2) as cluster:  # what is made once and kept, such as imported modules' descriptors
        cluster.kill(0)
    until(lambda: not _threads(), "the end of all threads")
    descriptors = _descriptors()
    with Cluster(2) as cluster:
        create_topic(cluster, "orders", placed_on=[[0], [1]])
        cluster.kill(0)
        cluster.start(0)
        cluster.stop(1)
        cluster.start(1)
        cluster.lose_session(1)
        places = [broker.data_dir for broker in cluster.brokers]
        assert all(place.exists() for place in places)
    until(lambda: not _threads(), "the end of all threads")
    until(lambda: _descriptors() <= descriptors, lambda: f"{_descriptors()} descriptors, {descriptors} before")
    assert not any(place.parent.exists() for place in places)


def test_the_zookeeper_alone_loads_no_broker():
    assert InMemoryZooKeeper.__module__ == "kafkalite.testing.zookeeper.in_memory_zookeeper"


def _threads() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith(("kafkalite", "uvloop"))]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
