"""Our commands and the channels of our brokers log in to Apache Kafka 3.9.1 by OAUTHBEARER and GSSAPI.

With the same files as Kafka's own tools, which are tried beside them; Kafka ends their sessions every few seconds.

    pytest -m long tests/compatibility/interop/test_tokens_and_tickets_at_kafka.py
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.cli.main import main
from kafkalite.client.broker_channel import BrokerChannels
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.clock import SystemClock
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.listener_security import ListenerSecurity
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka
from tests.support.kerberos import REALM, kerberos, missing_requirement
from tests.support.ports import free_port
from tests.support.token_server import TokenServer, token_server
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("kerberos")]
OAUTH = "org.apache.kafka.common.security.oauthbearer"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
SESSION_MS = 5_000  # with less, a busy machine needs longer for a request than what is left of a session


class Place:
    """The needs of one mechanism: settings of Kafka's broker, of which those of its login hold for one of ours, and the
    properties of a client."""

    def __init__(self, mechanism: str, broker: dict[str, str], client: dict[str, str], java: str) -> None:
        self.mechanism, self.broker, self.client, self.java = mechanism, broker, client, java
        self.bootstrap = f"localhost:{free_port()}"


@contextmanager
def by_tokens(path: Path) -> Iterator[Place]:
    with token_server(TokenServer({"broker": "b-s3cret", "alice": "a-s3cret"}, lifetime_s=30)) as server:
        prefix = "listener.name.sasl_plaintext.oauthbearer."
        getting = {
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": server.url,
        }

        def module(name: str, secret: str) -> str:
            return f'{OAUTH}.OAuthBearerLoginModule required clientId="{name}" clientSecret="{secret}";'

        broker = {
            f"{prefix}sasl.jaas.config": module("broker", "b-s3cret"),
            f"{prefix}sasl.login.callback.handler.class": getting["sasl.login.callback.handler.class"],
            f"{prefix}sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": server.url,
            "sasl.oauthbearer.jwks.endpoint.url": server.jwks_url,
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        yield Place("OAUTHBEARER", broker, {**getting, "sasl.jaas.config": module("alice", "a-s3cret")}, "")


@contextmanager
def by_tickets(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    reason = missing_requirement()
    if reason is not None or importlib.util.find_spec("gssapi") is None:
        pytest.skip(reason or "gssapi is missing: pip install gssapi")
    with kerberos(path) as centre:
        for name in ("KRB5_CONFIG", "KRB5RCACHENAME"):
            monkeypatch.setenv(name, centre.environment[name])

        def module(principal: str) -> str:
            return f'{KRB5} keyTab="{centre.keytab(principal)}" principal="{principal}@{REALM}";'

        service = {"sasl.kerberos.service.name": "kafka"}
        broker = {"listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module("kafka/localhost"), **service}
        java = f"-Djava.security.krb5.conf={centre.conf}"
        yield Place("GSSAPI", broker, {**service, "sasl.jaas.config": module("alice")}, java)


@pytest.fixture(params=["OAUTHBEARER", "GSSAPI"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = by_tokens(tmp_path / "there")
    if request.param == "GSSAPI":
        made = by_tickets(tmp_path / "there", monkeypatch)
    with made as found:
        yield found


def test_kafka_lets_kafkalite_in(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            address = f"SASL_PLAINTEXT://{place.bootstrap}"
            kafka.settings |= {
                "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},{address}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},{address}",
                "inter.broker.listener.name": "SASL_PLAINTEXT",
                "zookeeper.connection.timeout.ms": "30000",
                "sasl.enabled.mechanisms": place.mechanism,
                "sasl.mechanism.inter.broker.protocol": place.mechanism,
                "connections.max.reauth.ms": str(SESSION_MS),
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:broker;User:kafka;User:alice",
                **place.broker,
            }
            if place.java:
                monkeypatch.setenv("JAVA_TOOL_OPTIONS", place.java)
            kafka.start()
            story(place, kafka.home, capsys)
            asyncio.run(sessions_end(place, kafka.home))
            kafka.stop()
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def story(place: Place, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, lines = home / "client.properties", home / "lines"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": place.mechanism, **place.client}
    file.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    lines.write_text("one\ntwo\n")
    there = ["--bootstrap-server", place.bootstrap, "--command-config", str(file)]
    for command in (
        ["health", "--timeout", str(DEADLINE_S)],
        ["topic", "create", "ours"],
        ["produce", "ours", "--file", str(lines)],
    ):
        assert main([*command, *there]) == 0
    capsys.readouterr()
    assert main(["consume", "ours", *there]) == 0
    assert capsys.readouterr().out.split() == ["one", "two"]

    def run(command: list[str], seconds: float, typed: str = "") -> str:
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tools = JavaTools("3.9.1", place.bootstrap, run)  # with the same file
    assert tools("TopicCommand", "--command-config", file, "--list").split() == ["ours"]


async def sessions_end(place: Place, home: Path) -> None:
    """A broker of ours with Kafka's settings asks Kafka's broker for longer than a session lasts."""
    config = BrokerConfig.load(read_properties(str(home / "server.properties")))
    security = ListenerSecurity(config)
    endpoint = next(each for each in config.listeners if each.name == "SASL_PLAINTEXT")
    clock = SystemClock(asyncio.get_running_loop())
    channels = BrokerChannels({0: endpoint}.get, clock, "ours", 30_000, security.to_broker)
    end_ms = clock.monotonic_ms() + 2.5 * SESSION_MS
    connections = set()
    while clock.monotonic_ms() < end_ms:
        assert (await channels.ask(0, MetadataRequest(topics=[]), 9)).brokers
        connections.add(channels._channels[0]._connection)
    assert len(connections) == 1
    channels.close()


def test_a_command_is_told_what_its_file_lacks(place: Place) -> None:
    for name in place.client:
        lacking = {key: value for key, value in place.client.items() if key != name}
        with pytest.raises(Exception, match=r"is not set"):
            ClientSecurity.of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": place.mechanism, **lacking})
