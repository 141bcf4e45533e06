"""Apache Kafka's kafka-delegation-tokens makes, shows, renews and ends tokens, and Java's clients log in by them.

pytest -m long tests/compatibility/interop/test_delegation_tokens_java.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkalite
from kafkalite.config.broker_config import BrokerConfig
from tests.compatibility.interop.java_logins import JAAS, login, run, token_login
from tests.compatibility.interop.java_tools import JavaTools, java_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["2.7.2", "3.9.1", "4.1.0"])
def test_tokens_by_kafkas_tool(tmp_path: Path, version: str) -> None:
    java_command(version)
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS[:-1] + ' user_bob="bob-secret";',
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "of all brokers",
    }
    with kafkalite.Broker(BrokerConfig.load(properties)) as broker:
        tools = JavaTools(version, broker.bootstrap_servers, run)
        admin = ["--command-config", login(tmp_path, "admin", "PLAIN", "admin-secret")]
        bob = ["--command-config", login(tmp_path, "bob", "PLAIN", "bob-secret")]
        renewers = ["--renewer-principal", "User:bob"]
        made = tools("DelegationTokenCommand", *admin, "--create", "--max-life-time-period", -1, *renewers)
        found = re.search(r"^([\w-]{22})\s+(\S{88})\s+User:admin\s", made, re.MULTILINE)
        assert found is not None, made
        token_id, hmac = found.groups()
        shown = tools("DelegationTokenCommand", *admin, "--describe", "--owner-principal", "User:admin")
        assert token_id in shown and hmac in shown and "User:bob" in shown

        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            by_token = token_login(tmp_path, "token", mechanism, token_id, hmac)
            tools("ConsoleProducer", "--topic", "orders", "--producer.config", by_token, typed=f"{mechanism}\n")
        read = ["--topic", "orders", "--from-beginning", "--max-messages", 2, "--timeout-ms", 30_000]
        lines = tools("ConsoleConsumer", *read, "--consumer.config", by_token)
        assert lines.split() == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        not_by_token = ["--create", "--max-life-time-period", -1, "--command-config", by_token]
        refused = tools("DelegationTokenCommand", *not_by_token, check=False)
        assert "DelegationTokenAuthorizationException" in refused or "not allowed" in refused, refused

        renewed = tools("DelegationTokenCommand", *bob, "--renew", "--renew-time-period", 3_600_000, "--hmac", hmac)
        assert "Completed renew operation" in renewed
        ended = tools("DelegationTokenCommand", *bob, "--expire", "--expiry-time-period", -1, "--hmac", hmac)
        assert "Completed expire operation" in ended
        told = tools("TopicCommand", "--list", "--command-config", by_token, check=False)
        assert f"invalid credentials with SASL mechanism {mechanism}" in told
        left = tools("DelegationTokenCommand", *admin, "--describe", "--owner-principal", "User:admin")
        assert "TOKENID" in left and token_id not in left
