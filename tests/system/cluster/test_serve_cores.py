"""`kafkalite serve --cores N` as an operator meets it: a broker on each core, one server to its clients."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import kafkalite
from kafkalite.cli.main import main
from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.load import LOG, Load
from tests.system.cluster.served_machine import all_gone, create, read, serving, write

METRICS = ("--override", "metrics.listener=127.0.0.1:0")


def leaders(bootstrap: str, topic: str) -> list[int]:
    metadata = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG).list_topics(topic, timeout=DEADLINE_S)
    return sorted(partition.leader for partition in metadata.topics[topic].partitions.values())


def scrape(address: str | None, path: str = "metrics") -> str:
    with urllib.request.urlopen(f"http://{address}/{path}", timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def test_cores_are_one_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, *METRICS, cores="3") as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap}, logger=LOG)
        admin.create_topics([NewTopic("spread", -1, -1)])["spread"].result(DEADLINE_S)
        until(lambda: leaders(served.bootstrap, "spread") == [0, 1, 2], "a partition on each core")
        write(served.bootstrap, "spread", range(3))
        assert read(served.bootstrap, "spread", 3) == {b"0", b"1", b"2"}
        internal = admin.list_topics("__consumer_offsets", timeout=DEADLINE_S).topics["__consumer_offsets"].partitions
        assert {len(one.replicas) for one in internal.values()} == {1}
        assert {one.leader for one in internal.values()} == {0, 1, 2}
        (pid,) = served.pids("broker 1")
        os.kill(pid, signal.SIGKILL)
        until(lambda: served.pids("broker 1")[-1] != pid, "broker 1 to be restarted")
        assert f"broker 1 (process {pid}) was killed by signal 9 (SIGKILL); it is restarted at once" in served.said()
        assert read(served.bootstrap, "spread", 3) == {b"0", b"1", b"2"}
        text = scrape(served.metrics)
        assert 'kafkalite_broker_restarts_total{broker="1"} 1\n' in text
        assert re.findall(r'kafka_server_replicamanager_leadercount\{broker="(\d)"\}', text) == ["0", "1", "2"]
        assert text.count("# TYPE kafka_server_replicamanager_leadercount gauge") == 1
        assert scrape(served.metrics, "health") == "ok\n"
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0, served.said()
        assert "Traceback" not in served.said() and "is killed" not in served.said()
    assert all_gone(tmp_path / "data")
    rows = kafkalite.read(tmp_path / "data", "spread").read_all()
    assert sorted(rows["value"].to_pylist()) == [b"0", b"1", b"2"]
    assert main(["log", "verify", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out.count("the last stop was orderly") == 3


def test_brokers_begin_with_all_modules_that_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # each process writes what it imports to stderr
    with serving(tmp_path, cores="3") as served:
        create(served.bootstrap, "kept", 3)
        write(served.bootstrap, "kept", range(3))
        names = re.findall(r"^import time:.*\| +(\S+)$", served.said(), re.MULTILINE)
    counts = Counter(names)
    assert counts["kafkalite.server.broker"] == 1, "the brokers are forks of one process"
    # one may be the controller; the ZooKeeper was forked before the process had the modules of brokers
    late = sorted(name for name, count in counts.items() if count > 2 and name.startswith(("kafkalite.", "kazoo.")))
    assert not late, f"every broker imports them; add them to server/broker_modules.py: {late}"


def spread(bootstrap: str, *arguments: str) -> int:
    return main(["topic", "spread", "--sample", "0", "-b", bootstrap, *arguments])


def ports(bootstrap: str, topic: str) -> dict[int, int]:
    """The port of each partition's leader."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG).list_topics(topic, timeout=DEADLINE_S)
    return {one.id: metadata.brokers[one.leader].port for one in metadata.topics[topic].partitions.values()}


def test_partitions_move_between_cores_under_load_without_their_bytes(tmp_path: Path) -> None:
    with serving(tmp_path, cores="2") as served:
        create(served.bootstrap, "moved", 4)
        with Load(served.bootstrap, "moved", range(4)) as load:
            load.await_progress("before the moves")
            for brokers in ("0", "0,1", "1", "0,1"):
                assert spread(served.bootstrap, "--brokers", brokers) == 0
                load.await_progress(f"on {brokers}")
        assert set(leaders(served.bootstrap, "moved")) == {0, 1}
        taken = re.findall(r"(moved-\d): \d+ segments of broker \d are taken over", served.said())
        gone = re.findall(r"(moved-\d) was reassigned to other brokers", served.said())
        assert len(gone) >= 5 and len(taken) > len(gone) / 2, "unless the leader is late, and the log is small"
        assert load.check(ports(served.bootstrap, "moved")) > 0
        assert spread(served.bootstrap, "--brokers", "0") == 0
    with serving(tmp_path, cores="1") as served:
        assert leaders(served.bootstrap, "moved") == [0] * 4
        assert load.check(ports(served.bootstrap, "moved")) > 0


@pytest.mark.long
def test_the_directory_of_a_single_broker_is_taken_over(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=LOG)
        admin.create_topics([NewTopic("kept", 2, 1, config={"retention.ms": "123456789"})])["kept"].result(DEADLINE_S)
        write(broker.bootstrap_servers, "kept", range(2))
        cluster = broker.cluster_id
    with serving(tmp_path, cores="2") as served:
        assert served.cluster == cluster
        assert read(served.bootstrap, "kept", 2) == {b"0", b"1"}
        assert leaders(served.bootstrap, "kept") == [0, 0], "until they are spread"
        resource = ConfigResource("topic", "kept")
        admin = AdminClient({"bootstrap.servers": served.bootstrap}, logger=LOG)
        assert admin.describe_configs([resource])[resource].result(DEADLINE_S)["retention.ms"].value == "123456789"
        create(served.bootstrap, "new", 2)
        until(lambda: leaders(served.bootstrap, "new") == [0, 1], "new partitions to be spread")
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    with serving(tmp_path, cores="3") as served:
        assert read(served.bootstrap, "kept", 2) == {b"0", b"1"}
