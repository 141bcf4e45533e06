"""Delegation tokens in ZooKeeper: those of Apache Kafka 3.9.1 are obeyed here, and ours there.

pytest -m long tests/compatibility/interop/test_delegation_tokens_in_zookeeper.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import kafkalite
from bench.reference import ReferenceUnavailable
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from kafkalite.zk.znodes import security_nodes
from tests.compatibility.interop.java_logins import login, run, token_login
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.login_scenes import secured
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka, zookeeper_kafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_each_obeys_the_tokens_of_the_other(tmp_path: Path) -> None:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            outside = secured(kafka)
            kafka.settings["delegation.token.secret.key"] = "of all brokers"
            kafka.start()
            story(kafka, outside, tmp_path)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def create(tools: JavaTools, admin: list[object]) -> tuple[str, str]:
    renewers = ["--renewer-principal", "User:a b*"]
    made = tools("DelegationTokenCommand", *admin, "--create", "--max-life-time-period", -1, *renewers)
    found = re.search(r"^([\w-]{22})\s+(\S{88})\s+User:admin\s", made, re.MULTILINE)
    assert found is not None, made
    return found[1], found[2]


def rows(tools: JavaTools, admin: list[object]) -> set[str]:
    shown = tools("DelegationTokenCommand", *admin, "--describe", "--owner-principal", "User:admin")
    return {" ".join(line.split()) for line in shown.splitlines() if " User:admin " in line}


def nodes(zookeeper: KazooClient) -> dict[str, bytes]:
    return {
        token_id: zookeeper.get(security_nodes.token_path(token_id))[0]
        for token_id in zookeeper.get_children(security_nodes.TOKENS)
    }


def story(kafka: ZooKeeperKafka, outside: str, folder: Path) -> None:
    zookeeper = KazooClient(kafka.settings["zookeeper.connect"])
    zookeeper.start()
    tools = JavaTools("3.9.1", outside, run)
    admin: list[object] = ["--command-config", login(folder, "admin", "PLAIN", "secret")]
    theirs = create(tools, admin)
    by_their_token = ["--command-config", token_login(folder, "theirs", "SCRAM-SHA-256", *theirs)]
    tools("TopicCommand", "--create", "--topic", "orders", *by_their_token)
    before = rows(tools, admin)
    for token_id, data in nodes(zookeeper).items():
        assert security_nodes.token_json(security_nodes.parse_token(data, token_id)) == data, data
    kafka.stop()

    properties = read_properties(str(kafka.home / "server.properties"))
    with kafkalite.Broker(BrokerConfig.load(properties)):
        assert rows(tools, admin) == before
        assert "orders" in tools("TopicCommand", "--list", *by_their_token)
        ours = create(tools, admin)
        by_our_token = ["--command-config", token_login(folder, "ours", "SCRAM-SHA-256", *ours)]
        tools("DelegationTokenCommand", *admin, "--expire", "--expiry-time-period", -1, "--hmac", theirs[1])
        after = rows(tools, admin)
    assert nodes(zookeeper).keys() == {ours[0]}
    changes = [
        zookeeper.get(f"{security_nodes.TOKEN_CHANGES}/{each}")[0]
        for each in zookeeper.get_children(security_nodes.TOKEN_CHANGES)
    ]
    assert {each.decode() for each in changes} == {theirs[0], ours[0]}
    assert json.loads(nodes(zookeeper)[ours[0]])["renewers"] == ["User%3Aa%20b%2A"]

    kafka.start()
    assert rows(tools, admin) == after and len(after) == 1
    assert "orders" in tools("TopicCommand", "--list", *by_our_token)
    told = tools("TopicCommand", "--list", *by_their_token, check=False)
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in told
    zookeeper.stop()
