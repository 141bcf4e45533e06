"""A process that has a broker forks: the child has copies of its descriptors, and none of its threads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite import Broker
from kafkalite.common.errors import ConfigError
from kafkalite.testing.cluster import Cluster
from tests.support.descriptors import open_below
from tests.support.forks import Fork, c_fork, living_child, said_by_child
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

BOTH_WAYS = pytest.mark.parametrize("fork", [os.fork, c_fork], ids=["python", "c"])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE_S)


def is_ended(client: socket.socket) -> bool:
    """Whether the broker has ended this connection. Raises TimeoutError if nothing tells the client."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_served(port: int) -> bool:
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return False
    return True


# while a child lives


@BOTH_WAYS
def test_a_stop_is_one_though_a_child_lives(fork: Fork, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.produce("orders", "1")
        port, client = broker.port, connect(broker.port)
        child = ExitStack()
        child.enter_context(living_child(fork))
    with child, client:
        assert is_ended(client)
        assert not is_served(port)
        with Broker(data_dir=tmp_path, port=port) as again:
            assert len(again.records("orders")) == 1


@BOTH_WAYS
@pytest.mark.parametrize("data", ["kept", "thrown away"])
def test_a_crashed_broker_comes_back_though_a_child_lives(fork: Fork, data: str, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path if data == "kept" else None) as broker:
        broker.produce("orders", "1")
        port, client = broker.port, connect(broker.port)
        with living_child(fork), client:
            broker.faults.crash()
            assert is_ended(client)
            broker.faults.restart()
            assert broker.port == port
            broker.produce("orders", "2")
            assert len(broker.records("orders")) == 2


@BOTH_WAYS
def test_a_connection_that_the_broker_ends_is_ended_though_a_child_lives(fork: Fork) -> None:
    with Broker() as broker, connect(broker.port) as client, living_child(fork):
        client.sendall(b"\x7f\xff\xff\xff")  # a frame that is too large
        assert is_ended(client)


@BOTH_WAYS
def test_a_cluster_ends_though_a_child_lives(fork: Fork) -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders")
        ports = [broker.port for broker in cluster.brokers]
        client = connect(ports[0])
        with living_child(fork):
            leader = cluster.wait_for_leader("orders", 0)
            cluster.kill(leader)
            cluster.start(leader)
            assert [broker.port for broker in cluster.brokers] == ports
        child = ExitStack()
        child.enter_context(living_child(fork))
    with child, client:
        assert is_ended(client)
        assert not any(map(is_served, ports))


def test_a_child_holds_no_file_and_no_socket_of_the_broker(tmp_path: Path) -> None:
    def sockets(pid: int) -> set[str]:
        return {name for name in map(os.readlink, _descriptors(pid)) if name.startswith("socket:")}

    before = sockets(os.getpid())
    with Broker(data_dir=tmp_path, metrics_listener="127.0.0.1:0") as broker:
        broker.produce("orders", "1")
        broker.produce("invoices", "1", key="a")
        host, _, metrics_port = str(broker.metrics_address).rpartition(":")
        with connect(broker.port), socket.create_connection((host, int(metrics_port))):
            broker.produce("orders", "2")  # both connections are accepted
            with living_child() as pid:
                ours = sockets(os.getpid()) - before
                theirs = sockets(pid) - before
                assert len(ours) >= 4 and len(theirs) == 2, (ours, theirs)  # the two clients of the test itself
                names = [os.readlink(name) for name in _descriptors(pid)]
                assert not [name for name in names if name.startswith(str(tmp_path))]
                assert not [
                    line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if str(tmp_path) in line
                ]
                assert open_below(tmp_path)


def _descriptors(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    return [f"{folder}/{name}" for name in os.listdir(folder) if os.path.lexists(f"{folder}/{name}")]


def test_the_end_of_a_child_leaves_the_lock_with_its_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        for fork in (os.fork, c_fork):
            with living_child(fork):
                pass
        with pytest.raises(ConfigError, match="in use"), Broker(data_dir=tmp_path):
            pass
        with connect(broker.port):
            broker.produce("orders", "1")


@given(st.lists(st.sampled_from(["python", "c", "child ends", "connect", "crash", "produce"]), max_size=12))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_between_forks_the_end_is_one(steps: list[str]) -> None:
    children: list[ExitStack] = []
    clients: list[socket.socket] = []
    count = 0
    with ExitStack() as at_last:
        with Broker() as broker:
            port = broker.port
            for step in steps:
                if step in ("python", "c"):
                    children.append(ExitStack())
                    at_last.push(children[-1])
                    children[-1].enter_context(living_child(os.fork if step == "python" else c_fork))
                elif step == "child ends" and children:
                    children.pop(0).close()
                elif step == "connect":
                    clients.append(at_last.enter_context(connect(port)))
                elif step == "crash":
                    broker.faults.crash()
                    broker.faults.restart()
                elif step == "produce":
                    broker.produce("orders", "x")
                    count += 1
            assert len(broker.records("orders") if count else []) == count
            directory = broker.data_dir
        assert all(map(is_ended, clients))
        assert not is_served(port) and not directory.exists()


# what a child does

ENDS = {
    "sys.exit": ("sys.exit(7)", 7),
    "an exception": ("raise ValueError('mine')", 1),
    "its last line": ("pass", 0),
}
BLOCKS = {
    "Broker": "with kafkalite.Broker() as broker:",
    "Broker with data": "with kafkalite.Broker(data_dir=sys.argv[1]) as broker:",
    "a crashed Broker": "with crashed() as broker:",
    "KafkaContainer": "with KafkaContainer() as broker:",
    "Cluster": "with Cluster(1) as broker:",
}
BLOCK = """
import contextlib, os, signal, sys
import kafkalite
from kafkalite.testing import Cluster, KafkaContainer

@contextlib.contextmanager
def crashed():
    with kafkalite.Broker() as broker:
        broker.produce("orders", "1")
        broker.faults.crash()
        yield broker

signal.alarm(60)
is_child = False
{block}
    pid = os.fork()
    if pid == 0:
        is_child = True
        signal.alarm(30)
        {end}
    else:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if isinstance(broker, KafkaContainer):
            broker = broker.broker
        if isinstance(broker, kafkalite.Broker):
            if not broker.is_running:
                broker.faults.restart()
                assert len(broker.records("orders")) == 1
            directory = broker.data_dir
            broker.produce("orders", "2")
        else:
            broker.create_topic("orders")
            directory = broker.brokers[0].data_dir
        assert directory.exists()
if not is_child:
    assert directory.exists() == (len(sys.argv) > 1)
    print("child", code)
"""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("block", BLOCKS)
def test_a_child_leaves_the_block_and_harms_nothing(block: str, end: str, tmp_path: Path) -> None:
    code, expected = ENDS[end]
    arguments = [str(tmp_path / "data")] if block == "Broker with data" else []
    said = run(BLOCK.format(block=BLOCKS[block], end=code), *arguments)
    assert said.stdout == f"child {expected}\n", said
    assert said.stderr.count("Traceback") == (end == "an exception"), said.stderr  # and no warning, no second one


ASYNC_BLOCK = """
import asyncio, os, signal, sys
import kafkalite

async def main():
    pid = -1
    try:
        async with kafkalite.Broker() as broker:
            await broker.produce("orders", "1")
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                {end}
            else:
                code = await asyncio.to_thread(lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                await broker.produce("orders", "2")
                assert len(broker.records("orders")) == 2
                directory = broker.data_dir
                assert directory.exists()
    finally:
        if pid == 0:  # as multiprocessing does: whoever closes the loop in a child ends the parent's
            os._exit(7)
    assert not directory.exists()
    print("child", code)

signal.alarm(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_child_leaves_the_block_of_a_coroutine_and_harms_nothing(end: str) -> None:
    said = run(ASYNC_BLOCK.format(end=ENDS[end][0]))
    assert (said.stdout, said.stderr) == ("child 7\n", ""), said


MULTIPROCESSING = """
import multiprocessing, os, signal, sys
import confluent_kafka
import kafkalite

def place_order(broker, number):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", str(number))
    assert producer.flush(20) == 0
    with kafkalite.Broker() as own:
        own.produce("orders", "of a broker of the child's own")
        assert len(own.records("orders")) == 1
    try:
        broker.records("orders")
    except RuntimeError as error:
        assert f"belongs to process {os.getppid()}" in str(error), error
    else:
        raise AssertionError("it has read the parent's files")

signal.alarm(100)
with kafkalite.Broker() as broker:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=place_order, args=(broker, number)) for number in range(3)]
    for each in children:
        each.start()
    for each in children:
        each.join()
    print([each.exitcode for each in children], len(broker.records("orders")))
