"""Where a login module is looked for: properties of the listener first, then the sections of a JAAS file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_environment
from kafkalite.security.sasl.jaas import plain_users
from kafkalite.security.sasl.login_modules import login_module
from tests.support.jaas_file import FILE

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jaas.conf"
    path.write_text(FILE)
    return path


def config(file: Path, **settings: str) -> BrokerConfig:
    given = {"listeners": "SASL_SSL://:9093,SASL_PLAINTEXT://:9092", "java.security.auth.login.config": str(file)}
    return BrokerConfig.load({**given, **settings})


def users(config: BrokerConfig, listener: str, mechanism: str = "PLAIN") -> dict[str, str] | None:
    found = login_module(config, listener, mechanism)
    return None if found is None else plain_users(found.module)


def test_the_most_special_place_wins(file: Path) -> None:
    ours = config(file)
    assert users(ours, "SASL_SSL") == {"bob": "b"}
    assert users(ours, "SASL_PLAINTEXT") == {"admin": "admin-secret", "alice": "alice-secret"}
    scram = login_module(ours, "SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert scram is not None and scram.module.options["password"] == "scram-secret"
    assert "section KafkaServer of java.security.auth.login.config=" in scram.where
    assert users(ours, "SASL_SSL", "SCRAM-SHA-512") is None, "its own section has none"
    own = config(file, **{"listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULE} user_carol=c;"})
    assert users(own, "SASL_SSL") == {"carol": "c"}
    assert login_module(BrokerConfig.load({}), "PLAINTEXT", "PLAIN") is None


def test_a_file_that_makes_no_sense_is_named(file: Path) -> None:
    file.write_text("KafkaServer {")
    with pytest.raises(ConfigError, match=r"java\.security\.auth\.login\.config=.*must end the section KafkaServer"):
        login_module(config(file), "SASL_SSL", "PLAIN")
    file.unlink()
    with pytest.raises(ConfigError, match=r"jaas\.conf cannot be read: No such file"):
        login_module(config(file), "SASL_SSL", "PLAIN")
    with pytest.raises(ConfigError, match=r"sasl_ssl\.plain\.sasl\.jaas\.config must be MODULE FLAG"):
        login_module(config(file, **{"listener.name.sasl_ssl.plain.sasl.jaas.config": "x"}), "SASL_SSL", "PLAIN")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("-Djava.security.auth.login.config=/etc/jaas.conf", "/etc/jaas.conf"),
        ('-Xmx1g -Djava.security.auth.login.config="/etc/a b.conf" -Dx=y', "/etc/a b.conf"),
        ("-Xmx1g -Dmy.java.security.auth.login.config=/no", None),
    ],
)
def test_the_options_of_java_name_the_file(options: str, path: str | None) -> None:
    assert read_environment({"KAFKA_OPTS": options}).get("java.security.auth.login.config") == path
