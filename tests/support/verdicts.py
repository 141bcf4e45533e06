"""Verdicts on names and tokens, in the words of `tests/compatibility/interop/java_verdicts.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.security.principal_rules import map_name, parse_mapping_rules, short_names
from kafkalite.security.sasl.exchange import AuthenticationFailed
from kafkalite.security.sasl.jwt import BearerToken, Keys, verify_signed, verify_unsecured
from kafkalite.security.sasl.oauthbearer import OAuthBearerExchange
from tests.support.drawn_tokens import NOW_MS, TokenCase
from tests.support.places import ROOT

REALM = "OURS"
GOLDEN = ROOT / "tests" / "golden" / "security"
UNKNOWN = "which kafkalite does not know"
"""What of rules is refused at the start on purpose, by its name (docs/differences.md)."""
STRICTER = {
    "signed": (
        "its header has crit",  # RFC 7515: not empty, and understood
        "its key is not for its algorithm",  # RFC 7517: that of the key is the only one
        "it is no signed JWT in the compact form",  # RFC 7515: the alphabet of base64url
        "it is no JWT",  # JSON in UTF-8, as in RFC 8259
        "its exp or iat is no time of this world",  # Kafka's product overflows
    ),
    "unsecured": (
        "it is no JWT",  # as above, and no name twice
        " is no text",  # Kafka makes text of anything
        " names no user",  # null is no name
    ),
}
"""What is said of tokens that are refused here alone, with its reason (docs/differences.md)."""
_LIFETIME_MS_MAX = 100 * 365 * 86_400_000


def golden(name: str) -> Any:
    """The verdicts of Kafka, from `tests/golden/security`."""
    return json.loads((GOLDEN / name).read_text())


def name_verdict(kind: str, name: str, rules: Sequence[str]) -> tuple[str, str]:
    """The user behind "=", "nobody", or "config" if the rules are refused; and why."""
    try:
        names = _mapping(rules[0]) if kind == "ssl" else short_names(rules, REALM)
    except ValueError as fault:
        return "config", str(fault)
    try:
        user = names(name)
    except ValueError as fault:
        return "nobody", str(fault)
    return ("nobody", "") if user is None else (f"={user}", "")


def _mapping(rules: str) -> Callable[[str], str | None]:
    parsed = parse_mapping_rules(rules)
    return lambda name: map_name(parsed, name)


def token_verdict(keys: Keys, case: TokenCase, now_ms: int) -> tuple[str, str]:
    """The principal behind "=" and the end of its token in ms, or "refused"; and why."""
    found: list[BearerToken] = []
    refusals: list[str] = []

    def verify(token: str) -> BearerToken:
        if case.kind == "signed":
            found.append(verify_signed(token, keys, case.rules, now_ms))
        else:
            found.append(verify_unsecured(token, case.rules, now_ms))
        return found[0]

    exchange = OAuthBearerExchange(verify, lambda: now_ms, refusals.append)
    try:
        exchange.evaluate(f"n,,\x01auth=Bearer {case.token}\x01\x01".encode())
    except AuthenticationFailed as fault:
        return "refused", str(fault)
    return (f"={found[0].name} {int(found[0].expires_ms)}", "") if found else ("refused", refusals[0])


def names_agree(ours: str, why: str, theirs: str) -> str | None:
    """A word for how they do; None if they do not."""
    if ours == theirs:
        return "a user" if ours.startswith("=") else ours
    if ours == "config" and UNKNOWN in why:
        return "refused at the start"
    return theirs if theirs == "slow" else None


def tokens_agree(kind: str, ours: str, why: str, theirs: str) -> str | None:
    """A word for how they do; None if they do not."""
    name, _, end = theirs.rpartition(" ")
    if ours == theirs or (name and ours == f"{name} {min(int(end), NOW_MS + _LIFETIME_MS_MAX)}"):
        return f"{kind}, {ours[0]}"
    return "stricter" if ours == "refused" and any(words in why for words in STRICTER[kind]) else None


def in_javas_alphabet(case: TokenCase) -> TokenCase:
    """Kafka 3.9 reads unsecured tokens in the alphabet of plain base64, though it writes them in that of URLs."""
    if case.kind == "signed":
        return case
    return case._replace(token=case.token.translate(str.maketrans("-_", "+/")))
