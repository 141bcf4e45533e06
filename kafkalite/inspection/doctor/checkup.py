"""Checkups of a broker's settings with the files that they name, and of a broker that runs.

Certificates are checked as a careful client would: how long, for which names, how strong. Times are seconds since 1970.
Certificates need the package cryptography.
A listener of a broker that runs is probed as a stranger meets it: its protocol, the SASL mechanisms, the certificate. A
broker that lets us describe its configs has its listeners and most of its other settings there; no secrets.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.client.blocking_client import BlockingClient, parse_address
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings, key_store_of, server_context
from kafkalite.inspection.doctor.exposure import Endpoint, Finding, exposures, host_of
from kafkalite.log.storage.file_names import expanded
from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.sasl import SaslHandshakeRequest

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


def has_cryptography() -> bool:
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
    if not has_cryptography():
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
    for path in dict.fromkeys((*config.data_dirs, *expanded(config.data_dirs))):
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


_NO_MECHANISM = "?"  # a broker that has SASL answers with those that it has
_BROKER = 4  # the type of the resource
_DESCRIBE_VERSION = 4
_DEFAULT_CONFIG = 5  # the source of a value that is not set


class Probe(NamedTuple):
    """A listener as a stranger sees it. `certificate`: its own, as DER."""

    endpoint: Endpoint
    certificate: bytes | None


def probe_listener(address: str, timeout_s: float) -> Probe:
    """Raises Unanswered if there is no broker."""
    host, port = parse_address(address)
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        raise Unanswered(f"cannot reach {address}: {error.strerror or error}") from None
    context = _trusting_context()
    certificate = _certificate(context, host, port, timeout_s)
    security = ClientSecurity(context) if certificate is not None else None
    transport = "SSL" if certificate is not None else "PLAINTEXT"
    try:
        with BlockingClient(address, timeout_s, security) as client:
            answer = client.ask(SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1)
    except Unanswered:
        if certificate is None:
            raise
        return Probe(Endpoint("", transport, address, client_auth="required"), certificate)  # it wants to see ours
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return Probe(Endpoint("", f"SASL_{transport}", address, mechanisms=tuple(answer.mechanisms)), certificate)
    return Probe(Endpoint("", transport, address), certificate)


def probe_findings(probed: Probe, now_s: float) -> Iterator[Finding]:
    """The warnings about its certificate."""
    if probed.certificate is None:
        return
    if not has_cryptography():
        yield NO_CRYPTOGRAPHY
        return
    address = probed.endpoint.address
    yield from certificate_findings(address, [_parsed_der(probed.certificate)], [host_of(address)], now_s)


def broker_settings(cluster: ClusterClient, broker_id: int) -> BrokerConfig:
    """The settings of a broker, as far as it describes them. Raises Unanswered, ConfigError."""
    client = cluster.client(broker_id)
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=None)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), _DESCRIBE_VERSION).results
    if result.error_code:
        raise Unanswered(f"broker {broker_id} does not tell its settings: {result.error_message or result.error_code}")
    return BrokerConfig.load(
        {
            each.name: each.value
            for each in result.configs
            if each.value is not None and each.config_source != _DEFAULT_CONFIG
        }
    )


def _certificate(context: ssl.SSLContext, host: str, port: int, timeout_s: float) -> bytes | None:
    try:
        with (
            socket.create_connection((host, port), timeout_s) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            return tls.getpeercert(binary_form=True)
    except OSError:
        return None


def _trusting_context() -> ssl.SSLContext:
    """We send no secrets, and want to see every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _parsed_der(der: bytes) -> Certificate:
    from cryptography import x509

    return x509.load_der_x509_certificate(der)
