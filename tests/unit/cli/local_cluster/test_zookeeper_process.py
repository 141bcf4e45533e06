"""A ZooKeeper of our own: it serves, keeps its data and its address, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkalite.cli.local_cluster.zookeeper_process import ZooKeeperProcess, command, find_jars, missing_requirement
from kafkalite.common.errors import ConfigError
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until

needs_java = pytest.mark.skipif(missing_requirement() is not None, reason=f"{missing_requirement()}")


@needs_java
@pytest.mark.long  # its quick form is `kafkalite serve -n`, tests/system/cluster/test_serve_n.py
def test_it_serves_and_finds_its_data_again(tmp_path: Path) -> None:
    async def story() -> None:
        zookeeper = ZooKeeperProcess(tmp_path / "zookeeper")
        await zookeeper.start()
        address = zookeeper.connect
        await asyncio.to_thread(with_client, address, lambda client: client.create("/kept", b"data"))
        zookeeper.kill()
        assert "signal 9" in str(await zookeeper.ended())
        await zookeeper.start()
        assert zookeeper.connect == address, "brokers find it where it was"
        assert await asyncio.to_thread(with_client, address, lambda client: client.get("/kept")[0]) == b"data"
        await zookeeper.stop()
        await zookeeper.stop()

    asyncio.run(story())


@needs_java
@pytest.mark.long
def test_it_does_not_outlive_whoever_began_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from kafkalite.cli.local_cluster.zookeeper_process import ZooKeeperProcess\n"
        "async def story():\n"
        "    zookeeper = ZooKeeperProcess(Path(sys.argv[1]), keep_open=[int(sys.argv[2])])\n"
        "    await zookeeper.start()\n"
        "    print(zookeeper.pid, flush=True)\n"
        "    await zookeeper.ended()\n"
        "asyncio.run(story())\n"
    )
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "zookeeper"), str(lock)],
        stdout=subprocess.PIPE,
        pass_fds=[lock],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    os.close(lock)
    assert process.stdout is not None
    with process.stdout as told:
        pid = int(told.readline())
    os.kill(pid, 0)  # it is there
    process.send_signal(signal.SIGKILL)
    process.wait()
    with (tmp_path / "lock").open("r+") as again:
        until(lambda: is_free(again.fileno()), "the lock to be let go: nothing of it runs any more", 30)


def is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "no Java" in str(missing_requirement())
    with pytest.raises(ConfigError, match="no Java"):
        command(tmp_path)


def test_the_jars_of_a_spark_serve_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert find_jars() is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert find_jars() is None
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "zookeeper-3.9.4.jar").touch()
    assert find_jars() == tmp_path / "jars"


def with_client(address: str, work):  # type: ignore[no-untyped-def]
    client = KazooClient(hosts=address, timeout=10.0)
    client.start(timeout=DEADLINE_S)
    try:
        return work(client)
    finally:
        client.stop()
        client.close()
