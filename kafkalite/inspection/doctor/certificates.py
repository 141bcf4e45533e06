"""Certificates of a listener, looked at as a careful client would: how long, for which names, how strong.

Times are seconds since 1970. Needs the package cryptography.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kafkalite.inspection.doctor.finding import Finding

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_SOON_S = 30 * 86_400
_DAY_S = 86_400
_RSA_BITS_MIN = 2048
_WEAK_HASHES = ("md5", "sha1")


def certificate_findings(
    where: str, certificates: list[Certificate], hosts: Iterable[str], now_s: float
) -> Iterator[Finding]:
    """Of a chain, the broker's own certificate first. `hosts`: the names by which clients reach the broker."""
    for certificate in certificates:
        whose = "the certificate" if certificate is certificates[0] else "a certificate of an authority"
        yield from _time_findings(f"{where}: {whose}", certificate, now_s)
    own = certificates[0]
    for host in hosts:
        if not names(own, host):
            yield Finding(
                f"{where}: the certificate is not for {host}, which clients dial; it is for "
                f"{', '.join(_names_of(own)) or 'no host'}",
                "make one with subjectAltName for that host, or advertise (advertised.listeners) a host that it has",
            )
    from cryptography.hazmat.primitives.asymmetric import rsa

    key, digest = own.public_key(), own.signature_hash_algorithm
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        yield Finding(f"{where}: its RSA key has {key.key_size} bits", f"make one of {_RSA_BITS_MIN} bits or more")
    if digest is not None and digest.name in _WEAK_HASHES:
        yield Finding(f"{where}: the certificate is signed with {digest.name}", "have it signed with SHA-256")


def _time_findings(whose: str, certificate: Certificate, now_s: float) -> Iterator[Finding]:
    begins_s = certificate.not_valid_before_utc.timestamp()
    ends_s = certificate.not_valid_after_utc.timestamp()
    day = certificate.not_valid_after_utc.date().isoformat()
    renew = "put a new one into the same file: a broker that runs takes it within ten seconds"
    if now_s >= ends_s:
        yield Finding(f"{whose} has expired on {day}: clients refuse it", renew)
    elif now_s < begins_s:
        first = certificate.not_valid_before_utc.isoformat(" ", "minutes")
        yield Finding(f"{whose} is not valid before {first}: clients refuse it", "is the clock right?")
    elif ends_s - now_s < _SOON_S:
        yield Finding(f"{whose} expires in {int((ends_s - now_s) / _DAY_S)} days, on {day}", renew)


def names(certificate: Certificate, host: str) -> bool:
    """Whether a client that dials `host` accepts the names in this certificate (RFC 6125)."""
    wanted = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(wanted)
    except ValueError:
        return any(_fits(wanted, name.lower()) for name in _names_of(certificate))
    return str(address) in _names_of(certificate)


def _fits(host: str, name: str) -> bool:
    if name.startswith("*."):
        return host.partition(".")[2] == name[2:]
    return host == name


def _names_of(certificate: Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    hosts = found.get_values_for_type(x509.DNSName)
    return [*hosts, *map(str, found.get_values_for_type(x509.IPAddress))]
