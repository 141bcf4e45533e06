"""JAAS lines."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.jaas import login_module, parse_jaas, parse_jaas_file, plain_users
from kafkalite.config.properties import read_environment
from tests.support.jaas_file import FILE


def test_users_of_plain() -> None:
    module = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule REQUIRED // the broker's own\n"
        ' username="admin" password=\'se"cret\' /* all\n others */ user_admin="se\\"cret" user_alice=wonder ;'
    )
    assert module.name.endswith("PlainLoginModule")
    assert plain_users(module) == {"admin": 'se"cret', "alice": "wonder"}
    assert "cret" not in repr(module)


def test_escapes_are_those_of_c() -> None:
    assert parse_jaas(r'a required x="\t\n\\\101\"";').options == {"x": '\t\n\\A"'}


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a required", "a required x=y", "a sometimes x=y;", "a required x y;", "a required =y;",
        "a required x=;", "a required x=1;", 'a required x="y', "a required; b required;", "a required x=/file;",
    ],
)  # fmt: skip
def test_lines_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|quoted"):
        parse_jaas(text)


def test_a_file_has_sections_of_modules() -> None:
    sections = parse_jaas_file(FILE)
    assert list(sections) == ["KafkaServer", "sasl_ssl.KafkaServer", "Client"]
    assert [plain_users(each) for each in sections["KafkaServer"]] == [
        {"admin": "admin-secret", "alice": "alice-secret"},
        {},
    ]
    assert parse_jaas_file("") == {} and "secret" not in repr(sections)


@pytest.mark.parametrize(
    "text",
    ["a", "a {", "a { b required; }", "a { b required };", "a b", "{ };", "a { b required; };;", "a { }; a { };"],
)
def test_files_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_jaas_file(text)


WORDS = st.sampled_from(["a", "required", "=", ";", "{", "}", '"x"', "'", "//", "/*", "*/", "\n", " ", "\\", "1", "é"])


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
def test_whatever_a_file_has(text: str) -> None:
    for parse in (parse_jaas, parse_jaas_file):
        with contextlib.suppress(ValueError):
            parse(text)


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
