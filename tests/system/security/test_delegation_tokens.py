"""Delegation tokens at a broker by itself and in a cluster: who gets them, who logs in by them, and when they end."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.security.acl.acl import Entry, Operation, Permission, Resource, ResourceType
from kafkalite.testing import Cluster
from tests.support.wait import DEADLINE_S, until

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{MODULE} username="admin" password="pw" user_admin="pw" user_alice="pw" user_bob="pw" user_eve="pw";'
LISTENER = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    LISTENER: JAAS,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "of all brokers",
}
BOB = CreatableRenewers(principal_type="User", principal_name="bob")


def broker_in(path: Path, **settings: str) -> kafkalite.Broker:
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return kafkalite.Broker(BrokerConfig.load({**SETTINGS, "log.dirs": str(path / "data"), **named}))


class Client:
    """Asks each question on a connection of its own."""

    def __init__(self, address: str, properties: dict[str, str] | None = None) -> None:
        self._address = address
        self._security = None if properties is None else ClientSecurity.of(properties)

    def ask(self, request: Any, version: int) -> Any:
        with BlockingClient(self._address, DEADLINE_S, self._security) as client:
            return client.ask(request, version)

    def create(
        self, owner: str | None = None, renewers: tuple[CreatableRenewers, ...] = (BOB,), life_ms: int = -1
    ) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type="User" if owner else None,
            owner_principal_name=owner,
            renewers=list(renewers),
            max_lifetime_ms=life_ms,
        )
        return self.ask(request, 3)

    def renew(self, hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)

    def expire(self, hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)

    def describe(self, *owners: str, every: bool = True) -> Any:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
        return self.ask(DescribeDelegationTokenRequest(owners=None if every and not owners else named), 3)

    def ids(self, *owners: str) -> set[str]:
        return {each.token_id for each in self.describe(*owners).tokens}


def client(address: str, name: str) -> Client:
    jaas = f'{MODULE} username="{name}" password="pw";'
    return Client(address, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})


def by_token(address: str, token: Any) -> Client:
    password = base64.b64encode(bytes(token.hmac)).decode()
    jaas = f'ScramLoginModule required username="{token.token_id}" password="{password}" tokenauth="true";'
    return Client(
        address, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    )


def test_whoever_is_logged_in_gets_tokens_and_they_outlive_the_broker(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        at = broker.bootstrap_servers
        alice, bob, eve = (client(at, name) for name in ("alice", "bob", "eve"))
        token = alice.create()
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 86_400_000
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 604_800_000
        assert alice.ids() == bob.ids() == alice.ids("alice") == bob.ids("bob") == {token.token_id}
        assert eve.ids() == set() and alice.ids("eve") == set() and not alice.describe(every=False).tokens
        mine = by_token(at, token)
        assert mine.create().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert mine.describe().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        hmac = bytes(token.hmac)
        assert eve.renew(hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert eve.expire(hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert alice.renew(b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        renewed = bob.renew(hmac, 1_000)
        assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
        assert bob.renew(hmac, 1 << 40).expiry_timestamp_ms == token.max_timestamp_ms
    with broker_in(tmp_path) as broker:
        at = broker.bootstrap_servers
        (kept,) = client(at, "alice").describe().tokens
        assert (kept.token_id, kept.hmac, kept.max_timestamp) == (token.token_id, token.hmac, token.max_timestamp_ms)
        assert by_token(at, kept).ask(MetadataRequest(topics=[]), 9).brokers
        assert client(at, "alice").expire(hmac).error_code == 0
        with pytest.raises(Unanswered, match="invalid credentials"):
            by_token(at, kept).describe()


def test_for_another_owner_it_takes_permission(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        alice, bob, eve, admin = (client(broker.bootstrap_servers, name) for name in ("alice", "bob", "eve", "admin"))
        assert alice.create("bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert alice.create("alice").error_code == 0
        group = CreatableRenewers(principal_type="Group", principal_name="bob")
        assert alice.create(renewers=(group,)).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        many = tuple(BOB for _ in range(101))
        assert alice.create(renewers=many).error_code == ErrorCode.INVALID_REQUEST
        token = admin.create("bob", renewers=())
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "admin")
        assert token.token_id in bob.ids() and token.token_id not in alice.ids() | eve.ids()
        allow(broker, "User:eve", Operation.DESCRIBE_TOKENS, Resource(ResourceType.USER, "User:bob"))
        assert eve.ids() == {token.token_id}
        allow(broker, "User:alice", Operation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, token.token_id))
        assert token.token_id in alice.ids()
        allow(broker, "User:alice", Operation.CREATE_TOKENS, Resource(ResourceType.USER, "User:bob"))
        assert alice.create("bob").error_code == 0


def allow(broker: kafkalite.Broker, principal: str, operation: Operation, resource: Resource) -> None:
    entry = Entry(principal, Permission.ALLOW, operation)
    assert broker._thread is not None
    broker._thread.run(lambda: broker.server.metadata.writes.change_acls(resource, lambda there: (*there, entry)))


QUESTIONS: list[Callable[[Client], Any]] = [
    lambda it: it.create(),
    lambda it: it.renew(b"x"),
    lambda it: it.expire(b"x"),
    lambda it: it.describe(),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_nobody_gets_any_without_a_secret(tmp_path: Path, question: Callable[[Client], Any]) -> None:
    with broker_in(tmp_path, delegation_token_secret_key="") as broker:
        alice = client(broker.bootstrap_servers, "alice")
        assert question(alice).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("question", QUESTIONS)
def test_nobody_gets_any_without_a_login(tmp_path: Path, question: Callable[[Client], Any]) -> None:
    settings = {"data_dir": tmp_path / "data", "delegation_token_secret_key": "of all brokers"}
    with kafkalite.Broker(port=0, **settings) as broker:
        answer = question(Client(broker.bootstrap_servers))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_that_has_expired_goes_and_ends_its_sessions(tmp_path: Path) -> None:
    with broker_in(tmp_path, delegation_token_expiry_check_interval_ms="50") as broker:
        at = broker.bootstrap_servers
        alice = client(at, "alice")
        token = alice.create(life_ms=1_500)
        properties = by_token(at, token)._security
        with BlockingClient(at, DEADLINE_S, properties) as session:
            assert session._login_due_s != float("inf"), "the session ends with the token"
        until(lambda: not alice.ids(), "the token to go")
        assert alice.renew(bytes(token.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_all_brokers_of_a_cluster_obey_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_plaintext_plain_sasl_jaas_config": JAAS,
        "delegation_token_secret_key": "of all brokers",
    }
    with Cluster(2, data_dir=tmp_path / "cluster", **settings) as cluster:
        one, other = cluster.bootstrap_servers.split(",")
        token = client(one, "alice").create()
        assert token.error_code == 0
        until(lambda: client(other, "alice").ids() == {token.token_id}, "the other broker to know the token")
        assert by_token(other, token).ask(MetadataRequest(topics=[]), 9).brokers
        later = client(other, "bob").renew(bytes(token.hmac), 1 << 40)
        assert later.expiry_timestamp_ms == token.max_timestamp_ms
        assert client(other, "alice").expire(bytes(token.hmac)).error_code == 0
        until(lambda: client(one, "alice").ids() == set(), "the first broker to forget the token")
