"""Every fault and five stock clients of three languages: they do what docs/faults.md says, and, where an Apache Kafka
3.9.1 can be brought to give the same error, they do the same there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from tests.compatibility.clients.faulted_clients import CLIENTS, FaultedClient
from tests.compatibility.interop.fault_scenes import COMPARED, SCENES
from tests.compatibility.interop.fault_stages import SETTINGS, KafkaliteStage, KafkaStage
from tests.compatibility.interop.fault_table import FaultTable
from tests.compatibility.interop.faulted_program import FaultedProgram
from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.java_tools import java_command
from tests.compatibility.interop.kraft_kafka import kraft_kafka
from tests.support.places import ROOT

JAVA = "3.9.1"
SOURCE = Path(__file__).parent / "java" / "FaultedClient.java"
NAMES = {
    "java": f"kafka-clients {JAVA}",
    "franz": f"franz-go {pinned('franz', 'github.com/twmb/franz-go')}",
    **{name: f"{name} {version(name)}" for name in CLIENTS},
}
PAGE = ROOT / "docs" / "faults.md"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(name: str, need: Callable[[str], str], cache: Callable[[str], Path]) -> Iterator[FaultedClient]:
    if name in CLIENTS:
        yield CLIENTS[name]
        return
    words = [*java_command(JAVA), str(SOURCE)] if name == "java" else [Go(need("go"), cache("go")).build("franz")]
    with FaultedProgram([*words, "faulted"]) as program:
        yield program


@pytest.fixture(scope="module")
def kafkalite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaliteStage]:
    stage = KafkaliteStage(tmp_path_factory.mktemp("kafkalite"))
    stage.broker.start()
    try:
        yield stage
        assert stage.broker.stop() == 0
    finally:
        stage.broker.kill()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaStage]:
    home = tmp_path_factory.mktemp("kafka")
    try:
        with kraft_kafka(home, [home / "data"], version=JAVA) as broker:
            broker.settings.update(SETTINGS | AUTHORIZER)
            broker.start()
            yield KafkaStage(broker, home / "data")
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def table() -> FaultTable:
    return FaultTable(PAGE, list(NAMES.values()))


@pytest.mark.parametrize("scene", SCENES)
def test_a_client_and_a_fault(
    scene: str, name: str, client: FaultedClient, kafkalite: KafkaliteStage, table: FaultTable,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    told = SCENES[scene]
    topic = kafkalite.topic()
    if told.is_filled:
        kafkalite.fill(topic)
    with kafkalite.faults(topic, told.faults):
        cell = told.act(client, kafkalite, topic)
    if request.config.getoption("--write-compatibility"):
        table.write(scene, NAMES[name], cell)
    assert cell == table.cell(scene, NAMES[name])


@pytest.mark.parametrize("scene", COMPARED)
def test_it_does_the_same_on_apache_kafka(
    scene: str, name: str, client: FaultedClient, kafka: KafkaStage, table: FaultTable
) -> None:
    told = SCENES[scene]
    topic = kafka.topic(told.settings)
    if told.is_filled:
        kafka.fill(topic)
    if told.on_kafka is not None:
        told.on_kafka(kafka, topic)
    assert told.act(client, kafka, topic) == table.cell(scene, NAMES[name])
