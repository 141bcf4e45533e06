"""JAAS lines."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.sasl.jaas import parse_jaas, parse_jaas_file, plain_users
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
