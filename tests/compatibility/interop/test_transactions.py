"""Transactions of every library that has them: the same stories for all, each library behind a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

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
    with scene(library.command(need, cache), broker.bootstrap) as found:
        found.notices_time_outs = library.notices_time_outs

        def meet(what: str) -> Scene:
            proved(library.client, library.version, what)
            return found

        yield meet


@pytest.mark.parametrize("what", STORIES, ids=lambda what: what.split(",")[0].replace(" ", "-"))
def test_story(meet: Callable[[str], Scene], what: str) -> None:
    STORIES[what](meet(what))
