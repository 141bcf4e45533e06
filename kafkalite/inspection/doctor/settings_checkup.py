"""The checkup of a broker's settings and of the files that they name, without a broker that runs."""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings, key_store_of, server_context
from kafkalite.inspection.doctor.certificates import certificate_findings
from kafkalite.inspection.doctor.endpoint import Endpoint, host_of
from kafkalite.inspection.doctor.exposure import exposures
from kafkalite.inspection.doctor.finding import Finding

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
