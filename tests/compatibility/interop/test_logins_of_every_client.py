"""Seven stock clients and every way to log in, or to be refused: they do what docs/logins.md says, and say the same at
an Apache Kafka 3.9.1 with the same settings."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.config.broker_config import BrokerConfig
from tests.compatibility.clients.login_clients import CLIENTS, Login, LoginClient
from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.java_tools import java_command
from tests.compatibility.interop.login_page import WORKS, LoginPage
from tests.compatibility.interop.login_program import LoginProgram
from tests.compatibility.interop.login_scenes import EXPLAINED, REFUSALS, WAYS, Site
from tests.compatibility.interop.node import Node
from tests.compatibility.interop.node import pinned as pinned_by_npm
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

JAVA = Path(__file__).parent / "java" / "LoginClient.java"
NAMES = {
    "kafka-clients 3.9.1": "3.9.1",
    "kafka-clients 4.1.0": "4.1.0",
    **{name: version(name) for name in CLIENTS},
    "franz-go": pinned("franz", "github.com/twmb/franz-go"),
    "sarama": pinned("sarama", "github.com/IBM/sarama"),
    "KafkaJS": pinned_by_npm("kafkajs", "kafkajs"),
}
PAGE = ROOT / "docs" / "logins.md"
VALUE = "hello"

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(name: str, need: Callable[[str], str], cache: Callable[[str], Path]) -> Iterator[LoginClient]:
    if name in CLIENTS:
        yield CLIENTS[name]
        return
    if name.startswith("kafka-clients"):
        words = [*java_command(NAMES[name]), str(JAVA)]
    elif name == "KafkaJS":
        words = Node(need("node"), need("npm"), cache("node")).command("kafkajs")
    else:
        words = [Go(need("go"), cache("go")).build(name.partition("-")[0])]
    with LoginProgram([*words, "login", "{}"]) as program:
        yield program


@pytest.fixture(scope="module")
def at_kafkalite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("kafkalite")
    site = Site(home / "site")
    own = {"log.dirs": str(home / "data"), "group.initial.rebalance.delay.ms": "0"}
    with kafkalite.Broker(BrokerConfig.load(site.settings() | own)):
        site.admit()
        yield site


@pytest.fixture(scope="module")
def at_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("kafka")
    site = Site(home / "site")
    with ExitStack() as stack:
        try:
            kafka = stack.enter_context(zookeeper_kafka(home / "kafka", [home / "data"]))
            kafka.settings |= site.settings()
            kafka.port = int(site.bootstrap.rpartition(":")[2])
            kafka.start()
        except ReferenceUnavailable as reason:
            pytest.skip(str(reason))
        site.admit()
        yield site


@pytest.fixture(scope="module")
def page() -> LoginPage:
    return LoginPage(PAGE, [name if name.endswith(of) else f"{name} {of}" for name, of in NAMES.items()])


def attempt(client: LoginClient, site: Site, login: Login) -> str:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    try:
        values = client.exchange(login, topic, VALUE)
    except client.failures as error:
        return without_chance(client.words_of(error))
    assert values == [VALUE.encode()]
    return WORKS


def without_chance(words: str) -> str:
    """Without ports, times, dates, and what differs between builds of OpenSSL and Node."""
    words = re.sub(r"\[\('127\.0\.0\.1', \d+, [^]]*\]|127\.0\.0\.1:\d+(/bootstrap)?", "BROKER", words)
    words = re.sub(r" \(after \d+ms in state \w+\)|\d+/\d+ (?=brokers are down)|orders-[0-9a-f]{8} ", "", words)
    words = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "...", words)
    words = re.sub(r"\b[0-9A-F]{12,}:error:[0-9A-F]{8}|error:[0-9A-F]{8}", "error", words)
    words = re.sub(r":\.\./\S+:\d+(?=:)", "", words)
    return " ".join(words.replace("|", "/").split())


def column(page: LoginPage, name: str) -> str:
    return page.clients[list(NAMES).index(name)]


@pytest.mark.parametrize("scene", WAYS | REFUSALS)
def test_a_client_logs_in(
    scene: str, name: str, client: LoginClient, at_kafkalite: Site, page: LoginPage, request: pytest.FixtureRequest
) -> None:
    cell = attempt(client, at_kafkalite, (WAYS | REFUSALS)[scene](at_kafkalite))
    assert (cell == WORKS) is (scene in WAYS), cell
    if request.config.getoption("--write-compatibility"):
        page.write(scene, column(page, name), cell)
    assert cell == page.cell(scene, column(page, name))


@pytest.mark.parametrize("scene", WAYS | REFUSALS)
def test_it_says_the_same_at_apache_kafka(
    scene: str, name: str, client: LoginClient, at_kafka: Site, page: LoginPage
) -> None:
    cell = attempt(client, at_kafka, (WAYS | REFUSALS)[scene](at_kafka))
    differs = scene in EXPLAINED and name in EXPLAINED[scene].clients
    assert (cell == page.cell(scene, column(page, name))) is not differs, cell
