"""A cluster whose only listener is SASL's: its brokers log in to each other, and their clients get what lists allow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Type

from kafkalite.cli.main import main
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.security.sasl.scram import new_credential
from kafkalite.testing import Cluster
from kafkalite.zk.client.operations import Create
from kafkalite.zk.znodes.znode_data import config_json
from tests.support.certificates import Authority
from tests.support.counted_logins import count_logins
from tests.support.wait import DEADLINE_S, until

QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

AUTHORITY = Authority()
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = (
    f'{MODULE} username="broker" password="b-secret" user_broker="b-secret" user_admin="a-secret" user_alice="pencil";'
)
LISTENERS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


class Place:
    """Settings of brokers, and of clients that log in."""

    def __init__(self, path: Path, protocol: str, mechanism: str) -> None:
        self.path = path
        self.protocol, self.mechanism = protocol, mechanism
        self.ca = AUTHORITY.write(path / "ca.pem")
        self.broker_pem = AUTHORITY.identify().write(path / "broker.pem")

    @contextmanager
    def cluster(self, **settings: Any) -> Iterator[Cluster]:
        """Three brokers with access control lists; SCRAM has users before the first of them starts."""
        mechanism = self.mechanism.lower()
        values = {
            "listener_security_protocol_map": f"PLAINTEXT:{self.protocol}",
            "inter_broker_listener_name": "PLAINTEXT",
            "sasl_enabled_mechanisms": self.mechanism,
            "sasl_mechanism_inter_broker_protocol": self.mechanism,
            f"listener_name_plaintext_{mechanism}_sasl_jaas_config": JAAS,
            "ssl_keystore_location": self.broker_pem,
            "ssl_truststore_location": self.ca,
            "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
            "super_users": "User:broker;User:admin",
            "default_replication_factor": 3,
            "min_insync_replicas": 2,
            "offsets_topic_replication_factor": 3,
            "transaction_state_log_replication_factor": 3,
        }
        cluster = Cluster(3, data_dir=self.path / "cluster", **{**values, **settings})
        if self.mechanism.startswith("SCRAM"):
            nodes = [Create(path, b"") for path in ("/config", "/config/users")]
            for name, password in (("broker", "b-secret"), ("admin", "a-secret"), ("alice", "pencil")):
                credential = new_credential(self.mechanism, password).text
                nodes.append(Create(f"/config/users/{name}", config_json({self.mechanism: credential})))
            cluster.zookeeper.tree.transact(nodes, 0)
        with cluster:
            yield cluster

    def client(self, cluster: Cluster, name: str, password: str) -> dict[str, Any]:
        return self.login(cluster.bootstrap_servers, name, password)

    def login(self, bootstrap: str, name: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "ssl.ca.location": self.ca,
            "logger": QUIET,
        }

    def properties(self, name: str, password: str) -> str:
        """A file for our commands, and for Kafka's."""
        file = self.path / f"{name}.properties"
        file.write_text(
            f"security.protocol={self.protocol}\nsasl.mechanism={self.mechanism}\n"
            f'sasl.jaas.config={MODULE} username="{name}" password="{password}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.ca}\n"
        )
        return str(file)


@pytest.fixture(params=LISTENERS, ids=lambda it: "-".join(it))
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, *request.param)


def allow_alice(admin: AdminClient, brokers: Iterable[Any]) -> None:
    """Returns when all brokers know it, which each of them learns by itself."""
    every = [
        (Type.TOPIC, "orders", AclOperation.CREATE),
        (Type.TOPIC, "orders", AclOperation.WRITE),
        (Type.TOPIC, "orders", AclOperation.READ),
        (Type.GROUP, "first", AclOperation.READ),
        (Type.GROUP, "second", AclOperation.READ),
        (Type.TRANSACTIONAL_ID, "t", AclOperation.WRITE),
    ]
    entries = [
        AclBinding(kind, name, Pattern.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in every
    ]
    for done in admin.create_acls(entries).values():
        done.result(DEADLINE_S)
    known = [broker.server.metadata for broker in brokers]
    until(lambda: all(sum(map(len, each.acls.values())) == len(every) for each in known), "all brokers to know")


def transactions(mine: dict[str, Any], count: int) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({**mine, "transactional.id": "t", "acks": "all"})
    producer.init_transactions(DEADLINE_S)
    for i in range(count):
        one_more(producer, i)
    return producer


def one_more(producer: confluent_kafka.Producer, i: int) -> None:
    producer.begin_transaction()
    producer.produce("orders", b"%d" % i)
    producer.commit_transaction(DEADLINE_S)


def read(mine: dict[str, Any], group: str, count: int) -> list[int]:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**mine, **settings})
    consumer.subscribe(["orders"])
    found: list[int] = []
    until(
        lambda: found.extend(int(m.value() or b"") for m in consumer.consume(500, 0.2)) or len(found) >= count,
        "all records",
    )
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_records_transactions_and_groups_survive_a_broker(place: Place) -> None:
    with place.cluster() as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        allow_alice(admin, cluster.brokers)
        mine = place.client(cluster, "alice", "pencil")
        producer = transactions(mine, 20)
        assert read(mine, "first", 20) == list(range(20))
        assert cluster.isr("orders", 0) == {0, 1, 2}
        leader = cluster.leader_of("orders", 0)
        assert leader is not None
        cluster.kill(leader)
        for i in range(20, 40):
            one_more(producer, i)
        assert read(mine, "second", 40) == list(range(40))
        cluster.start(leader)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})
        cluster.stop(leader)  # in order: what it leads is led by another before it goes
        one_more(producer, 40)
        cluster.start(leader)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})


