"""Key stores and trust stores, from the bytes of a file or inline: PEM as it is, PKCS12 turned into PEM.

Java opens PKCS12 files that are called JKS, and does so by default, so the type is read off the bytes. A real JKS file
is refused with the command that converts it: its cipher is Java's own.
Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory, KIP-651 (PEM).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.common.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

STORE_BYTES_MAX = 4 << 20
_JAVA_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)


class KeyStore(NamedTuple):
    """A private key and the certificates for it, the own one first, as PEM. `password` is for the key."""

    key: bytes
    certificates: bytes
    password: str | None

    def __repr__(self) -> str:
        return "KeyStore(hidden)"


def read_key_store(data: bytes, kind: str, where: str, store_password: str | None, password: str | None) -> KeyStore:
    """The key store in `data`. `kind` is its type as it was given, `where` names it in messages, `password` is that of
    the key. Raises ConfigError."""
    if _kind_of(data, kind, where) == "PEM":
        if store_password is not None:
            raise ConfigError(f"{where} is PEM, which has no store password; the key's is ssl.key.password")
        keys, certificates = _KEY.search(data), _CERTIFICATE.findall(data)
        if keys is None or not certificates:
            raise ConfigError(f"{where} must have a private key and its certificates, each with its BEGIN and END line")
        return KeyStore(keys[0] + b"\n", b"\n".join(certificates) + b"\n", password)
    found = _pkcs12(data, store_password, where)
    if found.key is None or found.cert is None:
        raise ConfigError(f"{where} has no private key with a certificate")
    serialization = _cryptography(where).serialization
    key = found.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = _chain(found.cert.certificate, [each.certificate for each in found.additional_certs])
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    return KeyStore(key, pem, None)


def read_trust_store(data: bytes, kind: str, where: str, password: str | None) -> str:
    """The trusted certificates in `data`, as PEM. Raises ConfigError."""
    if _kind_of(data, kind, where) == "PEM":
        if password is not None:
            raise ConfigError(f"{where} is PEM, which has no store password")
        certificates = _CERTIFICATE.findall(data)
    else:
        found = _pkcs12(data, password, where)
        pem = _cryptography(where).serialization.Encoding.PEM
        entries = [*found.additional_certs, *([found.cert] if found.cert else [])]
        certificates = [each.certificate.public_bytes(pem) for each in entries]
    if not certificates:
        raise ConfigError(f"{where} has no certificates")
    return b"\n".join(certificates).decode("ascii", "replace")


def _kind_of(data: bytes, kind: str, where: str) -> str:
    if data[:4] in _JAVA_MAGICS:
        raise ConfigError(
            f"{where} is in Java's own format JKS, which kafkalite does not read; convert it with: keytool "
            "-importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12"
        )
    found = "PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == b"\x30" else None
    if found is None:
        raise ConfigError(f"{where} is neither PEM nor PKCS12")
    if kind != found and kind != "JKS":
        raise ConfigError(f"{where} is {found}, and its type is given as {kind}")
    return found


def _pkcs12(data: bytes, password: str | None, where: str) -> Any:
    pkcs12 = _cryptography(where).serialization.pkcs12
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except Exception as fault:  # the package raises several kinds, also for bytes that make no sense
        hint = "no password is given" if password is None else "the password is wrong, or the file is damaged"
        raise ConfigError(f"{where} cannot be read ({hint})") from fault


def _cryptography(where: str) -> Any:
    """The package's `primitives`; only PKCS12 needs it."""
    try:
        from cryptography.hazmat import primitives
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: F401, a submodule to be used by name
    except ImportError:
        raise ConfigError(
            f"{where} is PKCS12, for which kafkalite needs a package: pip install 'kafkalite[security]'; PEM needs none"
        ) from None
    return primitives


def _chain(own: Certificate, others: list[Certificate]) -> list[Certificate]:
    """`own`, its issuer, and so on, as TLS wants them; a store keeps them in any order."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain
