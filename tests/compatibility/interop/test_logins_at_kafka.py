"""kafkalite logs in to Apache Kafka 3.9.1, whose broker logs in to itself as a user that kafkalite has made before.

`kafkalite user add` writes into an empty ZooKeeper; Kafka's broker logs in by SASL_SSL as that user.
Our commands and the channels of our brokers log in there, also when it ends their sessions. Then a kafkalite goes
on with the same settings.

    pytest -m long tests/compatibility/interop/test_logins_at_kafka.py
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.cli.main import main
from kafkalite.client.broker_channel import BrokerChannels
from kafkalite.common.clock import SystemClock
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.listener_security import ListenerSecurity
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka, zookeeper_kafka
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS = 2_000


class Scene:
    """The settings of one broker, which is Kafka's first."""

    def __init__(self, kafka: ZooKeeperKafka, mechanism: str, *, by_file: bool) -> None:
        self.kafka = kafka
        self.mechanism = mechanism
        self.bootstrap = f"127.0.0.1:{free_port()}"
        authority = Authority()
        self.ca = authority.write(kafka.home / "ca.pem")
        login = 'username="broker" password="b-secret"'
        jaas = dict.fromkeys(MECHANISMS[1:], f"{MODULES}.scram.ScramLoginModule required {login};")
        jaas["PLAIN"] = f'{MODULES}.plain.PlainLoginModule required {login} user_broker="b-secret";'
        kafka.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_SSL://{self.bootstrap}",
            "inter.broker.listener.name": "SASL_SSL",
            "zookeeper.connection.timeout.ms": "30000",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.identify().write(kafka.home / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker",
        }
        if by_file:
            self.jaas_file = kafka.home / "jaas.conf"
            self.jaas_file.write_text(f"KafkaServer {{ {jaas['PLAIN']} {jaas[MECHANISMS[1]]} }};")
            kafka.settings["java.security.auth.login.config"] = str(self.jaas_file)  # Kafka is told by its JVM
        else:
            for name, text in jaas.items():
                kafka.settings[f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config"] = text

    @property
    def file(self) -> str:
        path = self.kafka.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.kafka.settings.items()))
        return str(path)

    def login(self, name: str, password: str, mechanism: str) -> list[str]:
        """Options of a command that asks the broker."""
        path = self.kafka.home / f"{name}.{mechanism}.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.ca}\n"
            f'sasl.jaas.config={MODULES}.scram.ScramLoginModule required username="{name}" password="{password}";\n'
        )
        return ["--bootstrap-server", self.bootstrap, "--command-config", str(path)]

    def admin(self, mechanism: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": self.ca,
                "sasl.mechanism": mechanism,
                "sasl.username": "broker",
                "sasl.password": "b-secret",
            }
        )


@pytest.mark.parametrize(
    ("mechanism", "by_file"), [("SCRAM-SHA-256", False), ("SCRAM-SHA-512", True), ("PLAIN", False), ("PLAIN", True)]
)
def test_kafka_lets_kafkalite_in(
    tmp_path: Path,
    mechanism: str,
    by_file: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            scene = Scene(kafka, mechanism, by_file=by_file)
            for each in MECHANISMS[1:]:
                monkeypatch.setattr(sys, "stdin", io.StringIO("b-secret\n"))
                add = ["user", "add", "broker", "--mechanism", each, "--password-file", "-", "--config", scene.file]
                assert main([*add, "--iterations", "5000"]) == 0
            if by_file:
                option = f"-Djava.security.auth.login.config={scene.jaas_file}"
                monkeypatch.setenv("JAVA_TOOL_OPTIONS", option)
            kafka.start()
            story(scene, monkeypatch, capsys)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def story(scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for each in MECHANISMS:
        there = scene.login("broker", "b-secret", each)
        assert main(["health", *there, "--timeout", str(DEADLINE_S)]) == 0
        assert main(["health", *scene.login("broker", "wrong", each)]) == 1
        assert f"it refuses the login of broker by {each}: Authentication failed" in capsys.readouterr().err
    there = scene.login("broker", "b-secret", scene.mechanism)
    assert main(["doctor", *there, "--timeout", str(DEADLINE_S)]) == 1
    told = capsys.readouterr()
    assert f"SASL_SSL: SASL_SSL at {scene.bootstrap}, by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in told.out + told.err
    assert "the certificate expires in 0 days" in told.out
    monkeypatch.setattr(sys, "stdin", io.StringIO("wonderland\n"))
    assert main(["user", "add", "alice", "--password-file", "-", *there]) == 0
    assert capsys.readouterr().out == "credentials of alice set: SCRAM-SHA-512\n"
    assert main(["user", "list", *there]) == 0
    by_kafka = capsys.readouterr().out
    assert main(["user", "list", "--config", scene.file]) == 0
    assert capsys.readouterr().out == by_kafka
    assert ["alice", "SCRAM-SHA-512", "4096"] in [row.split() for row in by_kafka.splitlines()]
    asyncio.run(sessions_end(scene))
    admin = scene.admin(scene.mechanism)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
    scene.kafka.stop()

    with kafkalite.Broker(BrokerConfig.load(read_properties(scene.file))):
        for each in MECHANISMS:
            assert "orders" in scene.admin(each).list_topics(timeout=DEADLINE_S).topics
        assert main(["user", "list", *there]) == 0
        assert capsys.readouterr().out == by_kafka
        asyncio.run(sessions_end(scene))


async def sessions_end(scene: Scene) -> None:
    """One channel, on one connection, for as long as three sessions."""
    config = BrokerConfig.load(read_properties(scene.file))
    endpoint = next(each for each in config.listeners if each.name == "SASL_SSL")
    clock = SystemClock(asyncio.get_running_loop())
    channels = BrokerChannels({0: endpoint}.get, clock, "broker-1", 30_000, ListenerSecurity(config).to_broker)
    end_ms = clock.monotonic_ms() + 3 * SESSION_MS
    connections = set()
    while clock.monotonic_ms() < end_ms:
        assert (await channels.ask(0, MetadataRequest(topics=[]), 9)).brokers
        connections.add(channels._channels[0]._connection)
    assert len(connections) == 1
    channels.close()
