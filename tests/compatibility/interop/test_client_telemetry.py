"""Clients that push metrics (KIP-714): Java's of Kafka 4.3, and librdkafka's; /metrics shows them."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = {"metrics.listener": "127.0.0.1:0"}


def metric_lines(broker: BrokerProcess, client: str) -> list[str]:
    address = re.search(r"metrics are on (\S+)", broker.log_text())
    assert address
    with urllib.request.urlopen(address[1]) as answer:
        text = answer.read().decode()
    return [line for line in text.splitlines() if line.startswith("kafkalite_client_metric") and client in line]


@pytest.fixture
def tools(broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    tools = tools_4_3(broker.bootstrap)
    tools("ClientMetricsCommand", "--alter", "--name", "all", "--metrics", "*", "--interval", 500)
    return tools


def test_javas_clients_push(
    broker: BrokerProcess,
    tools: JavaTools,
    proved: Callable[[str, str, str], None],
    until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    proved(
        "kafka-clients and its tools",
        "4.3.0",
        "client metrics (KIP-714): a producer and a consumer push, /metrics shows",
    )
    tools.create_topic("pushed")
    tools.produce("pushed", "a\nb\n")
    words = ["--topic", "pushed", "--from-beginning", "--command-property", "client.id=java-reader"]
    reader = tools.start("ConsoleConsumer", *words, output=tmp_path / "consumer")
    words = ["--topic", "pushed", "--num-records", 100_000, "--throughput", 20, "--record-size", 10]
    writer = tools.start(
        "ProducerPerformance", *words, "--command-property", "client.id=java-writer", output=tmp_path / "producer"
    )
    try:
        for client, metric in (
            ("java-reader", "org.apache.kafka.consumer."),
            ("java-writer", "org.apache.kafka.producer."),
        ):
            until(lambda: any(metric in line for line in metric_lines(broker, client)), f"metrics of {client}")  # noqa: B023
    finally:
        reader.kill()
        writer.kill()


def test_librdkafka_pushes(
    broker: BrokerProcess, tools: JavaTools, proved: Callable[[str, str, str], None], until: Callable[..., Any]
) -> None:
    version = confluent_kafka.__version__
    proved("confluent-kafka", version, "client metrics (KIP-714): a producer pushes, /metrics shows")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "rdkafka-writer"})

    def pushed() -> bool:
        producer.produce("pushed-by-c", b"x")
        producer.poll(0.1)
        return any("org.apache.kafka.producer." in line for line in metric_lines(broker, "rdkafka-writer"))

    until(pushed, "metrics of librdkafka")
    producer.flush(10)
