"""Clients come and go while Python's cyclic collector is off: prints what is left of each kind of visit, as JSON.

    python -m tests.system.soak.visits DIRECTORY

A process of its own, because objects are counted: other brokers in the process would be counted, too.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable

import confluent_kafka

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


def ours() -> Counter[str]:
    """The broker's own objects that the collector tracks, and the views into its receive memory."""
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(name for name in names if name == "builtins.memoryview" or name.startswith("kafkalite."))


def left_by(broker: kafkalite.Broker, visit: Callable[[str], None]) -> dict[str, int]:
    """How many objects of a kind are there after the visits that were not there before, if about one for each."""
    server = broker.server.server

    def come_and_go(times: int) -> None:
        for _ in range(times):
            visit(broker.bootstrap_servers)
        until(lambda: server.connection_count == 0, "the end of all connections")

    come_and_go(2)  # what is made once for all is there now
    gc.collect()
    gc.disable()
    before = ours()
    come_and_go(VISITS)
    left = {kind: count for kind, count in (ours() - before).items() if count >= VISITS // 2}
    gc.enable()
    return left


def main(directory: str) -> None:
    settings = {"group_initial_rebalance_delay_ms": 0, "log_cleaner_enable": False}
    with kafkalite.Broker(data_dir=directory, port=0, **settings) as broker:
        with wire.Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("written", 2)
            connection.create_topic("silent")
            for index in (0, 1):
                connection.produce(wire.produce_frame("written", index, record_batch(300, 100)))  # one for each visit
        print(json.dumps({visit.__name__: left_by(broker, visit) for visit in VISITORS}))


if __name__ == "__main__":
    main(sys.argv[1])
