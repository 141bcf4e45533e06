"""Brokers stop in order under the load of stock clients with their own defaults: no produce fails, nothing is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka
import pytest

from kafkalite.testing import Cluster
from tests.support.replication.live_cluster import EVERY, SETTINGS, await_equal_logs, create_topic, read_all
from tests.support.wait import DEADLINE_S, until

PARTITIONS = 3


class SteadyProducer:
    """Sends a number after the other, each to the next partition, from a thread of its own. `acknowledged` is the
    offset of each by its partition."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.failures: list[Any] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            self.send(number % PARTITIONS, b"%d" % number)
            number += 1
            self._done.wait(0.002)
        self.flush()

    def send(self, partition: int, value: bytes) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        raise NotImplementedError


class SteadyConfluent(SteadyProducer):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._client = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def send(self, partition: int, value: bytes) -> None:
        self._client.produce("t", value, partition=partition, on_delivery=self._delivered)
        self._client.poll(0)

    def flush(self) -> None:
        until(lambda: self._client.flush(1) == 0, "the answers to all records")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.append((message.partition(), message.offset(), message.value()))


class SteadyKafkaPython(SteadyProducer):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._client = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")

    def send(self, partition: int, value: bytes) -> None:
        sent = self._client.send("t", value, partition=partition)
        sent.add_callback(lambda told: self.acknowledged.append((told.partition, told.offset, value)))
        sent.add_errback(self.failures.append)

    def flush(self) -> None:
        self._client.flush(DEADLINE_S)
        self._client.close()


@pytest.mark.parametrize("client", [SteadyConfluent, SteadyKafkaPython])
def test_all_brokers_restart_in_turn_and_no_produce_fails(client: Callable[[str], SteadyProducer]) -> None:
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[(0, 1, 2), (1, 2, 0), (2, 0, 1)])
        with client(cluster.bootstrap_servers) as producer:
            for number in EVERY:
                _await_progress(producer)
                cluster.stop(number)
                _await_progress(producer)
                cluster.start(number)
                for partition in range(PARTITIONS):
                    cluster.wait_for_isr("t", partition, EVERY)
            _await_progress(producer)
        assert not producer.failures
        for partition in range(PARTITIONS):
            await_equal_logs(cluster, "t", partition, EVERY)
            content = read_all(cluster, "t", partition)
            told = {offset: value for where, offset, value in producer.acknowledged if where == partition}
            assert told.items() <= content.items()
            assert len(set(content.values())) == len(told), "everything was acknowledged"


def _await_progress(producer: SteadyProducer) -> None:
    before = len(producer.acknowledged)
    until(lambda: len(producer.acknowledged) >= before + 50, lambda: f"progress; {producer.failures[:3]}")
