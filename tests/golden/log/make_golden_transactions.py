"""Makes tests/golden/log/transactions-3.9.1: transactions of three producers that overlap, in a log of Apache Kafka
3.9.1 with small segments, and what its leader answered to read_committed fetches from each offset.

    python -m make_golden_transactions

Some transactions are aborted, one is ended by another producer with the same transactional id (a newer epoch), one goes
on over several segments, one is left open.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.reference import reference_kafka
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

GOLDEN = Path(__file__).parent / "transactions-3.9.1"
TIME_MS = 1_700_000_000_000
FETCH_VERSION = 12
FETCH_BYTES = (1, 250, 1 << 20)


class Writer:
    """A transactional producer that sends a batch at a time."""

    def __init__(self, bootstrap: str, name: str) -> None:
        settings = {"transactional.id": name, "linger.ms": 0, "transaction.timeout.ms": 900_000}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._name = name
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: str) -> None:
        self._producer.produce("money", f"{self._name} {value}", self._name, timestamp=TIME_MS)
        self._producer.flush(30)

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def fill(bootstrap: str) -> list[Writer]:
    """Returns the producers: one that is collected aborts its transaction."""
    settings = {
        "segment.bytes": "700", "index.interval.bytes": "150", "segment.index.bytes": "1200", "retention.ms": "-1",
        "segment.ms": "9000000000000",
    }  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("money", 1, 1, config=settings)])["money"].result(30)
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    anna, bert, carl = writers = [Writer(bootstrap, name) for name in ("anna", "bert", "carl")]

    def send_plain() -> None:
        plain.produce("money", "outside", "plain", timestamp=TIME_MS)
        plain.flush(30)

    for round_ in range(4):
        anna.begin(), bert.begin()
        anna.send(f"{round_} first"), bert.send(f"{round_} first")
        send_plain()
        anna.send(f"{round_} second")
        anna.abort() if round_ % 2 else anna.commit()
        carl.begin()
        carl.send(f"{round_}"), bert.send(f"{round_} second")
        carl.commit() if round_ % 2 else carl.abort()
        bert.abort()
    carl.begin()
    for number in range(12):
        carl.send(f"a long transaction, part {number}")
    anna.begin()
    anna.send("to be fenced")
    again = Writer(bootstrap, "anna")
    again.begin()
    again.send("after the other")
    carl.abort()
    again.commit()
    bert.begin()
    bert.send("never decided")
    send_plain()
    return [*writers, again]


def ask(bootstrap: str) -> list[list[Any]]:
    """For each offset and limit of bytes: (offset, limit, last stable offset, high watermark, bytes, aborted)."""
    told = []
    connection = BlockingClient(bootstrap, 30)
    offset, high_watermark = 0, 1
    while offset <= high_watermark:
        for limit in FETCH_BYTES:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[FetchTopic(topic="money", partitions=[wanted])]
            )
            data = connection.ask(request, FETCH_VERSION).responses[0].partitions[0]
            high_watermark = data.high_watermark
            aborted = [[txn.producer_id, txn.first_offset] for txn in data.aborted_transactions]
            told.append([offset, limit, data.last_stable_offset, high_watermark, len(data.records or b""), aborted])
        offset += 1
    return told


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        properties = {
            "transaction.state.log.num.partitions": "1", "transaction.max.timeout.ms": "900000",
            "log.index.size.max.bytes": "1200",
        }  # fmt: skip
        with reference_kafka("3.9.1", properties=properties, home=home) as kafka:
            writers = fill(kafka.bootstrap)
            time.sleep(1)
            told = ask(kafka.bootstrap)
        assert writers
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(home / "data" / "money-0", GOLDEN / "money-0")
        (GOLDEN / "fetches.json").write_text("[\n" + ",\n".join(json.dumps(one) for one in told) + "\n]\n")
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
