"""TLS contexts of OpenSSL from Kafka's ssl.* settings: of a listener, and of a client of a broker.

Files are read here and nowhere else; a context never goes back to them. Sessions are not resumed: a certificate that is
no longer trusted, or a rule that has changed, counts from the next connection on.
Key stores and trust stores come from a file or inline: PEM as it is, PKCS12 turned into PEM. Java opens PKCS12 files
that are called JKS, and does so by default, so the type is read off the bytes. A real JKS file is refused with the
command that converts it: its cipher is Java's own.
Cipher suites have IANA names in Kafka's settings and other names in OpenSSL. The suites of TLS 1.3 cannot be chosen one
by one from Python: a list that names one of them allows OpenSSL's three, and a list without any disables TLS 1.3.
Source: org.apache.kafka.common.security.ssl.{SslFactory, DefaultSslEngineFactory}, KIP-651 (PEM); RFC 5246, RFC 8446,
openssl-ciphers(1).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_END = b"-----END CERTIFICATE-----"
_TRIAL_TURNS_MAX = 10  # TLS 1.2 needs three
_CLIENT_AUTH = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


class TlsSettings(NamedTuple):
    """Kafka's settings without their beginning "ssl.", dots being underscores."""

    keystore_type: str
    keystore_location: str | None
    keystore_password: str | None
    key_password: str | None
    keystore_key: str | None
    keystore_certificate_chain: str | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: str | None
    truststore_certificates: str | None
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    endpoint_identification_algorithm: str

    @classmethod
    def read(cls, value_of: Callable[[str], Any]) -> TlsSettings:
        """The settings, whose values `value_of` returns by their whole names."""
        return cls(*(value_of("ssl." + name.replace("_", ".")) for name in cls._fields))

    def __repr__(self) -> str:  # passwords are among them
        return f"TlsSettings({self.keystore_location}, {self.truststore_location})"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that these settings name."""
        return tuple(filter(None, (self.keystore_location, self.truststore_location)))


def file_states(settings: TlsSettings) -> tuple[tuple[int, int], ...]:
    """When each file was changed, and its size: another value means that it has changed."""
    states = []
    for path in settings.files:
        try:
            state = os.stat(path)
            states.append((state.st_mtime_ns, state.st_size))
        except OSError:
            states.append((0, 0))
    return tuple(states)


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError naming the setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    store = key_store_of(settings)
    if store is None:
        raise ConfigError(
            "ssl.keystore.location is not set: a listener with TLS needs a key and certificates, as PEM or PKCS12"
        )
    _load_key(context, store, settings)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    _choose_protocols(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client of a broker. Raises ConfigError naming the setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    store = key_store_of(settings)
    if store is not None:
        _load_key(context, store, settings)
    _load_trust(context, settings, ssl.Purpose.SERVER_AUTH)
    _choose_protocols(context, settings)
    return context


def own_certificate(settings: TlsSettings) -> bytes | None:
    """The own certificate of the key store in DER; None without a store. Raises ConfigError."""
    store = key_store_of(settings)
    if store is None:
        return None
    first = store.certificates.partition(_END)[0] + _END
    try:
        return ssl.PEM_cert_to_DER_cert(first[first.index(b"-----BEGIN") :].decode("ascii"))
    except ValueError:
        raise ConfigError("the key store has an invalid certificate") from None


def try_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake between two contexts of this process; the client's must not verify host names. Raises ssl.SSLError
    if one side does not accept the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_TRIAL_TURNS_MAX):
        waiting = 0
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return
    raise ssl.SSLError(0, "the handshake does not complete")


def _choose_protocols(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [_VERSIONS[name] for name in settings.enabled_protocols if name in _VERSIONS]
    if settings.cipher_suites:
        try:
            suites = choose_suites(settings.cipher_suites)
        except ValueError as fault:
            raise ConfigError(f"ssl.cipher.suites {fault}") from None
        if suites.up_to_tls_12:
            context.set_ciphers(":".join(suites.up_to_tls_12))
        else:
            versions = [each for each in versions if each is ssl.TLSVersion.TLSv1_3]
        if not suites.has_tls_13:
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise ConfigError(
            f"ssl.enabled.protocols={','.join(settings.enabled_protocols)} leaves no version of TLS, together with "
            "ssl.cipher.suites; TLSv1.2 and TLSv1.3 are spoken, each with suites of its own"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def key_store_of(settings: TlsSettings) -> KeyStore | None:
    """The key and the certificates, if there are any. Raises ConfigError."""
    inline = settings.keystore_key, settings.keystore_certificate_chain
    if any(inline):
        if not all(inline):
            raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain go together: one of them is not set")
        if settings.keystore_location:
            raise ConfigError("ssl.keystore.location and ssl.keystore.key are both set; set only one of them")
        data = "\n".join(filter(None, inline)).encode()
        return read_key_store(data, "PEM", "ssl.keystore.key", settings.keystore_password, settings.key_password)
    path = settings.keystore_location
    if not path:
        return None
    where = f"ssl.keystore.location={path}"
    data = _read_file(path, where)
    return read_key_store(data, settings.keystore_type, where, settings.keystore_password, settings.key_password)


def _load_key(context: ssl.SSLContext, store: KeyStore, settings: TlsSettings) -> None:
    where = f"ssl.keystore.location={settings.keystore_location}" if settings.keystore_location else "ssl.keystore.key"

    def no_password() -> NoReturn:  # without this, OpenSSL would ask on the terminal
        raise ConfigError(f"the key in {where} is encrypted; set ssl.key.password")

    try:
        with _as_file(store.certificates + store.key) as path:
            context.load_cert_chain(path, password=store.password or no_password)
    except ssl.SSLError as fault:
        reason = "its certificate is for another key" if fault.reason == "KEY_VALUES_MISMATCH" else str(fault.reason)
        hint = "; is ssl.key.password right?" if store.password else ""
        raise ConfigError(f"{where} cannot be used: {reason}{hint}") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    path, inline, password = (
        settings.truststore_location,
        settings.truststore_certificates,
        settings.truststore_password,
    )
    if path and inline:
        raise ConfigError("ssl.truststore.location and ssl.truststore.certificates are both set; set only one of them")
    if inline:
        where, kind, data = "ssl.truststore.certificates", "PEM", inline.encode()
    elif path:
        where, kind = f"ssl.truststore.location={path}", settings.truststore_type
        data = _read_file(path, where)
    else:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=read_trust_store(data, kind, where, password))
    except (ssl.SSLError, ValueError) as fault:
        raise ConfigError(f"{where} cannot be used: {fault}") from None


def _read_file(path: str, where: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as fault:
        raise ConfigError(f"{where} cannot be read: {getattr(fault, 'strerror', None) or fault}") from None
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(f"{where} is larger than {STORE_BYTES_MAX} bytes")
    return data


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path at which OpenSSL reads `data`; in memory where the system has that."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("kafkalite-key", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as memory:
                memory.write(data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    import tempfile  # random comes with it, which a start needs for nothing else

    with tempfile.NamedTemporaryFile() as file:  # readable by this user alone
        file.write(data)
        file.flush()
        yield file.name


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
