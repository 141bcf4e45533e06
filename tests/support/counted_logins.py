"""Logins of this process at brokers, counted as they begin."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.client import sasl_login
from kafkalite.security.sasl.client_exchange import Login


def count_logins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those who log in from now on, in the order in which they begin."""
    logins: list[str] = []
    conversation = sasl_login.conversation

    def counted(login: Login, host: str) -> Any:
        logins.append(login.name)
        return conversation(login, host)

    monkeypatch.setattr(sasl_login, "conversation", counted)
    return logins
