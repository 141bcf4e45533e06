"""A cluster whose only listener is SASL's, and the clients that its access control lists allow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
)
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Type

from kafkalite.security.sasl.scram import new_credential
from kafkalite.testing import Cluster
from kafkalite.zk.server.transactions import CreateNode
from kafkalite.zk.znodes.znode_data import config_json
from tests.support.certificates import Authority
from tests.support.wait import DEADLINE_S, until

QUIET = logging.getLogger("librdkafka")
AUTHORITY = Authority()
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = (
    f'{MODULE} username="broker" password="b-secret" user_broker="b-secret" user_admin="a-secret" user_alice="pencil";'
)


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
            nodes = [CreateNode(path, b"") for path in ("/config", "/config/users")]
            for name, password in (("broker", "b-secret"), ("admin", "a-secret"), ("alice", "pencil")):
                credential = new_credential(self.mechanism, password).text
                nodes.append(CreateNode(f"/config/users/{name}", config_json({self.mechanism: credential})))
            cluster.zookeeper.sessions.transact(nodes)
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
