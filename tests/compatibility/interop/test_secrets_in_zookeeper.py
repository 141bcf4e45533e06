"""Secrets of brokers in ZooKeeper: Apache Kafka's broker, its old tool and kafkalite read what the others encrypted.

The listener has no key store but the one that ZooKeeper names, which was put there before the first start.
Which key store is served shows whose password could be read: each has its own.

    pytest -m long tests/compatibility/interop/test_secrets_in_zookeeper.py
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka, zookeeper_kafka
from tests.support.certificates import Authority, Identity
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
OLD_TOOL = "2.7.2"
PREFIX = "listener.name.ssl.ssl.keystore."
AUTHORITY = Authority()


class Scene:
    """One directory and one ZooKeeper, on which brokers of both kinds follow each other."""

    def __init__(self, kafka: ZooKeeperKafka) -> None:
        self.kafka = kafka
        self.port = free_port()
        self.stores: dict[str, Identity] = {name: AUTHORITY.identify() for name in ("static", "b", "c")}
        self.stores["static"].write(kafka.home / "static.pem")
        for name in ("b", "c"):
            (kafka.home / f"{name}.p12").write_bytes(self.stores[name].pkcs12(f"{name}-secret"))
        kafka.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},SSL://127.0.0.1:{self.port}",
            "ssl.keystore.type": "PEM",
            "password.encoder.secret": "encoder-secret",
        }

    def changes(self, name: str) -> dict[str, str]:
        return {
            f"{PREFIX}type": "PKCS12",
            f"{PREFIX}location": str(self.kafka.home / f"{name}.p12"),
            f"{PREFIX}password": f"{name}-secret",
        }

    def serves(self, name: str) -> None:
        """Waits until a TLS connection gets this certificate."""

        def served() -> bool:
            pem = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=DEADLINE_S)
            found = x509.load_pem_x509_certificate(pem.encode())
            return found.serial_number == self.stores[name].certificate.serial_number

        until(served, f"the certificate of {name}")

    def alter(self, name: str) -> None:
        """By the API, at the broker that runs."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in self.changes(name).items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
        self.serves(name)

    @contextmanager
    def theirs(self) -> Iterator[None]:
        self.kafka.start()
        try:
            yield
        finally:
            self.kafka.stop()

    @contextmanager
    def ours(self) -> Iterator[None]:
        path = self.kafka.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.kafka.settings.items()))
        with kafkalite.Broker(BrokerConfig.load(read_properties(str(path)))):
            yield


def test_each_reads_what_the_others_encrypted(tmp_path: Path) -> None:
    java_command(OLD_TOOL)
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            story(Scene(kafka))
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def story(scene: Scene) -> None:
    settings = scene.kafka.settings
    tool = JavaTools(OLD_TOOL, settings["zookeeper.connect"], run_command)
    added = {**scene.changes("b"), "password.encoder.secret": "encoder-secret", "password.encoder.iterations": "2000"}
    tool(
        "ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "0", "--add-config",
        ",".join(f"{name}={value}" for name, value in added.items()), at="--zookeeper",
    )  # fmt: skip
    with scene.ours():
        scene.serves("b")  # of the tool
        scene.alter("c")
    with scene.theirs():
        scene.serves("c")  # of kafkalite
        scene.alter("b")
    settings["password.encoder.cipher.algorithm"] = "AES/GCM/NoPadding"
    with scene.ours():
        scene.serves("b")  # of Kafka's broker
        scene.alter("c")
    settings |= {"password.encoder.secret": "another", "password.encoder.old.secret": "encoder-secret"}
    with scene.ours():
        scene.serves("c")
    del settings["password.encoder.old.secret"]
    with scene.theirs():
        scene.serves("c")  # encrypted anew by kafkalite, with GCM
        scene.alter("b")
    with scene.ours():
        scene.serves("b")
    del settings["password.encoder.secret"]
    settings[f"{PREFIX}location"] = str(scene.kafka.home / "static.pem")
    with scene.ours():
        scene.serves("static")  # and says why
