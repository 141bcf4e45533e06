"""The znodes of delegation tokens: a node for each, below a node that only brokers may read.

    /delegation_token/tokens/CI1Rg4CgQ2KxJ8ZSV5vZ5A
    /delegation_token/token_changes/token_change_0000000001     the token's id; Apache Kafka's brokers read it again

Source: kafka.zk.ZkData (DelegationTokenInfoZNode), kafka.server.DelegationTokenManagerZk.
"""

from __future__ import annotations

from kafkalite.common.names import desanitized, sanitized
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.security.principal import parse_principal
from kafkalite.zk.znodes import json_object as js

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE = f"{CHANGES}/token_change_"
PERSISTENT = (TOKENS, CHANGES)
"""Nodes that a broker with a secret for tokens creates at its start."""

_VERSION = 3
_WITH_REQUESTER = 3


def path_of(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def token_of(path: str) -> str | None:
    """The id in /delegation_token/tokens/ID."""
    name = path.removeprefix(f"{TOKENS}/")
    return name if name and name != path and "/" not in name else None


def token_json(token: DelegationToken) -> bytes:
    """With the keys in the order in which Kafka 3.9 writes them."""
    return js.encode(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitized(each) for each in token.renewers],
            "tokenRequester": sanitized(token.requester),
            "tokenId": token.token_id,
            "owner": sanitized(token.owner),
            "expiryTimestamp": token.expiry_ms,
            "maxTimestamp": token.max_ms,
            "version": _VERSION,
        }
    )


def parse_token(data: bytes, token_id: str) -> DelegationToken:
    """Raises ValueError."""
    source = js.parse(data)
    version = js.integer(source, "version", 1, _VERSION)
    if js.text(source, "tokenId") != token_id:
        raise ValueError("it has another id than its node")
    owner = _principal(js.text(source, "owner"))
    return DelegationToken(
        token_id,
        owner,
        _principal(js.text(source, "tokenRequester")) if version >= _WITH_REQUESTER else owner,
        tuple(_principal(js.as_text(each, "a renewer")) for each in js.list_of(source, "renewers")),
        *(js.integer(source, key, 0, js.INT64_MAX) for key in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")),
    )


def _principal(text: str) -> str:
    name = desanitized(text)
    parse_principal(name)
    return name
