"""The checkup of a broker's settings and of the files that they name, without a broker that runs.

Certificates are checked as a careful client would: how long, for which names, how strong. Times are seconds since 1970.
Certificates need the package cryptography.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings, key_store_of, server_context
from kafkalite.inspection.doctor.exposure import Endpoint, Finding, exposures, host_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NO_CRYPTOGRAPHY = Finding("certificates are not looked at", "pip install 'kafkalite[security]'")


def settings_findings(
    config: BrokerConfig, endpoints: Sequence[Endpoint], file: str | None, now_s: float
) -> Iterator[Finding]:
    """All warnings about these settings, which stand in `file`, if in any."""
    yield from exposures(config, endpoints)
    for one in endpoints:
        if one.has_tls:
            yield from _tls_findings(config, one, now_s)
    yield from _file_findings(config, file)


def can_look_at_certificates() -> bool:
    return importlib.util.find_spec("cryptography") is not None


def _tls_findings(config: BrokerConfig, endpoint: Endpoint, now_s: float) -> Iterator[Finding]:
    where = f"listener {endpoint.listener}"
    settings = TlsSettings.read(lambda name: config.listener_setting(endpoint.listener, name))
    try:
        server_context(settings)
        store = key_store_of(settings)
    except ConfigError as fault:
        yield Finding(f"{where} cannot be served: {fault}", "a broker with these settings does not start")
        return
    assert store is not None  # else there would be no context
    if not can_look_at_certificates():
        yield NO_CRYPTOGRAPHY
        return
    yield from certificate_findings(where, _parsed(store.certificates), dialled_hosts(endpoint), now_s)


def _parsed(pem: bytes) -> list[Certificate]:
    from cryptography import x509

    return x509.load_pem_x509_certificates(pem)


def dialled_hosts(endpoint: Endpoint) -> list[str]:
    """The hosts by which clients reach it, as far as they are known."""
    if endpoint.advertised is not None:
        return [host_of(endpoint.advertised)]
    return [] if endpoint.is_bound_to_all else [host_of(endpoint.address)]


def _file_findings(config: BrokerConfig, file: str | None) -> Iterator[Finding]:
    for name, path in _secret_files(config, file).items():
        mode = _mode(path)
        if mode is not None and mode & (stat.S_IROTH | stat.S_IWOTH):
            done = "written" if mode & stat.S_IWOTH else "read"
            yield Finding(f"{path} ({name}) can be {done} by every user of this machine", f"chmod o-rwx {path}")
    for path in config.data_dirs:
        mode = _mode(path)
        if mode is not None and mode & stat.S_IWOTH:
            yield Finding(f"{path} (log.dirs) can be written by every user of this machine", f"chmod o-rwx {path}")


def _secret_files(config: BrokerConfig, file: str | None) -> Mapping[str, str]:
    """Files with secrets in them, by the settings that name them."""
    found = {}
    for listener in config.listeners:
        path = config.listener_setting(listener.name, "ssl.keystore.location")
        if path is not None and listener.protocol.endswith("SSL"):
            found[f"ssl.keystore.location of {listener.name}"] = path
    if config.java_security_auth_login_config is not None:
        found["java.security.auth.login.config"] = config.java_security_auth_login_config
    if config.zookeeper_ssl_keystore_location is not None:
        found["zookeeper.ssl.keystore.location"] = config.zookeeper_ssl_keystore_location
    secrets = (name for name in config.explicit if (it := config.setting_of(name)) is not None and it.sensitive)
    if file is not None and (name := next(secrets, None)) is not None:
        found[f"the settings, {name} among them"] = file
    return found


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


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
