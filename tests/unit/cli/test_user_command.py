"""`kafkalite user`: users before the first start, in ZooKeeper and by the API, who can log in afterwards."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import kafkalite
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.wait import DEADLINE_S, until
from tests.support.zookeeper import without_zookeeper

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Place:
    """The settings of a broker with SCRAM, and what `kafkalite user` says about it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.capsys, self.monkeypatch = capsys, monkeypatch
        self.file = path / "server.properties"
        self.settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(path / "data"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_admin="a-secret";',
        }

    def user(self, *arguments: str, there: list[str] | None = None, code: int = 0, typed: str = "") -> str:
        """The output: on stdout, or on stderr for another code."""
        self.file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        where = ["--config", str(self.file)] if there is None else there
        assert main(["user", *arguments, *where]) == code
        told = self.capsys.readouterr()
        return told.err if code else told.out

    def add(self, name: str, password: str, *arguments: str, **how: Any) -> str:
        return self.user("add", name, "--password-file", "-", *arguments, typed=password + "\n", **how)

    def broker(self) -> kafkalite.Broker:
        return kafkalite.Broker(BrokerConfig.load(read_properties(str(self.file))))

    def let_in(self, broker: kafkalite.Broker, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "log_level": 0,
        }
        faults: list[confluent_kafka.KafkaError] = []
        client = AdminClient({**settings, "error_cb": faults.append})
        while True:
            try:
                return bool(client.list_topics(timeout=0.5).brokers)
            except confluent_kafka.KafkaException:
                client.poll(0)
                if any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in faults):
                    return False


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, capsys, monkeypatch)


def test_users_exist_before_the_first_start(place: Place) -> None:
    assert place.user("list").split() == ["USER", "MECHANISM", "ITERATIONS"]
    place.add("alice", "wonder land")
    place.add("a,b=c ü", "x", "--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192")
    place.add("bob", "old")
    place.add("bob", "new")
    rows = [line.split() for line in place.user("list").splitlines()[1:]]
    assert ["alice", "SCRAM-SHA-512", "4096"] in rows and len(rows) == 4
    with place.broker() as broker:
        assert place.let_in(broker, "alice", "wonder land")
        assert place.let_in(broker, "a,b=c ü", "x", "SCRAM-SHA-256")
        assert place.let_in(broker, "bob", "new") and not place.let_in(broker, "bob", "old")
        assert not place.let_in(broker, "alice", "wonder land", "SCRAM-SHA-256")
        assert "in use" in place.user("list", code=1)
    place.user("remove", "a,b=c ü", "--mechanism", "SCRAM-SHA-256")
    place.user("remove", "bob")
    rows = [json.loads(line) for line in place.user("list", "--json").splitlines()]
    assert rows == [
        {"user": "a,b=c ü", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    with place.broker() as broker:
        assert place.let_in(broker, "alice", "wonder land") and not place.let_in(broker, "bob", "new")


def test_users_of_a_broker_that_runs(place: Place) -> None:
    place.user("list")
    login = place.path / "admin.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="admin" password="a-secret";\n'
    )
    with place.broker() as broker:
        there = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(login)]
        place.add("alice", "wonderland", "--iterations", "5000", there=there)
        assert place.let_in(broker, "alice", "wonderland")
        assert place.user("list", there=there).splitlines()[1].split() == ["alice", "SCRAM-SHA-512", "5000"]
        place.user("remove", "alice", there=there)
        assert not place.let_in(broker, "alice", "wonderland")
        assert "'alice' has no credentials; `kafkalite user list`" in place.user("remove", "alice", there=there, code=1)
        assert "refuses the connection" in place.user("list", there=[*there[:2], *_wrong(login)], code=1)


def _wrong(login: Path) -> list[str]:
    login.write_text(login.read_text().replace("a-secret", "b-secret"))
    return ["--command-config", str(login)]


@pytest.mark.skipif(bool(without_zookeeper()), reason="needs a ZooKeeper")
def test_users_in_zookeeper(place: Place, zookeeper: Any, chroot: str) -> None:
    place.settings["zookeeper.connect"] = zookeeper.connect + chroot
    place.settings["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    place.add("alice", "wonderland")
    place.add("a/b", "x", "--mechanism", "SCRAM-SHA-256")
    rows = [line.split() for line in place.user("list").splitlines()[1:]]
    assert rows == [["a/b", "SCRAM-SHA-256", "4096"], ["alice", "SCRAM-SHA-512", "4096"]]
    with place.broker() as broker:
        place.add("bob", "late")  # at any time: the broker learns of it a moment later
        login = place.path / "bob.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={MODULE} username="bob" password="late";\n'
        )
        health = [
            "health",
            "--bootstrap",
            broker.bootstrap_servers,
            "--command-config",
            str(login),
            "--timeout",
            str(DEADLINE_S),
        ]
        until(lambda: main(health) == 0, "the login of bob")
    place.user("remove", "alice")
    assert "alice" not in place.user("list")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["add", "", "--password-file", "-"], "a user's name has 1 to 1000 characters"),
        (["add", "a\nb", "--password-file", "-"], "that can be printed"),
        (["add", "a"], "there is no terminal to ask for the password; give --password-file"),
        (["add", "a", "--password-file", "/nowhere"], "--password-file /nowhere cannot be read: No such file"),
        (["add", "a", "--password-file", "-", "--iterations", "4095"], "must be from 4096 to 16384"),
        (["add", "a", "--password-file", "-"], "the password is empty"),
        (["remove", "a"], "'a' has no credentials"),
        (["list", "--bootstrap-server", "localhost:1"], "give only one"),
        (["list", "--command-config", "x"], "is for a running broker"),
    ],
)
def test_mistakes_are_told(place: Place, arguments: list[str], fault: str) -> None:
    assert fault in place.user(*arguments, code=1)


def test_a_password_is_taken_whole_or_not_at_all(place: Place) -> None:
    assert "more than 10000 characters" in place.add("alice", "p" * 10_001, code=1)
    place.add("alice", "p" * 10_000)
    with place.broker() as broker:
        assert place.let_in(broker, "alice", "p" * 10_000)


def test_a_directory_of_another_broker_is_taken_over_first(place: Place) -> None:
    (place.path / "data" / "orders-0").mkdir(parents=True)
    (place.path / "data" / "orders-0" / "00000000000000000000.log").touch()
    (place.path / "data" / "meta.properties").write_text("version=0\nbroker.id=0\n")
    assert "start kafkalite on it once" in place.add("alice", "x", code=1)


def test_a_weak_password_is_taken_with_a_warning(place: Place) -> None:
    place.add("alice", "alice-1")
    place.capsys.readouterr()
    for password, warns in (("wonderland", True), ("through-the-looking-glass", False)):
        place.file.write_text("".join(f"{name}={value}\n" for name, value in place.settings.items()))
        place.monkeypatch.setattr(sys, "stdin", io.StringIO(password + "\n"))
        assert main(["user", "add", "alice", "--password-file", "-", "--config", str(place.file)]) == 0
        told = place.capsys.readouterr().err
        assert ("the password is shorter than 12 characters" in told) == warns and password not in told
