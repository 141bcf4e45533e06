"""A cluster whose brokers log in to each other by tokens of an authority (OAUTHBEARER), as do their clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import jwt
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.cli.main import main
from kafkalite.testing import Cluster
from tests.support.certificates import Authority
from tests.support.counted_logins import count_logins
from tests.support.token_server import TokenServer, token_server
from tests.support.wait import DEADLINE_S, until

QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

AUTHORITY = Authority()
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
CLIENTS = {"broker": "b-s3cret", "admin": "a-s3cret", "mallory": "m-s3cret"}


class Place:
    """Settings of brokers, and of clients, which get their tokens from `server`."""

    def __init__(self, path: Path, protocol: str, server: TokenServer) -> None:
        self.path, self.protocol, self.server = path, protocol, server
        self.ca = AUTHORITY.write(path / "ca.pem")
        self.broker_pem = AUTHORITY.identify().write(path / "broker.pem")

    @contextmanager
    def cluster(self, **settings: Any) -> Iterator[Cluster]:
        values = {
            "listener_security_protocol_map": f"PLAINTEXT:{self.protocol}",
            "inter_broker_listener_name": "PLAINTEXT",
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_mechanism_inter_broker_protocol": "OAUTHBEARER",
            "listener_name_plaintext_oauthbearer_sasl_jaas_config": self.module("broker"),
            "sasl_server_callback_handler_class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
            "sasl_login_callback_handler_class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl_oauthbearer_token_endpoint_url": self.server.url,
            "sasl_oauthbearer_jwks_endpoint_url": self.server.jwks_url,
            "sasl_oauthbearer_expected_audience": "kafka",
            "ssl_keystore_location": self.broker_pem,
            "ssl_truststore_location": self.ca,
            "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
            "super_users": "User:broker;User:admin",
            "default_replication_factor": 3,
            "min_insync_replicas": 3,
            "offsets_topic_replication_factor": 3,
            "transaction_state_log_replication_factor": 3,
        }
        with Cluster(3, data_dir=self.path / "cluster", **{**values, **settings}) as cluster:
            yield cluster

    def module(self, client: str) -> str:
        return f'{PACKAGE}.OAuthBearerLoginModule required clientId="{client}" clientSecret="{CLIENTS[client]}";'

    def client(self, cluster: Cluster) -> dict[str, Any]:
        """The administrator, by librdkafka."""

        def token(_: str) -> tuple[str, float]:
            now = time.time()
            text = self.server.authority.sign(sub="admin", iat=now - 1, exp=now + 3600, aud="kafka")
            return text, now + 3600

        return {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": self.protocol,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
            "ssl.ca.location": self.ca,
            "logger": QUIET,
        }

    def properties(self, client: str) -> str:
        """A file for our commands, and for Kafka's."""
        file = self.path / f"{client}.properties"
        file.write_text(
            f"security.protocol={self.protocol}\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={self.server.url}\n"
            f"sasl.jaas.config={self.module(client)}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.ca}\n"
        )
        return str(file)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server(TokenServer(CLIENTS)) as made:
        yield made


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def place(tmp_path: Path, server: TokenServer, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, request.param, server)


def create(mine: dict[str, Any]) -> None:
    admin = AdminClient(mine)
    admin.poll(0)  # which asks for the token
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(DEADLINE_S)


def produced(mine: dict[str, Any], count: int) -> None:
    """Returns when all replicas have them."""
    producer = confluent_kafka.Producer({**mine, "acks": "all"})
    errors: list[Any] = []
    for i in range(count):
        producer.produce("orders", b"%d" % i, on_delivery=lambda error, _: errors.append(error))
    until(lambda: producer.flush(0.2) == 0, "all records")
    assert errors == [None] * count


def test_replicas_follow_and_our_commands_log_in(
    place: Place, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with place.cluster() as cluster:
        mine = place.client(cluster)
        create(mine)
        produced(mine, 100)
        leader = cluster.leader_of("orders", 0)
        assert leader is not None
        cluster.stop(leader)
        cluster.start(leader)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})
        produced(mine, 100)
        there = ["--bootstrap-server", cluster.bootstrap_servers]
        login = place.properties("admin")
        for command in (["topic", "describe", "orders"], ["cleaner", "status"], ["txn", "list"]):
            assert main([*command, *there, "--command-config", login]) == 0
        one = ["--bootstrap", cluster.brokers[1].bootstrap_servers]
        assert main(["health", *one, "--command-config", login]) == 0
        told = capsys.readouterr()
        assert "orders" in told.out and "one of 3 in cluster" in told.out
        place.server.clients = {"broker": "b-s3cret"}
        assert main(["health", *one, "--command-config", place.properties("mallory")]) == 1
        refused = capsys.readouterr().err
        assert "there is no credential for OAUTHBEARER: http" in refused and "401: invalid_client" in refused
        everything = told.out + told.err + refused + caplog.text
        assert not any(secret in everything for secret in CLIENTS.values())


def test_tokens_are_replaced_and_sessions_renewed_before_they_end(
    tmp_path: Path, server: TokenServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logins = count_logins(monkeypatch)
    server.lifetime_s = 6
    place = Place(tmp_path, "SASL_PLAINTEXT", server)
    settings = {
        "replica_lag_time_max_ms": 1_000,
        "sasl_oauthbearer_clock_skew_seconds": 0,
        # a session has what is left of its token: by default too little of these short ones for a second log-in
        "sasl_login_refresh_window_factor": 0.5,
        "sasl_login_refresh_window_jitter": 0,
    }
    with place.cluster(**settings) as cluster:
        mine = place.client(cluster)
        create(mine)
        before = len(logins), len(server.asked)

        def goes_on() -> bool:
            produced(mine, 5)
            return len(logins) >= 3 * before[0] and len(server.asked) >= before[1] + 6

        until(goes_on, "tokens to be replaced twice at every broker")
        assert cluster.isr("orders", 0) == {0, 1, 2}
        assert "is lost" not in caplog.text and "is refused" not in caplog.text


def test_the_authority_may_be_away_as_long_as_the_token_holds(
    tmp_path: Path, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", server)
    with place.cluster(connections_max_reauth_ms=2_000) as cluster:
        mine = place.client(cluster)
        create(mine)
        until(lambda: len(server.asked) == 3, "every broker to have a token")
        server.clients = {}
        asked = len(server.asked)
        for _ in range(5):
            produced(mine, 5)
        assert cluster.isr("orders", 0) == {0, 1, 2} and len(server.asked) == asked


def test_a_broker_whose_token_nobody_knows_is_said(
    tmp_path: Path, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", server)
    strange = jwt.encode({"sub": "broker", "iat": 1, "exp": 1e10, "aud": "kafka"}, "x" * 32, algorithm="HS256")
    (tmp_path / "token").write_text(strange)
    settings = {
        "listener_name_plaintext_oauthbearer_sasl_oauthbearer_token_endpoint_url": (tmp_path / "token").as_uri()
    }
    with place.cluster(min_insync_replicas=1, **settings) as cluster:
        create(place.client(cluster))
        until(lambda: "refuses the login of broker by OAUTHBEARER" in caplog.text, "the log of a follower")
        until(lambda: "a token of OAUTHBEARER is refused: its algorithm is 'HS256'" in caplog.text, "the leader's log")
        assert strange not in caplog.text


def test_a_broker_without_an_authority_does_not_start(tmp_path: Path, server: TokenServer) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", server)
    with (
        pytest.raises(Exception, match=r"sasl\.oauthbearer\.token\.endpoint\.url is not set"),
        place.cluster(sasl_oauthbearer_token_endpoint_url=""),
    ):
        pass
