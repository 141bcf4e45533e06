"""An authority of certificates for tests, made anew in each run: keys are elliptic, since those are quick to make."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Identity(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def chain_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> bytes:
        hidden: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)

    def write(self, path: Path, password: str | None = None) -> str:
        """Key and certificate as one PEM file."""
        path.write_bytes(self.key_pem(password) + self.chain_pem)
        return str(path)

    def pkcs12(self, password: str, *others: x509.Certificate) -> bytes:
        hidden = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, list(others), hidden)


class Authority:
    """Signs certificates. `pem` is its own."""

    def __init__(self, name: str = "tests") -> None:
        self.identity = _make(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), None, (), is_authority=True)
        self.pem = self.identity.chain_pem

    def write(self, path: Path) -> str:
        path.write_bytes(self.pem)
        return str(path)

    def identify(
        self,
        subject: x509.Name | str = "localhost",
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        valid: tuple[dt.timedelta, dt.timedelta] = (-DAY, DAY),
    ) -> Identity:
        """A certificate for these hosts; `valid` is from when to when, from now on. A text is the common name."""
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        return _make(subject, self.identity, hosts, valid)


def _make(
    subject: x509.Name,
    issuer: Identity | None,
    hosts: Sequence[str],
    valid: tuple[dt.timedelta, dt.timedelta] = (-DAY, DAY),
    *,
    is_authority: bool = False,
) -> Identity:
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        issuer.certificate.subject if issuer else subject, subject, key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(now + valid[0]).not_valid_after(now + valid[1])
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return Identity(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
