"""Everything locked at once: ZooKeeper under TLS with access lists on its nodes, brokers that meet by SASL_SSL alone,
users made before the first start, access control lists for topics.

Needs a ZooKeeper with TLS, and openssl.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import kafkalite
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.secured_zookeeper import Fortress
from tests.support.zookeeper import without_zookeeper
from tests.system.security.sasl_cluster import AUTHORITY, MODULE, Place, allow_alice, one_more, read
from tests.system.security.sasl_cluster import transactions as begin

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(without_zookeeper() is not None, reason=without_zookeeper() or ""),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine"),
]
MECHANISM = "SCRAM-SHA-512"


class Castle:
    """Three brokers with a properties file each."""

    def __init__(self, path: Path, fortress: Fortress, chroot: str) -> None:
        self.place = Place(path, "SASL_SSL", MECHANISM)
        self.files = [path / f"broker{number}.properties" for number in range(3)]
        for number, file in enumerate(self.files):
            settings = {
                "broker.id": number,
                "listeners": "SASL_SSL://127.0.0.1:0",
                "log.dirs": path / f"data{number}",
                "inter.broker.listener.name": "SASL_SSL",
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
                    f'{MODULE} username="broker" password="b-secret";'
                ),
                "ssl.keystore.location": AUTHORITY.identify().write(path / f"broker{number}.pem"),
                "ssl.truststore.location": self.place.ca,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:broker;User:admin",
                "zookeeper.connect": f"127.0.0.1:{fortress.tls_port}{chroot}",
                "zookeeper.connection.timeout.ms": int(1000 * DEADLINE_S),
                "zookeeper.set.acl": "true",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.keystore.location": fortress.client_pem,
                "zookeeper.ssl.truststore.location": fortress.server_pem,
                "default.replication.factor": 3,
                "min.insync.replicas": 2,
                "offsets.topic.replication.factor": 3,
                "offsets.topic.num.partitions": 3,
                "transaction.state.log.replication.factor": 3,
                "transaction.state.log.num.partitions": 3,
                "group.initial.rebalance.delay.ms": 0,
            }
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def broker(self, number: int) -> kafkalite.Broker:
        return kafkalite.Broker(BrokerConfig.load(read_properties(str(self.files[number]))))


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    fortress = Fortress(tmp_path_factory.mktemp("fortress"))
    with fortress.server:
        yield fortress


def test_a_cluster_behind_all_its_walls(
    fortress: Fortress, chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    castle = Castle(tmp_path, fortress, chroot)
    for name, password in (("broker", "b-secret"), ("admin", "a-secret"), ("alice", "pencil")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(password + "\n"))
        assert main(["user", "add", name, "--password-file", "-", "--config", str(castle.files[0])]) == 0
    with contextlib.ExitStack() as running:
        first = running.enter_context(contextlib.ExitStack())
        brokers = [(running if number else first).enter_context(castle.broker(number)) for number in range(3)]
        mine = castle.place.login(",".join(each.bootstrap_servers for each in brokers), "alice", "pencil")
        admin = AdminClient({**mine, "sasl.username": "admin", "sasl.password": "a-secret"})
        until(lambda: len(admin.list_topics(timeout=DEADLINE_S).brokers) == 3, "three brokers")
        allow_alice(admin, brokers)
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(DEADLINE_S)
        producer = begin(mine, 10)
        assert read(mine, "first", 10) == list(range(10))
        first.close()
        one_more(producer, 10)
        assert read(mine, "second", 11) == list(range(11))
        alice = AdminClient(mine)
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            alice.create_topics([NewTopic("bills", 1)])["bills"].result(DEADLINE_S)

        stranger = KazooClient(fortress.server.connect + chroot)
        stranger.start()
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/broker")
        with pytest.raises(NoAuthError):
            stranger.set("/brokers/topics/orders", b"{}")
        stranger.stop()
        stranger.close()
