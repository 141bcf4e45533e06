"""`kafkalite serve -n 3` as an operator meets it: one line, one cluster, one stop, and nothing that stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.cli.local_cluster.zookeeper_process import missing_requirement
from kafkalite.server.broker import Broker
from tests.support.broker_process import environment
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_tree import zookeeper_client
from tests.system.cluster.load import LOG, Load
from tests.system.cluster.served_machine import all_gone, create, creates, read, serving, write

needs_java = pytest.mark.skipif(missing_requirement() is not None, reason=f"{missing_requirement()}")


@pytest.mark.parametrize("zookeeper", ["kafkalite", pytest.param("apache", marks=[needs_java, pytest.mark.long])])
def test_three_brokers_are_one_cluster_that_stops_as_one(tmp_path: Path, zookeeper: str) -> None:
    with serving(tmp_path, "--zookeeper", zookeeper) as served:
        assert len(served.bootstrap.split(",")) == 3
        create(served.bootstrap, "kept", 6)
        admin = AdminClient({"bootstrap.servers": served.bootstrap}, logger=LOG)
        found: list[int] = []

        def leaders() -> set[int]:
            metadata = admin.list_topics(timeout=DEADLINE_S)  # of a broker that may not have opened its partitions yet
            assert set(metadata.brokers) == {0, 1, 2}
            topic = metadata.topics.get("kept")
            found[:] = [partition.leader for partition in topic.partitions.values()] if topic is not None else []
            return set(found)

        until(lambda: leaders() == {0, 1, 2}, lambda: f"each broker to lead some; they are led by {found}")
        write(served.bootstrap, "kept", range(6))
        assert read(served.bootstrap, "kept", 6) == {b"0", b"1", b"2", b"3", b"4", b"5"}
        second = refused(tmp_path)
        assert second.returncode == 1 and re.fullmatch(r"kafkalite: \S+/data is in use: .*\n", second.stderr)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(60) == 0, served.said()
        assert "Traceback" not in served.said() and "is killed" not in served.said()
    assert all_gone(tmp_path / "data")


@pytest.mark.long
def test_nothing_stays_behind_a_sudden_end_but_the_data(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        cluster = served.cluster
        create(served.bootstrap, "kept", 3)
        write(served.bootstrap, "kept", range(3))
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    with serving(tmp_path) as served:  # at once: it waits for what is left
        assert served.cluster == cluster
        assert read(served.bootstrap, "kept", 3) == {b"0", b"1", b"2"}
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        until(lambda: all_gone(tmp_path / "data"), "every process of it to end", 30)


@pytest.mark.long
def test_a_single_broker_becomes_the_first_of_several(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "single", port=0) as broker:
        create(broker.bootstrap_servers, "kept", 2)
        write(broker.bootstrap_servers, "kept", range(2))
        cluster = broker.cluster_id
    (tmp_path / "data").mkdir()
    (tmp_path / "single").rename(tmp_path / "data" / "broker0")
    with serving(tmp_path, "--adopt", str(tmp_path / "data")) as served:
        assert served.cluster == cluster
        assert read(served.bootstrap, "kept", 2) == {b"0", b"1"}
        create(served.bootstrap, "new", 3)
        write(served.bootstrap, "new", range(3))
    with serving(tmp_path) as served:
        assert read(served.bootstrap, "kept", 2) == {b"0", b"1"}
        assert read(served.bootstrap, "new", 3) == {b"0", b"1", b"2"}


@pytest.mark.long
def test_a_broker_that_dies_is_begun_again_and_one_that_is_told_to_stop_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, "--override", "zookeeper.session.timeout.ms=2000") as served:
        create(served.bootstrap, "kept", 3)
        (pid,) = served.pids("broker 1")
        os.kill(pid, signal.SIGKILL)
        until(lambda: served.pids("broker 1")[-1] != pid, "broker 1 to be restarted")
        assert f"broker 1 (process {pid}) was killed by signal 9 (SIGKILL); it is restarted at once" in served.said()
        (keeper,) = served.pids("ZooKeeper")
        os.kill(keeper, signal.SIGKILL)
        until(lambda: served.pids("ZooKeeper")[-1] != keeper, "our ZooKeeper to be restarted")
        write(served.bootstrap, "kept", range(3))
        until(lambda: creates(served.bootstrap, f"new-{uuid.uuid4().hex[:8]}"), "a topic to be created again")
        os.kill(served.pids("broker 2")[-1], signal.SIGTERM)
        until(lambda: "broker 2 was stopped, and is not restarted" in served.said(), "broker 2 to stop")
        metadata = AdminClient({"bootstrap.servers": served.bootstrap}, logger=LOG).list_topics(
            "kept", timeout=DEADLINE_S
        )
        led = [one.id for one in metadata.topics["kept"].partitions.values() if one.leader in (0, 1)]
        write(served.bootstrap, "kept", led[:1])
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0, served.said()


@pytest.mark.long
def test_brokers_are_restarted_in_turn_and_hand_over(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap}, logger=LOG)
        admin.create_topics([NewTopic("kept", 3, 3)])["kept"].result(DEADLINE_S)
        before = [served.pids(f"broker {number}")[-1] for number in range(3)]
        with Load(served.bootstrap, "kept", range(3)) as load:
            load.await_progress("before the restarts")
            served.process.send_signal(signal.SIGHUP)
            until(lambda: "the brokers were restarted" in served.said(), "each broker to be restarted", 120)
            load.await_progress("after the restarts")
        assert load.failures == []
        assert not set(before) & {served.pids(f"broker {number}")[-1] for number in range(3)}
        assert served.said().count("leadership of the partitions that others have as well is handed over") == 3
        assert " ERROR " not in served.said() and "is not restarted" not in served.said()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-n", "0"], "-n 0 must be from 1 to 100 brokers"),
        (["-n", "3", "--port", "65534"], "leaves no ports to count up to"),
        (["-n", "3", "--adopt", "there"], "there is nothing to take over in there/broker0"),
        (["-n", "3", "--data-dir", "{single}"], "holds the data of a single broker"),
        (["--zookeeper-listener", "127.0.0.1:0"], "zookeeper.connect names another"),
        (["-n", "3", "--zookeeper", "apache"], "zookeeper.connect names a ZooKeeper"),
        (["--zookeeper-listener", "0.0.0.0:2181"], "Brokers on several machines need Apache ZooKeeper"),
        (["--zookeeper-listener", "2181"], "must be HOST:PORT"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\n")
    given = [one.format(single=tmp_path) for one in arguments]
    command = [sys.executable, "-m", "kafkalite", "serve", *given, "--log-level", "error"]
    connect = ["--override", "zookeeper.connect=127.0.0.1:1"]  # never asked
    done = subprocess.run(
        [*command, *connect], capture_output=True, text=True, timeout=DEADLINE_S, env=environment(), cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("kafkalite: ") and complaint in done.stderr


def test_without_java_apache_zookeeper_is_refused(tmp_path: Path) -> None:
    bare = {name: text for name, text in environment().items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    command = [sys.executable, "-m", "kafkalite", "serve", "-n", "3", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--zookeeper", "apache"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=bare | {"PATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "--zookeeper apache: there is no Java here" in done.stderr
    assert not (tmp_path / "data").exists(), "nothing was begun"


@pytest.mark.long
def test_one_broker_has_a_zookeeper_for_old_clients(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["--zookeeper-listener", f"127.0.0.1:{port}", "--port", str(free_port())]
    with serving(tmp_path, *arguments, brokers=None) as served:
        assert served.zookeeper == f"127.0.0.1:{port}"
        create(served.bootstrap, "kept", 3)
        write(served.bootstrap, "kept", range(3))
        with zookeeper_client(served.zookeeper) as client:
            assert client.get_children("/brokers/ids") == ["0"] and client.get_children("/brokers/topics") == ["kept"]
        for name in ("ZooKeeper", "broker 0"):
            (pid,) = served.pids(name)
            os.kill(pid, signal.SIGKILL)
            until(lambda name=name, pid=pid: served.pids(name)[-1] != pid, f"{name} to be restarted")
        assert read(served.bootstrap, "kept", 3) == {b"0", b"1", b"2"}
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    until(lambda: all_gone(tmp_path / "data" / "zookeeper"), "every process of it to end", 30)
    with serving(tmp_path, *arguments, brokers=None) as served:
        assert read(served.bootstrap, "kept", 3) == {b"0", b"1", b"2"}


def refused(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafkalite", "serve", "-n", "3", "--data-dir", str(home / "data")]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment())
