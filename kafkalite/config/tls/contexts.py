"""OpenSSL contexts from Kafka's ssl.* settings: of a listener, and of one who connects to a broker.

Files are read here and nowhere else; a context never goes back to them. Sessions are not resumed: a certificate that is
no longer trusted, or a rule that has changed, counts from the next connection on.
Source: org.apache.kafka.common.security.ssl.{SslFactory, DefaultSslEngineFactory}.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from kafkalite.common.errors import ConfigError
from kafkalite.config.tls.cipher_suites import choose_suites
from kafkalite.config.tls.stores import STORE_BYTES_MAX, KeyStore, read_key_store, read_trust_store

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
        """The settings of which `value_of` tells each by its whole name."""
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
    """The context of one who connects to a broker. Raises ConfigError naming the setting."""
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
        raise ConfigError("the key store has a certificate that makes no sense") from None


def try_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake between two contexts of this process; the client's must not look at host names. Raises ssl.SSLError
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
    raise ssl.SSLError(0, "the handshake does not end")


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