def test_a_broker_without_zookeeper_asks_the_others_with_its_login(tmp_path: Path) -> None:
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-256")
    with place.cluster() as cluster:
        transactions(place.client(cluster, "admin", "a-secret"), 1)
        cut = cluster.leader_of("orders", 0)
        assert cut is not None
        cluster.cut_off(cut)
        cluster.lose_session(cut)
        metadata = cluster.brokers[cut].server.metadata
        until(lambda: metadata.registration_state is RegistrationState.FENCED, "a witness")
        cluster.mend(cut)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})


def test_our_own_commands_log_in(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.cluster() as cluster:
        mine = place.client(cluster, "admin", "a-secret")
        transactions(mine, 1).flush(DEADLINE_S)
        there = ["--bootstrap-server", cluster.bootstrap_servers]
        login = place.properties("admin", "a-secret")
        for command in (["topic", "describe", "orders"], ["cleaner", "status"], ["txn", "list"]):
            assert main([*command, *there, "--command-config", login]) == 0
        one = ["--bootstrap", cluster.brokers[1].bootstrap_servers]
        assert main(["health", *one, "--command-config-file", login]) == 0
        told = capsys.readouterr()
        assert "orders" in told.out and "one of 3 in cluster" in told.out
        assert main(["health", *one, "--command-config", place.properties("mallory", "x")]) == 1
        assert "it refuses the login of mallory by " + place.mechanism in capsys.readouterr().err


def test_sessions_of_brokers_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logins = count_logins(monkeypatch)
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-256")
    with place.cluster(connections_max_reauth_ms=2_000, replica_lag_time_max_ms=1_000) as cluster:
        producer = transactions(place.client(cluster, "admin", "a-secret"), 5)
        count = 5

        def goes_on() -> bool:
            nonlocal count
            one_more(producer, count)
            count += 1
            return len(logins) >= 3 * before

        before = len(logins)
        until(goes_on, "every broker to log in three times")
        assert cluster.isr("orders", 0) == {0, 1, 2}
        assert "is lost" not in caplog.text


def test_the_password_of_the_brokers_is_changed_while_they_run(tmp_path: Path) -> None:
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    with place.cluster(password_encoder_secret="encoder", connections_max_reauth_ms=1_500) as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        producer = transactions(place.client(cluster, "admin", "a-secret"), 5)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("broker", info, b"new")]).values():
            done.result(DEADLINE_S)
        name, module = "listener.name.plaintext.scram-sha-512.sasl.jaas.config", JAAS.replace('"b-secret"', '"new"')
        for number in range(3):
            entry = ConfigEntry(name, module, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
            assert b"new" not in cluster.zookeeper.tree.data_and_stat(f"/config/brokers/{number}")[0]
        cluster.stop(2)
        cluster.start(2)  # with the old password in its settings, and the new one from ZooKeeper
        one_more(producer, 5)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})
        for i in range(6, 12):
            one_more(producer, i)
        assert read(place.client(cluster, "admin", "a-secret"), "first", 12) == list(range(12))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"sasl_mechanism_inter_broker_protocol": "GSSAPI"}, "where sasl.enabled.mechanisms has PLAIN; set one of"),
        ({"listener_name_plaintext_plain_sasl_jaas_config": f"{MODULE} user_a=b;"}, "has no username="),
    ],
)
def test_a_broker_that_could_not_log_in_does_not_start(tmp_path: Path, settings: dict[str, str], fault: str) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", "PLAIN")
    with pytest.raises(Exception, match=fault), place.cluster(**settings):
        pass


def test_a_wrong_password_of_a_broker_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", "PLAIN")
    wrong = f'{MODULE} username="broker" password="other" user_broker="b-secret" user_admin="a-secret";'
    with place.cluster(listener_name_plaintext_plain_sasl_jaas_config=wrong, min_insync_replicas=1) as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        admin.create_topics([confluent_kafka.admin.NewTopic("orders", 3, 3)])["orders"].result(DEADLINE_S)
        until(lambda: "it refuses the login of broker by PLAIN: Authentication failed" in caplog.text, "the log")
