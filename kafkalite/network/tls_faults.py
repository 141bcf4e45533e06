"""Faults of TLS in words for the operator: OpenSSL names them for programmers."""

from __future__ import annotations

import ssl

_NOT_TRUSTED = (
    "the client does not accept this broker's certificate: does its truststore have the authority that signed it, is "
    "it still valid, and does it name the host that the client dialled?"
)
_NOTHING_SHARED = "client and broker have no version or cipher suite of TLS in common: see ssl.enabled.protocols and "
_HINTS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required",
    "HTTP_REQUEST": "the client speaks HTTP, this is a Kafka listener with TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS as it should",
    "NO_SHARED_CIPHER": _NOTHING_SHARED + "ssl.cipher.suites",
    "UNSUPPORTED_PROTOCOL": _NOTHING_SHARED + "ssl.cipher.suites",
    "NO_SHARED_SIGNATURE_ALGORITHMS": _NOTHING_SHARED + "ssl.cipher.suites",
    "TLSV1_ALERT_PROTOCOL_VERSION": _NOTHING_SHARED + "ssl.cipher.suites",
    **dict.fromkeys(
        (
            "TLSV1_ALERT_UNKNOWN_CA",
            "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
            "SSLV3_ALERT_BAD_CERTIFICATE",
            "SSLV3_ALERT_CERTIFICATE_EXPIRED",
            "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        ),
        _NOT_TRUSTED,
    ),
}


def explain(fault: ssl.SSLError) -> str:
    """One line about a fault, with what OpenSSL calls it."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused ({fault.verify_message}): see ssl.truststore.location"
    name = fault.reason or type(fault).__name__
    hint = _HINTS.get(name)
    return f"{hint} ({name})" if hint else f"TLS failed ({name})"
