"""One authentication by one SASL mechanism, as a conversation of tokens.

Source: javax.security.sasl.SaslServer, RFC 4422.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """The text is for the client. It says nothing of who exists."""


class Step(NamedTuple):
    """The server's answer, None if it has nothing to say any more; when all is proven, also the user and until when
    that holds (None: for ever)."""

    token: bytes | None
    name: str | None = None
    lifetime_ms: int | None = None


class Exchange(Protocol):
    """Lives for one authentication."""

    def evaluate(self, token: bytes) -> Step:
        """The answer to a token of the client. Raises AuthenticationFailed."""
        ...
