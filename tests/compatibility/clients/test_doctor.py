"""The settings that `kafkalite doctor` prints, with the password and files put in, as stock clients use them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient

import kafkalite
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import parse_properties, read_properties
from kafkalite.inspection.doctor.client_properties import CLIENTS, client_properties
from kafkalite.inspection.doctor.exposure import endpoints_of
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.token_server import TokenServer, token_server
from tests.support.wait import DEADLINE_S

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAYS = [
    ("PLAINTEXT", None), ("SSL", None),
    *((protocol, each) for protocol in PROTOCOLS[2:] for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
]  # fmt: skip
USER, SECRET = 'a\\li"ce', 'wonder"\\land'


class Scene:
    """A broker with a listener of each protocol, of which SSL asks for certificates."""

    def __init__(self, path: Path) -> None:
        authority = Authority()
        self.path = path
        self.client_pem = authority.identify("alice", ()).write(path / "client.pem")
        users = 'user_admin="x"'
        properties = {
            "listeners": ",".join(f"{each}://127.0.0.1:{free_port()}" for each in PROTOCOLS),
            "log.dirs": str(path / "data"),
            "ssl.keystore.location": authority.identify().write(path / "broker.pem"),
            "ssl.truststore.location": authority.write(path / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": f"{MODULE} {users};" for each in PROTOCOLS[2:]},
        }
        self.file = path / "server.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def printed(self, capsys: pytest.CaptureFixture[str], kind: str, protocol: str, mechanism: str | None) -> str:
        name = "admin" if mechanism == "PLAIN" else USER
        secret = "x" if mechanism == "PLAIN" else SECRET
        options = ["--listener", protocol, "--client", kind, "--user", name]
        assert main(["doctor", str(self.file), *options, *(["--mechanism", mechanism] if mechanism else [])]) == 0
        text = capsys.readouterr().out.replace("CLIENT.pem", self.client_pem)
        if kind == "librdkafka":
            return text.replace("PASSWORD", secret)
        backslashes = 4 if kind == "java" else 2
        quoted = secret.replace("\\", "\\" * backslashes).replace('"', "\\" * (backslashes // 2) + '"')
        return text.replace("PASSWORD", quoted)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("doctor"))
    before = sys.stdin
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            sys.stdin = io.StringIO(f"{SECRET}\n")
            add = ["user", "add", USER, "--mechanism", mechanism, "--password-file", "-", "--config", str(scene.file)]
            assert main(add) == 0
    finally:
        sys.stdin = before
    with kafkalite.Broker(BrokerConfig.load(read_properties(str(scene.file)))):
        yield scene


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_librdkafka(scene: Scene, capsys: pytest.CaptureFixture[str], protocol: str, mechanism: str | None) -> None:
    text = scene.printed(capsys, "librdkafka", protocol, mechanism)
    settings: dict[str, Any] = dict(line.split("=", 1) for line in text.splitlines())
    producer = confluent_kafka.Producer(settings)
    producer.produce("orders", b"x")
    assert producer.flush(DEADLINE_S) == 0
    assert "orders" in AdminClient(settings).list_topics(timeout=DEADLINE_S).topics


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python(scene: Scene, capsys: pytest.CaptureFixture[str], protocol: str, mechanism: str | None) -> None:
    names: dict[str, Any] = {}
    exec(scene.printed(capsys, "kafka-python", protocol, mechanism), names)
    producer = kafka.KafkaProducer(**names["settings"])
    producer.send("orders", b"x").get(DEADLINE_S)
    producer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_our_own_commands(
    scene: Scene, capsys: pytest.CaptureFixture[str], protocol: str, mechanism: str | None
) -> None:
    text = scene.printed(capsys, "java", protocol, mechanism)
    file = scene.path / "client.properties"
    file.write_text(text)
    address = parse_properties(text)["bootstrap.servers"]
    assert main(["health", "--bootstrap", address, "--command-config", str(file)]) == 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_java(scene: Scene, capsys: pytest.CaptureFixture[str], version: str) -> None:
    java_command(version)
    for protocol, mechanism in WAYS:
        text = scene.printed(capsys, "java", protocol, mechanism)
        file = scene.path / "client.properties"
        file.write_text(text)
        tools = JavaTools(version, parse_properties(text)["bootstrap.servers"], run_command)
        tools("ConsoleProducer", "--topic", "orders", "--producer.config", file, typed=f"{version} {mechanism}\n")


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_mechanism_of_kafka_has_settings(kind: str) -> None:
    config = BrokerConfig.load({"listeners": "SASL_SSL://127.0.0.1:9093"})
    (endpoint,) = endpoints_of(config, "machine")
    for mechanism in ("GSSAPI", "OAUTHBEARER"):
        assert mechanism in client_properties(kind, endpoint, mechanism, "alice")


OAUTH = "org.apache.kafka.common.security.oauthbearer"
SECRET_OF_TOKENS = "a-s3cret"


def tokens_listener(path: Path, settings: dict[str, str]) -> str:
    """The file of a broker that takes tokens."""
    file = path / "server.properties"
    properties = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        "log.dirs": str(path / "data"),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **settings,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(file)


def printed_and_used(file: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our commands and librdkafka, with what is printed for them."""
    with kafkalite.Broker(BrokerConfig.load(read_properties(file))):
        assert main(["doctor", file, "--client", "java", "--user", "admin"]) == 0
        client = path / "client.properties"
        client.write_text(capsys.readouterr().out.replace("PASSWORD", SECRET_OF_TOKENS))
        address = read_properties(str(client))["bootstrap.servers"]
        assert main(["topic", "create", "orders", "--bootstrap", address, "--command-config", str(client)]) == 0
        capsys.readouterr()
        assert main(["doctor", file, "--client", "librdkafka", "--user", "admin"]) == 0
        text = capsys.readouterr().out.replace("PASSWORD", SECRET_OF_TOKENS)
        producer = confluent_kafka.Producer(dict(line.split("=", 1) for line in text.splitlines()))
        producer.produce("orders", b"x")
        assert producer.flush(DEADLINE_S) == 0


def test_tokens_of_an_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with token_server(TokenServer({"admin": SECRET_OF_TOKENS})) as server:
        settings = {
            "sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": server.jwks_url,
            "sasl.oauthbearer.token.endpoint.url": server.url,
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        printed_and_used(tokens_listener(tmp_path, settings), tmp_path, capsys)


def test_tokens_that_nobody_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerUnsecuredValidatorCallbackHandler"}
    printed_and_used(tokens_listener(tmp_path, settings), tmp_path, capsys)
