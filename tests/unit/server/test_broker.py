"""The broker as an object: what a program that embeds it relies on."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.common.errors import ConfigError
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from tests.support.descriptors import open_files
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S


def answers(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(request_frame(ApiVersionsRequest(), 0, 7, "test"))
        return connection.recv(8)[4:8] == (7).to_bytes(4, "big")


def test_several_brokers_live_in_one_process(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "a", port=0) as a, Broker(data_dir=tmp_path / "b", port=0) as b:
        assert a.port != b.port
        assert a.cluster_id != b.cluster_id
        assert answers(a.port) and answers(b.port)


def test_async_with_serves_in_the_running_loop(tmp_path: Path) -> None:
    async def story() -> bool:
        async with Broker(data_dir=tmp_path, port=0) as broker:
            return await asyncio.to_thread(answers, broker.port)

    assert asyncio.run(story())


def test_a_broker_that_never_cleaned_creates_no_cleaner_to_stop_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(data_dir=tmp_path, port=0) as broker:
            running = broker._running
        assert running is not None and running._cleaner is None

    asyncio.run(story())


def test_it_leaves_no_thread_task_or_descriptor_behind(tmp_path: Path) -> None:
    """In a process of its own: brokers of other tests may start threads in this one at any time."""
    own = "from tests.unit.server.test_broker import Path, leave_nothing_behind as run"
    script = f"import sys; {own}; run(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def leave_nothing_behind(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "warm", port=0):
        pass  # imports and caches
    gc.collect()
    threads, files = set(threading.enumerate()), set(open_files().values())
    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        assert answers(broker.port)
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert {name for name in set(open_files().values()) - files if not name.startswith("/proc")} == set()

    async def story() -> set[asyncio.Task[object]]:
        async with Broker(data_dir=tmp_path / "data", port=0):
            pass
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(story()) == set()


def test_a_second_broker_on_the_directory_is_refused_in_one_plain_line(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, port=0), pytest.raises(ConfigError) as caught, Broker(data_dir=tmp_path, port=0):
        pass
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with Broker(data_dir=tmp_path, port=0) as again:
        assert answers(again.port)


def test_a_taken_port_is_named_and_the_directory_let_go(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "a", port=0) as first:
        with pytest.raises(ConfigError, match=str(first.port)), Broker(data_dir=tmp_path / "b", port=first.port):
            pass
        with Broker(data_dir=tmp_path / "b", port=0) as second:
            assert answers(second.port)


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(data_dir=tmp_path, num_partitions="many")
    for both in ({"port": 0}, {"host": "127.0.0.1"}):  # one of them would be ignored
        with pytest.raises(ConfigError, match="of the only listener"):
            Broker(listeners="PLAINTEXT://127.0.0.1:0", **both)
    with pytest.raises(ConfigError, match=r"data_dir and log\.dirs"):
        Broker(data_dir=tmp_path, log_dirs=str(tmp_path))


def test_the_cluster_id_outlives_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, port=0) as broker:
        cluster_id = broker.cluster_id
    assert len(cluster_id) == 22
    with Broker(data_dir=tmp_path, port=0) as broker:
        assert broker.cluster_id == cluster_id


@pytest.mark.parametrize("content", [b"garbage\n", b"version: 0\ntopic_id: 12", b"\xff" * 60, b""])
def test_a_file_that_tells_no_id_is_told_of_once_and_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", value=b"v")
    path = tmp_path / "t-0" / "partition.metadata"
    sound = path.read_bytes()
    path.write_bytes(content)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for warnings in (1, 0):
        caplog.clear()
        with Broker(data_dir=tmp_path) as broker:
            assert [record.value for record in broker.records("t")] == [b"v"]
        told = [record.getMessage() for record in caplog.records if "partition.metadata" in record.getMessage()]
        assert len(told) == warnings and path.read_bytes() == sound


def test_a_file_of_a_version_to_come_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
    path = tmp_path / "t-0" / "partition.metadata"
    path.write_text(later := "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAASZw\nmore: 1")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with Broker(data_dir=tmp_path):
        pass
    assert path.read_text() == later and caplog.text.count("unknown version 1") == 1
