"""Access control lists and users of SCRAM in ZooKeeper: what Apache Kafka wrote is obeyed, and the other way round.

A broker of Apache Kafka 3.9.1 makes lists and users, a kafkalite on the same ZooKeeper and the same directory goes on
with them and makes more, and Kafka's broker comes back.

    pytest -m long tests/compatibility/interop/test_security_in_zookeeper.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from kafkalite.security.sasl.scram import parse_credential
from kafkalite.zk.znodes import security_nodes
from tests.compatibility.interop.login_scenes import secured
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka, zookeeper_kafka
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LITERAL = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL)
PREFIXED = (ResourceType.GROUP, "team-", ResourcePatternType.PREFIXED)
CLUSTER = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)


def login(bootstrap: str, name: str, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient(login(bootstrap, "admin", "PLAIN", "secret"))


def allow(admin: AdminClient, resource: tuple[Any, ...], name: str, operation: AclOperation) -> None:
    permission = AclPermissionType.DENY if name == "User:mallory" else AclPermissionType.ALLOW
    binding = AclBinding(*resource, name, "*", operation, permission)
    for future in admin.create_acls([binding]).values():
        future.result(DEADLINE_S)


def add_user(admin: AdminClient, name: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, b"pencil")]).values():
        future.result(DEADLINE_S)


def listed(admin: AdminClient) -> set[tuple[Any, ...]]:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {
        (each.restype, each.name, each.resource_pattern_type, each.principal, each.operation, each.permission_type)
        for each in admin.describe_acls(every).result(DEADLINE_S)
    }


def produces(bootstrap: str, name: str) -> Any:
    """The error of a record to orders; None if it is stored."""
    told: list[Any] = []
    producer = confluent_kafka.Producer(login(bootstrap, name, "SCRAM-SHA-256", "pencil"))
    producer.produce("orders", b"x", on_delivery=lambda error, _: told.append(error))
    until(lambda: producer.flush(1) == 0, "the answer")
    return told[0].code() if told[0] is not None else None


def test_each_goes_on_with_what_the_other_made(tmp_path: Path) -> None:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            outside = secured(kafka)
            kafka.start()
            story(kafka, outside)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def story(kafka: ZooKeeperKafka, outside: str) -> None:
    zookeeper = KazooClient(kafka.settings["zookeeper.connect"])
    zookeeper.start()
    admin = admin_of(outside)
    admin.create_topics([confluent_kafka.admin.NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
    allow(admin, LITERAL, "User:alice", AclOperation.WRITE)
    allow(admin, LITERAL, "User:mallory", AclOperation.ALL)
    allow(admin, PREFIXED, "User:CN=a,C=DE", AclOperation.READ)
    allow(admin, CLUSTER, "User:alice", AclOperation.DESCRIBE_CONFIGS)
    add_user(admin, "alice")
    add_user(admin, "a b*")
    theirs = listed(admin)
    assert len(theirs) == 4
    read_back(zookeeper)
    kafka.stop()

    properties = read_properties(str(kafka.home / "server.properties"))
    with kafkalite.Broker(BrokerConfig.load(properties)):
        admin = admin_of(outside)
        assert listed(admin) == theirs
        assert produces(outside, "alice") is None
        assert produces(outside, "a b*") == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(admin, LITERAL, "User:a b*", AclOperation.WRITE)
        add_user(admin, "bob")
        assert produces(outside, "a b*") is None
        read_back(zookeeper)
        ours = listed(admin)
    assert len(ours) == 5

    kafka.start()
    admin = admin_of(outside)
    assert listed(admin) == ours
    assert produces(outside, "a b*") is None
    assert produces(outside, "bob") == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    kafka.stop()
    zookeeper.stop()


def read_back(zookeeper: KazooClient) -> None:
    """The nodes hold now what kafkalite would write."""
    for root in (security_nodes.LITERAL, security_nodes.PREFIXED):
        for kind in zookeeper.get_children(root):
            for name in zookeeper.get_children(f"{root}/{kind}"):
                data, _ = zookeeper.get(f"{root}/{kind}/{name}")
                assert security_nodes.acl_json(security_nodes.parse_acls(data)) == data
                resource = security_nodes.resource_of(f"{root}/{kind}/{name}")
                assert resource is not None and security_nodes.acl_path(resource) == f"{root}/{kind}/{name}"
    from kafkalite.zk.znodes.znode_data import parse_config

    for name in zookeeper.get_children("/config/users"):
        data, _ = zookeeper.get(f"/config/users/{name}")
        for text in parse_config(data).values():
            assert parse_credential(text).text == text
