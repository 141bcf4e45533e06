"""Principals: the owner of a connection, as ACLs, quotas and audit lines name it.

A principal is text, TYPE:NAME, everywhere but here; the name may contain colons. Equality is that of the text.
Source: org.apache.kafka.common.security.auth.KafkaPrincipal.
"""

from __future__ import annotations

USER = "User"
WILDCARD = "User:*"


def user(name: str) -> str:
    """The principal of a user."""
    return f"{USER}:{name}"


def parse_principal(text: str) -> tuple[str, str]:
    """(type, name), split at the first colon. Raises ValueError unless both are there."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"must be TYPE:NAME, such as User:alice, and '{text}' is not")
    return kind, name


def name_of(principal: str) -> str:
    """The name alone, as quotas know it."""
    return principal.partition(":")[2]
