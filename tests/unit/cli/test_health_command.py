"""`kafkalite health`: which broker it asks, and the exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.cli.health_command import own_address
from kafkalite.cli.main import main
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from kafkalite.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.ports import free_port


def test_a_broker_that_serves(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        assert main(["health", "--bootstrap-server", broker.bootstrap_servers]) == 0
        assert (
            capsys.readouterr().out == f"{broker.bootstrap_servers} serves, one of 1 in cluster {broker.cluster_id}\n"
        )
        monkeypatch.setenv("KAFKA_LISTENERS", f"PLAINTEXT://:{broker.port}")
        assert main(["health"]) == 0


def test_all_of_several_brokers_must_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as one:
        with Broker() as other:
            gone = other.bootstrap_servers
            assert main(["health", "-b", f"{one.bootstrap_servers},{gone}"]) == 0
            assert capsys.readouterr().out.count(" serves, one of 1 in cluster ") == 2
        assert main(["health", "-b", f"{gone},{one.bootstrap_servers}"]) == 1
        shown = capsys.readouterr()
        assert "is the broker running?" in shown.err and f"{one.bootstrap_servers} serves" in shown.out


def test_a_broker_that_is_not_registered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = MetadataResponseBroker(node_id=1, host="h", port=9092, rack=None)
    answer = MetadataResponse(brokers=[alone], cluster_id="c", controller_id=-1, topics=[])
    with Broker() as broker:
        monkeypatch.setattr(BlockingClient, "ask", lambda *_: answer)
        assert main(["health", "--bootstrap-server", broker.bootstrap_servers]) == 1
        assert "no controller and no other broker" in capsys.readouterr().err
        answer.brokers.append(alone)
        assert main(["health", "--bootstrap-server", broker.bootstrap_servers]) == 0, "an election is under way"


def test_a_broker_that_is_not_there_or_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["health", "--bootstrap", address, "--timeout", "0.05"]) == 1
        assert "does not answer within 0.05 s" in capsys.readouterr().err
    assert main(["health", "--bootstrap", address]) == 1
    assert "is the broker running?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listeners", "address"),
    [
        ("PLAINTEXT://:9192", "127.0.0.1:9192"),
        ("PLAINTEXT://0.0.0.0:1234", "127.0.0.1:1234"),
        ("PLAINTEXT://[::]:1234", "[::1]:1234"),
        ("INSIDE://broker1:19092,PLAINTEXT://:9192", "broker1:19092"),
    ],
)
def test_the_address_is_the_first_listener_of_the_settings(tmp_path: Path, listeners: str, address: str) -> None:
    named = {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"}
    assert own_address(None, named | {"KAFKA_LISTENERS": listeners}) == address
    file = tmp_path / "server.properties"
    file.write_text(f"listeners={listeners}\n")
    assert own_address(str(file), named) == address
    assert own_address(None, {}) == "127.0.0.1:9092"


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("own_login", "says"),
    [
        ('username="b" password="secret"', "one of 1 in cluster"),
        ("", "serves clients that log in; give a login by --command-config"),
    ],
)
def test_a_broker_of_ones_own_with_sasl_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_login: str, says: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={tmp_path / 'data'}\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\nlistener.name.sasl_plaintext.plain.sasl.jaas.config="
        f'{MODULE} {own_login} user_b="secret";\n'
    )
    with Broker(BrokerConfig.load(read_properties(str(file)))):
        assert main(["health", str(file)]) == 0
        assert says in capsys.readouterr().out
    assert main(["health", str(file)]) == 1
