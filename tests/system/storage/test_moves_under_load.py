"""A partition moves between directories, again and again, while stock clients write and read it."""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer

from kafkalite import Broker
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.support.wait import DEADLINE_S, until

MOVES = 8


class Directories:
    """Asks where the one partition of `orders` is, and moves it."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def found(self, name: str) -> list[tuple[str, bool]]:
        answer = self._client.ask(DescribeLogDirsRequest(topics=None), 4)
        return [
            (each.log_dir, one.is_future_key)
            for each in answer.results
            for topic in each.topics
            if topic.name == name
            for one in topic.partitions
        ]

    def move(self, path: str) -> None:
        wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])])
        answer = self._client.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
        assert answer.results[0].partitions[0].error_code == 0
        until(lambda: self.found("orders") == [(path, False)], lambda: f"orders-0 in {path}: {self.found('orders')}")


def test_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("one", "two")]
    with Broker(log_dirs=",".join(places), log_segment_bytes=20_000) as broker:
        broker.create_topic("orders")
        written: list[bytes] = []
        is_over = threading.Event()
        all_is_written = threading.Event()

        def delivered(error: object, message: Message) -> None:
            if error is None:
                written.append(message.value() or b"")

        def write() -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
            number = 0
            try:
                while not is_over.is_set():
                    for _ in range(20):
                        producer.produce("orders", b"%d" % number, on_delivery=delivered)
                        number += 1
                    producer.poll(0.002)
                producer.flush(DEADLINE_S)
            finally:
                all_is_written.set()

        read: list[bytes] = []

        def consume() -> None:
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            while not all_is_written.is_set() or len(read) < len(written):
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    read.append(message.value() or b"")
            consumer.close()

        threads = [threading.Thread(target=work) for work in (write, consume)]
        for thread in threads:
            thread.start()
        try:
            with BlockingClient(broker.bootstrap_servers, DEADLINE_S) as client:
                directories = Directories(client)
                ((here, _),) = directories.found("orders")
                for _ in range(MOVES):
                    here = places[here == places[0]]
                    directories.move(here)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert read == written == [b"%d" % number for number in range(len(written))]
