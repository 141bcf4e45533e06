"""Apache Kafka's tools log in by PLAIN and SCRAM: kafka-configs makes users, kafka-acls permissions, and they hold.

pytest -m long tests/compatibility/interop/test_sasl_java.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalite
from kafkalite.config.broker_config import BrokerConfig
from tests.compatibility.interop.java_logins import JAAS, login, run
from tests.compatibility.interop.java_tools import JavaTools, java_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SECRET = 'wonder"land'


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_users_and_permissions_by_kafkas_tools(tmp_path: Path, version: str) -> None:
    java_command(version)
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
    }
    with kafkalite.Broker(BrokerConfig.load(properties)) as broker:
        tools = JavaTools(version, broker.bootstrap_servers, run)
        admin = ["--command-config", login(tmp_path, "admin", "PLAIN", "admin-secret")]
        user = ["--entity-type", "users", "--entity-name", "alice"]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            tools("ConfigCommand", *admin, "--alter", *user, "--add-config", f"{mechanism}=[password={SECRET}]")
        tools("AclCommand", *admin, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
        listed = tools("AclCommand", *admin, "--list", "--topic", "orders")
        for operation in ("WRITE", "CREATE", "DESCRIBE"):
            assert f"operation={operation}" in listed
        tools("AclCommand", *admin, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders",
              "--group", "readers", "--resource-pattern-type", "prefixed")  # fmt: skip

        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            alice = login(tmp_path, "alice", mechanism, SECRET)
            tools("ConsoleProducer", "--topic", "orders", "--producer.config", alice, typed=f"{mechanism}\n")
        read = ["--topic", "orders", "--group", "readers-1", "--from-beginning", "--max-messages", 2]
        lines = tools("ConsoleConsumer", *read, "--timeout-ms", 30_000, "--consumer.config", alice)
        assert lines.split() == ["SCRAM-SHA-256", "SCRAM-SHA-512"]

        refused = tools("TopicCommand", "--create", "--topic", "bills", "--command-config", alice, check=False)
        assert "TopicAuthorizationException" in refused
        wrong = login(tmp_path, "alice", "PLAIN", "wrong")
        told = tools("TopicCommand", "--list", "--command-config", wrong, check=False)
        assert "Authentication failed: Invalid username or password" in told
        unknown = login(tmp_path, "nobody", "SCRAM-SHA-256", "wrong")
        told = tools("TopicCommand", "--list", "--command-config", unknown, check=False)
        assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in told

        tools("AclCommand", *admin, "--remove", "--force", "--topic", "orders")
        assert "operation=" not in tools("AclCommand", *admin, "--list", "--topic", "orders")
        tools("ConfigCommand", *admin, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
        again = login(tmp_path, "alice", "SCRAM-SHA-256", SECRET)
        told = tools("TopicCommand", "--list", "--command-config", again, check=False)
        assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in told


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_tokens_of_kafkas_tools(tmp_path: Path, version: str) -> None:
    """Its own login makes unsecured tokens, which the broker takes where it is told to."""
    java_command(version)
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        name: 'OAuthBearerLoginModule required unsecuredValidatorRequiredScope="kafka";',
        "connections.max.reauth.ms": "2000",
    }
    with kafkalite.Broker(BrokerConfig.load(properties)) as broker:
        tools = JavaTools(version, broker.bootstrap_servers, run)

        def by(scope: str) -> Path:
            file = tmp_path / f"{scope}.properties"
            file.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config="
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                f'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|{scope}";\n'
            )
            return file

        tools("ConsoleProducer", "--topic", "orders", "--producer.config", by("kafka"), typed="hello\n")
        read = ["--topic", "orders", "--from-beginning", "--max-messages", 1, "--timeout-ms", 30_000]
        assert tools("ConsoleConsumer", *read, "--consumer.config", by("kafka")).split() == ["hello"]
        told = tools("TopicCommand", "--list", "--command-config", by("other"), check=False)
        assert "invalid_token" in told
