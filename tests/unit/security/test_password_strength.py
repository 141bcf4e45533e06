"""Passwords that an operator is warned of."""

from __future__ import annotations

import pytest

from kafkalite.security.password_strength import weakness


@pytest.mark.parametrize(
    ("password", "fault"),
    [
        ("Password1!", "first that are tried"),
        ("kafka", "first that are tried"),
        ("alice-2024", "user's name"),
        ("wonderland", "shorter than 12"),
        ("correct-horse-battery", None),
        ("alice-and-the-looking-glass", None),
    ],
)
def test_a_weak_password_is_told_why(password: str, fault: str | None) -> None:
    found = weakness("alice", password)
    assert found is None if fault is None else found is not None and fault in found
