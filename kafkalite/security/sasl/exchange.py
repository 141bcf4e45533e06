"""One authentication by one SASL mechanism, as a conversation of tokens.

Source: javax.security.sasl.SaslServer, RFC 4422.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """The text is for the client. It says nothing of who exists."""


class Step(NamedTuple):
    """The server's answer, None if it has nothing to say any more; when all is proven, also the user and until when
    that holds (None: for ever), and whether a delegation token proved it."""

    token: bytes | None
    name: str | None = None
    lifetime_ms: int | None = None
    is_by_token: bool = False


class Exchange(Protocol):
    """Lives for one authentication."""

    def evaluate(self, token: bytes) -> Step:
        """The answer to a token of the client. Raises AuthenticationFailed."""
        ...
