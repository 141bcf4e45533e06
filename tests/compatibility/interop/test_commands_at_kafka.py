"""`kafkalite topic`, `group`, `produce`, `consume` say and do the same at an Apache Kafka 3.9.1 and at a kafkalite.

pytest -m long tests/compatibility/interop/test_commands_at_kafka.py
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.cli.main import main
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

STORY = (
    "topic create orders --partitions 2 --config retention.ms=1000000",
    "topic create orders",
    "topic create orders --if-not-exists",
    "topic create a|b",
    "topic alter orders --partitions 3 --config retention.ms=2000000 --delete-config retention.bytes",
    "topic alter orders --partitions 1",
    "topic alter orders --config retention.ms=soon",
    "topic list --json",
    "READ",
    "group list --json",
    "group describe billing",
    "group describe --json",
    "group describe billing --state --json",
    "group describe billing --members",
    "group list --type classic --json",
    "group list --type consumer",
    "group reset billing --to-earliest",
    "group reset billing --to-offset 1 --execute",
    "group reset billing --shift-by -1 --topic orders:0 --execute",
    "group reset billing --to-datetime 1970-01-01T00:16:40+00:00",
    "group reset new --to-latest --topic orders --execute",
    "group describe new --json",
    "group reset '' --to-latest --topic orders:0 --execute",
    "group reset '\x1b[2Ja\nb\u202e' --to-latest --topic orders:0 --execute",
    "group list",
    "group list --json",
    "group describe ''",
    "group describe",
    "group describe --json",
    "group delete-offsets new --topic orders:1",
    "group delete-offsets nobody --topic orders:1",
    "group describe new",
    "group delete ''",
    "group delete new nobody",
    "group describe new",
    "LINES produce orders --format %T:%k=%v --compression zstd --header a=b",
    "LINES produce orders --partition 9",
    "consume orders --json --tail 200",
    "consume orders --json --tail 7",
    "consume orders --from 2 --partition 1 --format %p/%o:%k=%v|%h;",
    "consume orders --from 1970-01-01T00:33:20+00:00 --partition 0 --json",
    "consume nothing",
    "top topics --json --interval 0.01",
    "topic delete orders nothing",
    "topic list",
)
REASON = re.compile("(gets no more partitions|keeps its settings): .*")
"""The broker's own words, which for these differ, also between controllers of Kafka."""


def told(bootstrap: str, capsys: pytest.CaptureFixture[str], lines: Path) -> Iterator[str]:
    """Each command, its exit code, and what it prints."""
    lines.write_text("".join(f"{2_000_000 + number}:key-{number}={number}\n" for number in range(100)))
    for line in STORY:
        if line == "READ":
            write_and_read(bootstrap)
            continue
        capsys.readouterr()
        words = shlex.split(line.removeprefix("LINES "))
        more = ["--file", str(lines)] if line.startswith("LINES ") else []
        code = main([*words, *more, "--bootstrap", bootstrap])
        said = capsys.readouterr()
        text = REASON.sub(r"\1", said.out + said.err).replace(bootstrap, "HERE")
        yield f"$ {line} -> {code}\n{text}"


def write_and_read(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(9):
        producer.produce("orders", str(number), partition=number % 3, timestamp=1_000_000 + number)
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    left = 9
    while left:
        message = consumer.poll(1.0)
        left -= message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


def test_the_commands_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            kafka.start()
            by_kafka = list(told(f"127.0.0.1:{kafka.port}", capsys, tmp_path / "lines"))
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    with kafkalite.Broker() as broker:
        by_kafkalite = list(told(broker.bootstrap_servers, capsys, tmp_path / "lines"))
    assert "\n".join(by_kafkalite) == "\n".join(by_kafka)
