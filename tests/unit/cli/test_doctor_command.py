"""`kafkalite doctor`: about settings, and about a broker that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalite
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.certificates import DAY, Authority

AUTHORITY = Authority()
PASSWORD = "ckvBW2nR0aXoQm"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}


class Place:
    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capsys = capsys
        self.file = path / "server.properties"
        self.ca = AUTHORITY.write(path / "ca.pem")
        self.key = path / "broker.pem"
        AUTHORITY.identify(valid=(-DAY, 365 * DAY)).write(self.key)
        self.key.chmod(0o600)

    def write(self, **settings: str) -> None:
        given = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "log.dirs": str(self.path / "data"),
            "ssl.keystore.location": str(self.key),
            "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} user_admin="{PASSWORD}";',
            **ACLS,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self.file.chmod(0o600)

    def doctor(self, *arguments: str, code: int = 0) -> str:
        assert main(["doctor", *arguments]) == code
        told = self.capsys.readouterr()
        return told.out + told.err

    def broker(self) -> kafkalite.Broker:
        return kafkalite.Broker(BrokerConfig.load(read_properties(str(self.file))))

    def login(self) -> str:
        file = self.path / "admin.properties"
        file.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.location={self.ca}\n"
            f'sasl.jaas.config={MODULE} username="admin" password="{PASSWORD}";\n'
        )
        return str(file)


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


def test_settings_without_a_fault(place: Place) -> None:
    place.write()
    told = place.doctor(str(place.file))
    assert "listener SASL_SSL: SASL_SSL at 127.0.0.1:0, by PLAIN, SCRAM-SHA-256" in told
    assert "    sasl.mechanism=SCRAM-SHA-256\n" in told and f"    ssl.ca.location={place.ca}\n" in told
    assert '    "sasl_plain_username": "alice",' in told and told.endswith("No warnings.\n")
    assert PASSWORD not in told


def test_settings_with_many(place: Place) -> None:
    place.write(listeners="SASL_SSL://:9093,PLAINTEXT://:9092", advertised_listeners="SASL_SSL://kafka.example:9093")
    AUTHORITY.identify(valid=(-DAY, 3 * DAY)).write(place.key)
    place.key.chmod(0o644)
    place.file.chmod(0o644)
    told = place.doctor(str(place.file), code=1)
    for part in (
        "5 warnings:",
        "its advertised address is kafka.example:9093",
        "    bootstrap.servers=kafka.example:9093\n",
        "! listener PLAINTEXT (PLAINTEXT) has no authentication",
        "listener SASL_SSL: the certificate expires in 2 days",
        "the certificate is not for kafka.example, which clients dial; it is for localhost, 127.0.0.1",
        f"{place.key} (ssl.keystore.location of SASL_SSL) can be read by every user of this machine",
        f"{place.file} (the settings, listener.name.sasl_ssl.plain.sasl.jaas.config among them) can be read",
    ):
        assert part in told
    place.key.unlink()
    assert "cannot be served: ssl.keystore.location=" in place.doctor(str(place.file), code=1)


def test_the_settings_of_one_client(place: Place) -> None:
    place.write(listeners="SASL_SSL://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092")
    of = [str(place.file), "--client", "librdkafka"]
    assert place.doctor(*of, "--listener", "plaintext") == (
        "bootstrap.servers=127.0.0.1:9092\nsecurity.protocol=PLAINTEXT\n"
    )
    told = place.doctor(*of, "--mechanism", "PLAIN", "--user", "bob", "--ca", "/ca")
    assert told.splitlines()[2:] == [
        "sasl.mechanism=PLAIN", "sasl.username=bob", "sasl.password=PASSWORD", "ssl.ca.location=/ca",
    ]  # fmt: skip
    assert "enabled there are PLAIN, SCRAM-SHA-256" in place.doctor(*of, "--mechanism", "GSSAPI", code=1)
    assert "there is no such listener" in place.doctor(*of, "--listener", "x", code=1)


def test_a_broker_that_runs_and_lets_us_ask(place: Place) -> None:
    place.write(allow_everyone_if_no_acl_found="true")
    with place.broker() as broker:
        there = ["--bootstrap", broker.bootstrap_servers]
        told = place.doctor(*there, "--command-config", place.login(), code=1)
        assert "listener SASL_SSL: SASL_SSL at 127.0.0.1:" in told and "by PLAIN, SCRAM-SHA-256" in told
        assert "! broker 0: allow.everyone.if.no.acl.found=true" in told and "1 warning:" in told

        stranger = place.doctor(*there)
        assert "only the listener at 127.0.0.1:" in stranger and "SASL_SSL at 127.0.0.1:" in stranger
        assert "by PLAIN, SCRAM-SHA-256" in stranger and "ssl.truststore.location=CA.pem" in stranger
    assert "cannot reach 127.0.0.1:" in place.doctor(*there, code=1)
    assert "give only one of" in place.doctor(str(place.file), *there, code=1)


@pytest.mark.parametrize(
    ("settings", "met"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "PLAINTEXT at "),
        ({"listeners": "SSL://127.0.0.1:0"}, "SSL at "),
        ({"listeners": "SSL://127.0.0.1:0", "ssl_client_auth": "required"}, "clients' certificates are required"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl_enabled_mechanisms": "SCRAM-SHA-512"}, "by SCRAM-SHA-512"),
    ],
)
def test_a_stranger_learns_the_protocol(place: Place, settings: dict[str, str], met: str) -> None:
    place.write(**{"super_users": "", "authorizer_class_name": "", **settings})
    text = place.file.read_text().replace("listener.name.sasl_ssl.plain.sasl.jaas.config", "#")
    place.file.write_text(text)
    AUTHORITY.identify(valid=(-DAY, 3 * DAY)).write(place.key)
    with place.broker() as broker:
        main(["doctor", "--bootstrap", broker.bootstrap_servers])
        told = place.capsys.readouterr().out
        assert met in told and ("expires in 2 days" in told) is ("SSL at" in told)
