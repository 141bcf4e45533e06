"""Cipher suites by their IANA names, as Kafka's settings have them, for OpenSSL, which has names of its own.

The suites of TLS 1.3 cannot be chosen one by one from Python: a list that names one of them allows OpenSSL's three, and
a list without any means that TLS 1.3 is not spoken.
Source: RFC 5246, RFC 8446, openssl-ciphers(1).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from typing import NamedTuple

_OF_TLS_13 = frozenset(
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    )
)
_NAME = re.compile(r"TLS_([A-Z_]+)_WITH_(AES_(?:128|256)|CHACHA20)_(GCM|CBC|CCM|POLY1305)(?:_(SHA(?:256|384)?))?\Z")


class CipherSuites(NamedTuple):
    """Names for OpenSSL for up to TLS 1.2, and whether suites of TLS 1.3 are among the wanted."""

    up_to_tls_12: tuple[str, ...]
    has_tls_13: bool


def choose_suites(names: Iterable[str]) -> CipherSuites:
    """The suites of these IANA names. Raises ValueError naming one that OpenSSL does not have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {suite["name"] for suite in context.get_ciphers()}
    chosen: list[str] = []
    has_tls_13 = False
    for name in names:
        if name in _OF_TLS_13:
            has_tls_13 = True
            continue
        found = _openssl_name(name)
        if found not in known:
            raise ValueError(f"has '{name[:80]}', which this OpenSSL does not have (IANA names, such as {_EXAMPLE})")
        chosen.append(found)
    return CipherSuites(tuple(chosen), has_tls_13)


_EXAMPLE = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


def _openssl_name(name: str) -> str:
    """ECDHE-RSA-AES256-GCM-SHA384 for TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384; empty for a name of another shape."""
    found = _NAME.match(name)
    if found is None:
        return ""
    exchange, cipher, mode, digest = found.groups()
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    parts.append(cipher.replace("_", ""))
    if mode != "CBC":
        parts.append(mode)
    if digest and mode != "POLY1305":
        parts.append(digest)
    return "-".join(parts)
