"""Listeners that stock clients add to a broker that runs, use, and remove again."""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import kafkalite
from kafkalite.testing import Cluster
from tests.support.certificates import Authority
from tests.support.token_server import TokenServer, token_server
from tests.support.wait import DEADLINE_S, until

QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAINTEXT = "PLAINTEXT://127.0.0.1:0"
OF_CARLA = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carla="her secret";'


def client(port: int, **settings: Any) -> AdminClient:
    named = {name if name == "oauth_cb" else name.replace("_", "."): value for name, value in settings.items()}
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **named}, logger=QUIET)


def change(admin: AdminClient, broker: int = 0, **settings: str | None) -> None:
    """None deletes a setting."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=entries)
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(DEADLINE_S)


def ports_of(broker: Any) -> dict[str, int]:
    return dict(broker.server.server.ports)


def brokers_at(admin: AdminClient) -> set[int]:
    return {broker.port for broker in admin.list_topics(timeout=DEADLINE_S).brokers.values()}


def is_refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


def test_listeners_with_tls_and_logins_come_and_the_first_one_goes(tmp_path: Path) -> None:
    authority = Authority()
    pem, ca = authority.identify().write(tmp_path / "broker.pem"), authority.write(tmp_path / "ca.pem")
    with kafkalite.Broker(data_dir=tmp_path / "data", listeners=PLAINTEXT) as broker:
        first = ports_of(broker)["PLAINTEXT"]
        plain = client(first)
        change(
            plain,
            listeners=f"{PLAINTEXT},TLS://127.0.0.1:0,LOGIN://127.0.0.1:0",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT",
            listener_name_tls_ssl_keystore_location=pem,
            listener_name_tls_ssl_keystore_type="PEM",
            listener_name_login_sasl_enabled_mechanisms="PLAIN",
            listener_name_login_plain_sasl_jaas_config=OF_CARLA,
        )
        until(lambda: ports_of(broker).keys() == {"PLAINTEXT", "TLS", "LOGIN"}, "the new listeners")
        assert ports_of(broker)["PLAINTEXT"] == first
        tls = client(ports_of(broker)["TLS"], security_protocol="ssl", ssl_ca_location=ca)
        assert brokers_at(tls) == {ports_of(broker)["TLS"]}
        login = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_username": "carla"}
        carla = client(ports_of(broker)["LOGIN"], **login, sasl_password="her secret")
        assert brokers_at(carla) == {ports_of(broker)["LOGIN"]}
        with pytest.raises(confluent_kafka.KafkaException):
            client(ports_of(broker)["LOGIN"], **login, sasl_password="no").list_topics(timeout=1)
        change(carla, listeners="TLS://127.0.0.1:0,LOGIN://127.0.0.1:0")
        until(lambda: is_refused(first), "nobody to be accepted there")
        until(lambda: not connected(broker, "PLAINTEXT"), "its connections to be closed")
        assert brokers_at(tls) == {ports_of(broker)["TLS"]}
    with kafkalite.Broker(data_dir=tmp_path / "data", listeners=PLAINTEXT) as broker:
        assert ports_of(broker).keys() == {"TLS", "LOGIN"}, "also at the next start"
        tls = client(ports_of(broker)["TLS"], security_protocol="ssl", ssl_ca_location=ca)
        change(tls, listeners=None)
        until(lambda: ports_of(broker).keys() == {"PLAINTEXT"}, "what the properties say")
        assert brokers_at(client(ports_of(broker)["PLAINTEXT"]))


def connected(broker: Any, listener: str) -> list[Any]:
    return [each for each in list(broker.server.server.clients()) if each.listener_name == listener]


def test_keys_for_tokens_that_come_slowly_keep_nobody_waiting(tmp_path: Path) -> None:
    asked, may_answer = threading.Event(), threading.Event()
    with token_server(TokenServer({})) as server:
        server.before_keys = lambda: asked.set() or may_answer.wait(DEADLINE_S)
        settings = {
            "listeners": PLAINTEXT,
            "sasl_server_callback_handler_class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl_oauthbearer_jwks_endpoint_url": server.jwks_url,
        }
        with kafkalite.Broker(data_dir=tmp_path / "data", **settings) as broker:
            admin = client(ports_of(broker)["PLAINTEXT"])
            new = {
                "listeners": f"{PLAINTEXT},LOGIN://127.0.0.1:0",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
                "sasl_enabled_mechanisms": "OAUTHBEARER",
            }
            changing = threading.Thread(target=lambda: change(admin, **new))
            changing.start()
            assert asked.wait(DEADLINE_S)
            assert client(ports_of(broker)["PLAINTEXT"]).list_topics(timeout=DEADLINE_S).brokers
            assert changing.is_alive() and "LOGIN" not in ports_of(broker)
            may_answer.set()
            changing.join(DEADLINE_S)
            until(lambda: "LOGIN" in ports_of(broker), "the listener")
            now = time.time()
            token = server.authority.sign(sub="alice", iat=now - 1, exp=now + 60)
            login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
            alice = client(ports_of(broker)["LOGIN"], **login, oauth_cb=lambda _: (token, now + 60))
            alice.poll(0)
            assert alice.list_topics(timeout=DEADLINE_S).brokers


def test_what_cannot_be_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(data_dir=tmp_path, listeners=PLAINTEXT) as broker,
        socket.create_server(("127.0.0.1", 0)) as it,
    ):
        taken = it.getsockname()[1]
        admin = client(broker.port)
        for settings, words in (
            ({"listeners": f"{PLAINTEXT},SSL://127.0.0.1:0"}, "ssl.keystore"),
            ({"listeners": f"{PLAINTEXT},OTHER://127.0.0.1:0"}, "no security protocol"),
            ({"listeners": ""}, "nothing to listen on"),
            ({"listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT"}, "stays PLAINTEXT"),
            ({"advertised_listeners": "OTHER://localhost:1"}, "no such listener|no security protocol"),
            (
                {
                    "listeners": f"{PLAINTEXT},OTHER://127.0.0.1:{taken}",
                    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
                },
                "is in use by another process",
            ),
        ):
            with pytest.raises(confluent_kafka.KafkaException, match=words):
                change(admin, **settings)
        assert ports_of(broker).keys() == {"PLAINTEXT"} and not broker.server.metadata.broker_configs.get("0")


def test_a_port_passes_to_another_listener_and_addresses_are_told_anew(tmp_path: Path) -> None:
    with kafkalite.Broker(data_dir=tmp_path, listeners=PLAINTEXT) as broker:
        port = broker.port
        admin = client(port)
        change(
            admin,
            listeners=f"OTHER://127.0.0.1:{port}",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        )
        until(lambda: ports_of(broker) == {"OTHER": port}, "the other listener")
        change(client(port), advertised_listeners="OTHER://localhost:1")
        until(lambda: broker.server.config.advertised("OTHER") is not None, "the advertised address")
        assert brokers_at(client(port)) == {1}


def test_the_others_of_a_cluster_learn_of_a_new_listener() -> None:
    with Cluster(2) as cluster:
        one, other = cluster.brokers[0], cluster.brokers[1]
        map_ = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
        for number, broker in enumerate((one, other)):
            change(
                client(broker.port),
                number,
                listeners=f"PLAINTEXT://127.0.0.1:{broker.port},OUTSIDE://127.0.0.1:0",
                listener_security_protocol_map=map_,
                advertised_listeners=f"PLAINTEXT://127.0.0.1:{broker.port},OUTSIDE://localhost:{7001 + number}",
            )
        until(lambda: all("OUTSIDE" in ports_of(each) for each in (one, other)), "the new listeners")
        for broker in (one, other):
            outside = client(ports_of(broker)["OUTSIDE"])
            until(lambda outside=outside: brokers_at(outside) == {7001, 7002}, "both addresses")
        assert brokers_at(client(one.port)) == {one.port, other.port}
        change(client(one.port), 0, listeners=f"PLAINTEXT://127.0.0.1:{one.port}", advertised_listeners=None)
        outside = client(ports_of(other)["OUTSIDE"])
        until(lambda: brokers_at(outside) == {7002}, "the other address alone")
