"""Every warning about a broker's settings: the settings that draw it, and those that do not."""

from __future__ import annotations

import pytest

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.inspection.doctor.endpoint import endpoints_of, is_loopback
from kafkalite.inspection.doctor.exposure import exposures

ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
LONG = "ckvBW2nR0aXoQm"
JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "PLAIN"}
CLUSTER = {"zookeeper.connect": "localhost:2181", "inter.broker.listener.name": "SASL_SSL"}
BETWEEN = {**SASL, **CLUSTER, **ACLS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}


def warnings(settings: dict[str, str]) -> str:
    config = BrokerConfig.load(settings)
    return "\n".join(each.fault for each in exposures(config, endpoints_of(config, "machine")))


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "asks nobody who he is: whoever reaches machine:9092 may do everything"),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092", **ACLS}, "reaches 10.0.0.1:9092 is let in as User:ANONYMOUS"),
        ({"listeners": "SSL://:9093", "ssl.client.auth": "requested"}, "lets clients in without a certificate"),
        ({"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "PLAIN"}, "takes PLAIN without TLS"),
        ({"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "records can be read"),
        (SASL, "there is no authorizer: whoever logs in may do everything"),
        ({**SASL, **ACLS, "allow.everyone.if.no.acl.found": "true"}, "what has no access control list is everybody's"),
        ({**SASL, **ACLS, "super.users": ""}, "super.users is empty"),
        ({"listeners": "PLAINTEXT://:9092", **ACLS, "super.users": "User:ANONYMOUS"}, "ANONYMOUS is in super.users"),
        ({**SASL, JAAS: f'{MODULE} user_bob="kafka1";'}, "of bob (PLAIN at SASL_SSL) is one of the first"),
        ({**SASL, JAAS: f'{MODULE} user_bob="bob-secret";'}, "of bob (PLAIN at SASL_SSL) is made of the user's name"),
        ({**SASL, JAAS: f'{MODULE} user_bob="x7Pq";'}, "is shorter than 12 characters"),
        ({**BETWEEN, JAAS: f'{MODULE} username="b" password="{LONG}";'}, "at the others, and is not a user"),
        ({**BETWEEN, JAAS: f'{MODULE} username="b" password="{LONG}";'}, "is this broker at the others, and is not in"),
        ({**BETWEEN, "ssl.endpoint.identification.algorithm": ""}, "do not look whose certificate"),
        ({"zookeeper.connect": "zk1:2181"}, "whoever reaches ZooKeeper changes users"),
        ({"zookeeper.connect": "zk1:2181"}, "ZooKeeper is asked without TLS"),
        ({"metrics.listener": "0.0.0.0:9404"}, "metrics.listener=0.0.0.0:9404 tells everybody"),
        ({"console.listener": "0.0.0.0:9080"}, "console.listener=0.0.0.0:9080 shows pages without TLS"),
    ],
)  # fmt: skip
def test_a_warning(settings: dict[str, str], warning: str) -> None:
    assert warning in warnings(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listeners": "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://[::1]:9093", "sasl.enabled.mechanisms": "PLAIN"},
        {"listeners": "SSL://:9093", "ssl.client.auth": "required", **ACLS},
        {**SASL, **ACLS, JAAS: f'{MODULE} user_bob="{LONG}";'},
        {**BETWEEN, "super.users": "User:b", JAAS: f'{MODULE} username="b" password="{LONG}" user_b="{LONG}";'},
        {"zookeeper.connect": "localhost:2181,[::1]:2182/kafka", "metrics.listener": "127.0.0.1:9404"},
    ],
)
def test_no_warning(settings: dict[str, str]) -> None:
    assert warnings(settings) == ""


def test_a_secret_is_in_no_warning() -> None:
    assert "x7Pq" not in warnings({**SASL, JAAS: f'{MODULE} user_bob="x7Pq";'})


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("LOCALHOST.", True),
        ("10.0.0.1", False),
        ("a.b", False),
    ],
)
def test_loopback(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
