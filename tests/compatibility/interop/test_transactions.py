"""Transactions of every library that has them: the same stories for all, each library behind a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from kafkalite.coordinator.transaction.transaction_state import read_key, read_value
from kafkalite.record.batch import iter_batches
from kafkalite.record.record import read_records
from tests.compatibility.interop import golang, node
from tests.compatibility.interop.golang import FIRST_BUILD_S, Go
from tests.compatibility.interop.java_tools import java_command
from tests.compatibility.interop.node import Node
from tests.compatibility.interop.transaction_stories import SETTINGS, STORIES, Scene, scene

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]
ECOSYSTEM = "Transactions"
BROKER_SETTINGS = SETTINGS
HERE = Path(__file__).parent


class Library(NamedTuple):
    """A client library: its name and version in the table, and what makes its command."""

    client: str
    version: str
    command: Callable[[Any, Any], list[str]]
    notices_time_outs: bool = True


def java(version: str) -> Library:
    program = str(HERE / "java" / "Transactor.java")
    return Library("kafka-clients", version, lambda need, cache: [*java_command(version), program])


def go(client: str, program: str, module: str, mod_file: str = "go.mod") -> Library:
    def command(need: Any, cache: Any) -> list[str]:
        return [Go(need("go"), cache("go")).build(program, mod_file)]

    return Library(client, golang.pinned(program, module, mod_file), command)


def javascript(client: str, program: str, module: str) -> Library:
    def command(need: Any, cache: Any) -> list[str]:
        return Node(need("node"), need("npm"), cache("node")).command(program)

    return Library(client, node.pinned(program, module), command)


def python(client: str, program: str, version: str) -> Library:
    return Library(client, version, lambda need, cache: [sys.executable, str(HERE / "python" / program)])


CONFLUENT_GO = "github.com/confluentinc/confluent-kafka-go"
LIBRARIES = {
    "java-2.7": java("2.7.2"),
    "java-3.9": java("3.9.1"),
    "java-4.1": java("4.1.0"),
    "franz": go("franz-go", "franz", "github.com/twmb/franz-go"),
    "sarama": go("sarama", "sarama", "github.com/IBM/sarama"),
    "librdkafka-1.4": go("confluent-kafka-go", "librdkafka", CONFLUENT_GO, "go-1.4.2.mod")._replace(
        notices_time_outs=False
    ),
    "librdkafka-1.9": go("confluent-kafka-go", "librdkafka", CONFLUENT_GO),
    "kafkajs": javascript("KafkaJS", "kafkajs", "kafkajs"),
    "node-rdkafka": javascript("node-rdkafka", "rdkafka", "node-rdkafka"),
    "confluent": python("confluent-kafka", "confluent_transactor.py", confluent_kafka.__version__),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


@pytest.fixture
def meet(library: Library, broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Scene]]:
    """meet("what is run") is the scene that decides this row."""
    proved(library.client, library.version, "")
    with scene(library.command(need, cache), broker) as found:
        found.notices_time_outs = library.notices_time_outs

        def meet(what: str) -> Scene:
            proved(library.client, library.version, what)
            return found

        yield meet


BROKER_DIES = next(what for what in STORIES if "broker is killed" in what)
LEFT_OUT = {
    ("KafkaJS", BROKER_DIES): "a consumer that finds no coordinator stops for good",
    ("confluent-kafka", BROKER_DIES): "it comes to a stop beside Apache Kafka 3.9.1, too",
}


@pytest.mark.parametrize("what", STORIES, ids=lambda what: what.split(",")[0].replace(" ", "-"))
def test_story(meet: Callable[[str], Scene], library: Library, what: str) -> None:
    found = meet(what)
    if (library.client, what) in LEFT_OUT:
        pytest.skip(LEFT_OUT[library.client, what])
    STORIES[what](found)


@pytest.mark.parametrize(("version", "transaction_version"), [("3.9.1", 0), ("4.1.0", 2)])
def test_java_takes_the_version_of_transactions_that_it_knows(
    version: str, transaction_version: int, broker: Any, proved: Any, need: Any, cache: Any
) -> None:
    """With version 2 every end of a transaction raises the epoch, and Produce adds the partitions (KIP-890)."""
    library = java(version)
    proved(library.client, version, f"transaction.version={transaction_version} by the coordinator's records")
    with scene(library.command(need, cache), broker) as found:
        topic = found.topic("version")
        producer = found.transactor(topic)
        for end in ("commit", "abort", "commit"):
            producer.transaction(topic, "a", "b", end=end)

    states = [
        read_value(record.value)
        for log_dir in broker.log_dirs.values()
        for path in sorted(log_dir.glob("__transaction_state-*/*.log"))
        for _, batch in iter_batches(memoryview(bytearray(path.read_bytes())))
        for record in read_records(batch)
        if record.value and read_key(record.key or b"") == topic
    ]
    epochs = sorted({state.producer_epoch for state in states})
    assert states[-1].client_version == transaction_version
    assert epochs == ([0, 1, 2, 3] if transaction_version == 2 else [0])
