"""Principals as text."""

from __future__ import annotations

import pytest

from kafkalite.security.principal import name_of, parse_principal, user


@pytest.mark.parametrize(
    ("text", "expected"), [("User:alice", ("User", "alice")), ("User:CN=a:b,C=DE", ("User", "CN=a:b,C=DE"))]
)
def test_a_principal_is_split_at_its_first_colon(text: str, expected: tuple[str, str]) -> None:
    assert parse_principal(text) == expected
    assert name_of(text) == expected[1]
    assert user(expected[1]) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_principal_needs_type_and_name(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        parse_principal(text)
