"""Topics, messages and groups that the pages are shown with: ordinary, compacted, transactional, and hostile."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.hostile_records import HostileRecord

LARGE_BYTES = 10_000_000
NAMES = ("orders", "payments", "shipments.v2", "clickstream", "inventory", "emails-to-send", "fraud.scores", "sessions")
HOSTILE = (
    b"<script>document.title='run'</script>",
    b"<img src=x onerror=\"document.title='run'\">",
    b"\"'><svg/onload=document.title='run'>",
    b"javascript:document.title='run'",
    b"{{constructor.constructor('document.title=1')()}}",
    b"\x00\x01\x02\x1b[31mred\x1b[0m\x07\x7f",
    b"\xff\xfe\xc3\x28\xed\xa0\x80 broken",
    "\u202egnirts desrever\u202c \u2066x\u2069 \ufeff".encode(),
    b"[" * 200_000 + b"]" * 200_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"big": 12345678901234567890123, "same": 1, "same": 2, "e": 1e400}',
    b'{"__proto__": {"polluted": true}, "constructor": 1}',
    b"a" * 100_000 + "\u0301".encode() * 50_000,
    b"",
)
"""Nothing of this may ever become the title of the page."""


class World:
    """The topics, groups and records on the broker, and how they came there."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._random = random.Random(20)

    def fill(self) -> None:
        self.create(*NAMES, partitions=6)
        self.create("users", partitions=2, **{"cleanup.policy": "compact", "segment.bytes": "65536"})
        self.create("hostile", "large", "scratch", "to-delete", "to-empty", "to-grow", "transfers")
        self._write_orders()
        self._write_users()
        self._write_hostile()
        self._write_transfers()
        for name in ("billing", "search-indexer", "to-reset", "to-remove", "<b>odd</b> & ../group"):
            self.read("orders", name, self._random.randrange(100, 1000))

    def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        wanted = [NewTopic(name, partitions, 1, config=configs) for name in names]
        for future in self.admin.create_topics(wanted, operation_timeout=60).values():
            future.result(60)

    def produce(self, topic: str, *values: bytes) -> None:
        producer = self._producer()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def produce_hostile(self, topic: str, records: Iterable[HostileRecord]) -> None:
        producer = self._producer(**{"message.max.bytes": 20_000_000})
        for one in records:
            producer.produce(topic, one.value, one.key, headers=[one.header])
            producer.poll(0)
        assert producer.flush(120) == 0

    def _producer(self, **settings: object) -> Producer:
        """One that complains of every record that the broker refused."""

        def delivered(error: KafkaError | None, _record: object) -> None:
            assert error is None, error

        return Producer({"bootstrap.servers": self.bootstrap, "on_delivery": delivered} | settings)

    def read(self, topic: str, group: str, offset: int) -> None:
        """A group that has committed, and has no members."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(topic, partition, min(offset, 50)) for partition in range(6)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "looks"})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        finally:
            consumer.close()
        return low, high

    def _write_orders(self) -> None:
        producer = self._producer(**{"compression.type": "zstd", "linger.ms": 20})
        for number in range(3000):
            topic = "orders" if number % 3 else self._random.choice(NAMES)
            headers = {"trace-id": f"{self._random.getrandbits(64):016x}", "source": "web"}
            producer.produce(topic, json.dumps(self._order(number)), key=f"C{number % 97:05d}", headers=headers)
        for topic in ("to-delete", "to-empty", "to-grow"):
            for number in range(10):
                producer.produce(topic, f"record {number}")
        assert producer.flush(60) == 0

    def _order(self, number: int) -> dict[str, object]:
        items = [{"sku": f"A-{self._random.randrange(900):03d}", "count": 1 + number % 4}]
        customer = f"C{number % 97:05d}"
        return {"order": number, "customer": customer, "total": round(self._random.random() * 400, 2), "items": items}

    def _write_users(self) -> None:
        producer = self._producer(**{"batch.size": 16_000})  # several segments, each larger than a batch
        for number in range(4000):
            name = None if number % 50 == 0 else json.dumps({"name": f"user {number}", "visits": number})
            producer.produce("users", name, key=f"user-{number % 60}")
        assert producer.flush(60) == 0

    def _write_hostile(self) -> None:
        producer = self._producer(**{"message.max.bytes": 20_000_000})
        for value in HOSTILE:
            short = value[:200]
            producer.produce("hostile", value[:900_000], key=short, headers=[("<b>name</b>", short)])
        self.create("huge", **{"max.message.bytes": "20000000"})
        producer.produce("huge", b'{"x": "' + b"y" * LARGE_BYTES + b'"}', key=b"ten megabytes")
        assert producer.flush(60) == 0

    def _write_transfers(self) -> None:
        """A transaction that was committed, one that was aborted."""
        producer = self._producer(**{"transactional.id": "transfers"})
        producer.init_transactions(60)
        for how in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for number in range(5):
                producer.produce("transfers", f"{how.__name__} {number}")
            assert producer.flush(60) == 0  # an abort would throw away what was not sent yet
            how(60)
