"""Certificates that clients would refuse, soon or now, or should not trust."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kafkalite.inspection.doctor.checkup import certificate_findings, names
from tests.support.certificates import DAY, Authority

AUTHORITY = Authority()
NOW_S = dt.datetime.now(dt.UTC).timestamp()
YEAR = 365 * DAY


def faults(certificate: x509.Certificate, *hosts: str) -> str:
    return "\n".join(each.fault for each in certificate_findings("here", [certificate], hosts, NOW_S))


@pytest.mark.parametrize(
    ("valid", "fault"),
    [
        ((-YEAR, -DAY), "here: the certificate has expired on "),
        ((DAY, YEAR), "here: the certificate is not valid before "),
        ((-YEAR, 29.5 * DAY), "here: the certificate expires in 29 days"),
        ((-YEAR, 31 * DAY), ""),
    ],
)
def test_its_time(valid: tuple[dt.timedelta, dt.timedelta], fault: str) -> None:
    told = faults(AUTHORITY.identify(valid=valid).certificate, "localhost")
    assert told.startswith(fault) and bool(told) == bool(fault)


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("a.example", True), ("A.Example.", True), ("b.example", False), ("x.wild.example", True),
        ("x.y.wild.example", False), ("wild.example", False), ("10.0.0.1", True), ("10.0.0.2", False),
    ],
)  # fmt: skip
def test_its_names(host: str, fits: bool) -> None:
    certificate = AUTHORITY.identify(hosts=("a.example", "*.wild.example", "10.0.0.1"), valid=(-DAY, YEAR)).certificate
    assert names(certificate, host) is fits
    assert ("is not for" in faults(certificate, host)) is not fits


def test_a_weak_key_and_a_name_in_the_subject_alone() -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    now = dt.datetime.now(dt.UTC)
    certificate = builder.not_valid_before(now - DAY).not_valid_after(now + YEAR).sign(key, hashes.SHA256())
    told = faults(certificate, "localhost")
    assert "its RSA key has 1024 bits" in told and "is not for localhost, which clients dial; it is for no host" in told
