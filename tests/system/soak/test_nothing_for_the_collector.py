"""Objects of clients that have left are freed at once, without Python's cyclic collector.

Objects in a circle stay until the collector comes by, which in a broker at rest can be hours; with them stays what they
refer to, and a frame of a hundred bytes holds a receive slab of 256 KiB. Memory then grows with clients that come and
go (docs/endurance.md). So the collector is switched off here, and nothing may be there for it.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

import kafkalite
from bench import wire
from bench.records import record_batch
from tests.support.wait import DEADLINE_S, until

VISITS = 20


def ask_only(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        connection.brokers()


def write(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        for index in range(4):
            connection.produce(wire.produce_frame("written", index % 2, record_batch(3, 300)))


def leave_in_the_midst_of_a_frame(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        connection.brokers()
        connection.socket.sendall(wire.produce_frame("written", 0, record_batch(1, 5_000))[:-1])


def read(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        for _ in range(4):
            connection.exchange(wire.fetch_frame("written", 0, 0, 1 << 20, max_wait_ms=0))


def wait_in_vain(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        for _ in range(4):
            connection.exchange(wire.fetch_frame("silent", 0, 0, 1 << 20, max_wait_ms=1))


def leave_while_waiting(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        connection.exchange(wire.fetch_frame("silent", 0, 0, 1 << 20, max_wait_ms=1))
        connection.socket.sendall(wire.fetch_frame("silent", 0, 0, 1 << 20, max_wait_ms=60_000))


def join_a_group_and_leave(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "visitors", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["written"])
    assert consumer.consume(1, DEADLINE_S), "a record of a topic that has some"
    consumer.close()


VISITORS = [
    ask_only, write, leave_in_the_midst_of_a_frame, read, wait_in_vain, leave_while_waiting, join_a_group_and_leave,
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalite.Broker]:
    directory: Path = tmp_path_factory.mktemp("broker")
    settings = {
        "group_initial_rebalance_delay_ms": 0,
        "log_cleaner_enable": False,
    }  # whose scan would count its logs meanwhile
    with kafkalite.Broker(data_dir=directory, port=0, **settings) as broker:
        with wire.Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("written", 2)
            connection.create_topic("silent")
            for index in (0, 1):
                connection.produce(wire.produce_frame("written", index, record_batch(300, 100)))  # one for each visit
        yield broker


@pytest.fixture
def no_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    if was_enabled:
        gc.enable()


def ours() -> Counter[str]:
    """The broker's own objects that the collector tracks, and the views into its receive memory.

    Without the cleaner's: this broker has none, and those of other tests in this process scan when it pleases them.
    """
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(
        name
        for name in names
        if name == "builtins.memoryview"
        or (name.startswith("kafkalite.") and not name.startswith("kafkalite.cleaner."))
    )


@pytest.mark.parametrize("visit", VISITORS, ids=lambda visit: visit.__name__)
def test_who_came_and_went_left_no_circles(
    broker: kafkalite.Broker, no_collector: None, visit: Callable[[str], None]
) -> None:
    server = broker._require().server
    visits = itertools.repeat(visit)

    def come_and_go(times: int) -> None:
        for one in itertools.islice(visits, times):
            one(broker.bootstrap_servers)
        until(lambda: server.connection_count == 0, "the end of all connections")

    come_and_go(2)  # what is made once for all is there now
    gc.collect()
    gc.disable()
    before = ours()
    come_and_go(VISITS)
    left = {kind: count for kind, count in (ours() - before).items() if count >= VISITS // 2}
    assert left == {}, f"after {VISITS} visits"