"""


def test_children_of_multiprocessing_are_clients_and_have_brokers_of_their_own() -> None:
    said = run(MULTIPROCESSING)
    assert (said.stdout, said.stderr) == ("[0, 0, 0] 3\n", ""), said


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # Python 3.12 and later warn of every fork of a process with threads
    command = [
        sys.executable,
        "-W",
        "default",
        "-W",
        "ignore:This process:DeprecationWarning",
        "-c",
        script,
        *arguments,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S * 4, check=False)


USES: dict[str, Callable[[Broker], object]] = {
    "records": lambda broker: broker.records("orders"),
    "produce": lambda broker: broker.produce("orders", "x"),
    "server": lambda broker: broker.server,
    "groups": lambda broker: broker.groups,
    "crash": lambda broker: broker.faults.crash(),
    "advance": lambda broker: broker.clock.advance(days=1),
    "enter": lambda broker: broker.__enter__(),
    "asynchronous": lambda broker: broker.asynchronous.records("orders"),
}


@pytest.mark.parametrize("use", USES)
def test_a_child_that_uses_its_parents_broker_is_told(use: str) -> None:
    with Broker() as broker:
        said = said_by_child(lambda: str(USES[use](broker)))
    assert said.startswith(f"RuntimeError: this broker belongs to process {os.getpid()}, and this is process "), said


def test_a_child_knows_the_addresses_of_its_parents_broker() -> None:
    with Broker() as broker:
        expected = f"{broker.bootstrap_servers} {broker.port} {broker.cluster_id}"
        assert said_by_child(lambda: f"{broker.bootstrap_servers} {broker.port} {broker.cluster_id}") == expected
        client = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        client.produce("orders", "1")
        assert client.flush(DEADLINE_S) == 0


def test_a_child_that_uses_its_parents_cluster_is_told() -> None:
    with Cluster(1) as cluster:
        for use in (
            lambda: cluster.leader_of("orders", 0),
            lambda: cluster.kill(0),
            lambda: cluster.brokers[0].stop(),
            lambda: cluster.zookeeper.stop(),
        ):
            said = said_by_child(lambda use=use: str(use()))  # type: ignore[misc]
            assert f" belongs to process {os.getpid()}" in said, said


def test_a_broker_that_was_made_before_a_fork_has_data_of_its_own_in_each_child() -> None:
    broker = Broker()

    def name() -> str:
        with broker:
            broker.produce("orders", "1")
            return f"{broker.data_dir} {len(broker.records('orders'))}"

    with broker:
        own = str(broker.data_dir)
    directories = {said_by_child(name), said_by_child(name), f"{own} 1"}
    assert len(directories) == 3 and all(each.endswith(" 1") for each in directories), directories
