"""A broker at work, for the pictures: producers whose rate goes up and down, and a group that follows them slowly."""

from __future__ import annotations

import json
import math
import threading
import time

from confluent_kafka import Consumer, Producer

TOPICS = ("orders", "payments", "clickstream", "inventory")
MEMBERS = 2


class Bustle:
    """Between `with` and its end, records are written and read by threads."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        works = [self._write, *[self._read] * MEMBERS]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Bustle:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def go_on(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "client.id": "shop", "linger.ms": 5})
        number = 0
        while not self._over.wait(0.05):
            for _ in range(int(12 + 8 * math.sin(time.monotonic() / 9))):
                number += 1
                order = {"order": number, "customer": f"C{number % 97:05d}", "total": number % 400 / 4, "paid": True}
                producer.produce(TOPICS[number % len(TOPICS)], json.dumps(order), key=f"C{number % 97:05d}")
        producer.flush(30)

    def _read(self) -> None:
        settings = {"group.id": "billing", "client.id": "billing-service", "auto.commit.interval.ms": 1000}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"} | settings)
        consumer.subscribe(["orders", "payments"])
        while not self._over.is_set():
            consumer.consume(60, timeout=0.5)
            self._over.wait(0.4)
        consumer.close()
