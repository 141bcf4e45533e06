"""Clients from before Kafka 0.11, as they were published: message sets v0 and v1 on the wire, beside clients of today.

Kafka 0.8.2.2's Java producer (Produce 0) and SimpleConsumer (Fetch 0, ListOffsets 0, offsets committed with version 1);
kafka-python 1.4 as of 0.8.2 (Produce 0, Fetch 0), 0.9 (Produce 1, Fetch 1) and 0.10 (Produce 2, Fetch 2 and 3, message
format v1); kcat that does not ask. Each writes with every codec, and reads what it and confluent-kafka have written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.conftest import kcat_version
from tests.compatibility.interop.old_clients import KAFKA, old_java_program, python_with
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ECOSYSTEM = "Before 0.11"
HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4")
KAFKA_PYTHON = "1.4.7"
START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention

Row = tuple[str | None, str | None]  # key and value


def rows(codec: str, count: int = 25) -> list[Row]:
    return [(None if n % 3 else f"k{n}", f"{codec} {n} " + "ab" * (n % 40)) for n in range(count)]


class Today:
    """confluent-kafka, which writes and reads v2."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.settings = {"bootstrap.servers": bootstrap}
        self.topic = topic

    def produce(self, records: list[Row], codec: str) -> None:
        producer = Producer(self.settings | {"compression.type": codec, "linger.ms": 50, "enable.idempotence": True})
        for n, (key, value) in enumerate(records):
            producer.produce(self.topic, value, key, 0, timestamp=START_MS + n, headers=[("h", b"1")])
        assert producer.flush(30) == 0

    def consume(self, count: int, group: str) -> list[Any]:
        consumer = Consumer(self.settings | {"group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topic])
        found: list[Any] = []
        while len(found) < count:
            more = consumer.consume(count - len(found), 30)
            assert more, f"only {len(found)} of {count} records came"
            found += more
        consumer.close()
        return found


@pytest.fixture
def today(broker: Any, unique: Callable[[str], str]) -> Today:
    topic = unique("old")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    return Today(broker.bootstrap, topic)


def texts(messages: list[Any]) -> list[Row]:
    return [(m.key() and m.key().decode(), m.value() and m.value().decode()) for m in messages]


# Kafka 0.8.2.2


@pytest.fixture(scope="session")
def old_java() -> list[str]:
    return old_java_program("OldClient.java")


def test_the_java_clients_of_0_8_2(
    broker: Any, today: Today, old_java: list[str], run: Callable[..., str], proved: Any, unique: Callable[[str], str]
) -> None:
    proved(
        "Java producer, SimpleConsumer", KAFKA, "message format v0: written with every codec, read with "
        "confluent-kafka; the reverse; earliest and latest; offsets committed to the broker",
    )  # fmt: skip
    where = ["127.0.0.1", str(broker.port), today.topic]

    def old(verb: str, *arguments: object, typed: str = "") -> list[str]:
        return run([*old_java, verb, *where, *map(str, arguments)], 120, typed=typed).splitlines()

    want: list[Row] = []
    for codec in CODECS:
        records = rows(codec)
        offsets = old("produce", codec, typed="".join(f"{key or ''}\t{value}\n" for key, value in records))
        assert [int(offset) for offset in offsets] == list(range(len(want), len(want) + len(records)))
        want += records
        today.produce(rows(f"today {codec}"), codec)
        want += rows(f"today {codec}")
    found = today.consume(len(want), unique("g"))
    assert texts(found) == want
    assert {m.timestamp()[1] for m in found[:25]} == {-1}
    shown = [line.split("\t") for line in old("consume", len(want), 300_000)]
    assert [(int(offset), key, value) for offset, key, value in shown] == [
        (n, key or "-", value) for n, (key, value) in enumerate(want)
    ]
    assert old("consume", len(want), 1 << 20)[-1].split("\t")[0] == str(len(want) - 1)
    assert old("offsets") == ["0", str(len(want))]
    assert old("commit", unique("g"), 17)[0] == "0"


def test_a_fetch_size_that_is_too_small_is_told(
    broker: Any, today: Today, old_java: list[str], run: Callable[..., str], proved: Any
) -> None:
    """SimpleConsumer sees a part of a message, as from a broker of its age, and says what has to be done."""
    proved("SimpleConsumer", KAFKA, "a fetch size that is smaller than a message: it says so")
    today.produce([(None, "x" * 5000)], "none")
    where = ["127.0.0.1", str(broker.port), today.topic]
    said = run([*old_java, "consume", *where, "1", "1000"], 120, check=False)
    assert "MessageSizeTooLarge" in said


# kafka-python 1.4


@pytest.fixture(scope="session")
def old_python() -> str:
    """An interpreter with kafka-python 1.4 and the codecs."""
    return python_with(
        f"kafka-python-{KAFKA_PYTHON}", f"kafka-python=={KAFKA_PYTHON}", "lz4", "xxhash", "python-snappy"
    )


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10), (0, 10, 1)], ids=lambda v: ".".join(map(str, v)))
def test_kafka_python_1_4(
    version: tuple[int, ...],
    broker: Any,
    today: Today,
    old_python: str,
    run: Callable[..., str],
    proved: Any,
    unique: Callable[[str], str],
) -> None:
    spoken = ".".join(map(str, version))
    magic = 1 if version >= (0, 10) else 0
    proved(
        "kafka-python", KAFKA_PYTHON, f"api_version={spoken}, message format v{magic}: written with every codec, read "
        "with confluent-kafka; the reverse, in a group that commits",
    )  # fmt: skip

    def old(verb: str, typed: str = "", **more: Any) -> Any:
        task = {"bootstrap": broker.bootstrap, "topic": today.topic, "api_version": version} | more
        words = [old_python, HERE / "python" / "old_client.py", verb, json.dumps(task)]
        return json.loads(run(words, 120, typed=typed))

    want: list[Row] = []
    for codec in CODECS:
        records = rows(codec)
        lines = [json.dumps([key, value, START_MS + n if magic else None]) for n, (key, value) in enumerate(records)]
        offsets = old("produce", "\n".join(lines), codec=codec)
        assert offsets == list(range(len(want), len(want) + len(records)))
        want += records
        today.produce(rows(f"today {codec}"), codec)
        want += rows(f"today {codec}")
    found = today.consume(len(want), unique("g"))
    assert texts(found) == want
    assert [m.timestamp()[1] for m in found[:25]] == [START_MS + n if magic else -1 for n in range(25)]
    seen = old("consume", group=unique("g"), count=len(want))
    assert [(key, value) for _, _, key, value in seen["records"]] == want
    assert [offset for offset, *_ in seen["records"]] == list(range(len(want)))
    assert [time for _, time, *_ in seen["records"][:50]] == [START_MS + n % 25 if magic else None for n in range(50)]
    assert (seen["ends"], seen["committed"]) == ([0, len(want)], len(want))


# kcat


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_kcat_that_does_not_ask(
    version: str, today: Today, need: Callable[[str], str], run: Callable[..., str], proved: Any,
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    what = f"api.version.request=false, broker.version.fallback={version}: every codec, both ways"
    proved("kcat", "", what)
    pinned = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    kcat = [need("kcat"), "-b", today.settings["bootstrap.servers"], "-t", today.topic, "-p", "0", *pinned]
    proved("kcat", kcat_version(kcat[0]), what)
    want: list[Row] = []
    for codec in CODECS:
        records = [(key or "-", value) for key, value in rows(codec)]
        typed = "".join(f"{key}\t{value}\n" for key, value in records)
        run([*kcat, "-P", "-K", "\t", "-z", codec], typed=typed)
        today.produce(rows(f"today {codec}"), codec)
        want += [*records, *rows(f"today {codec}")]
    assert texts(today.consume(len(want), unique("g"))) == want
    lines = run([*kcat, "-C", "-J", "-q", "-e", "-o", "beginning"]).splitlines()
    assert [(one["key"], one["payload"]) for one in map(json.loads, lines)] == want
