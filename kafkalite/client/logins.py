"""The login that settings describe: of a command by the properties of a client, of a broker by those of a listener.

The names are Kafka's, and so are those of the handlers for OAUTHBEARER: OAuthBearerLoginCallbackHandler gets tokens
from an authority, OAuthBearerUnsecuredLoginCallbackHandler (Kafka's default) makes unsigned ones. Other classes are
refused.

A command's properties are in the file of --command-config, as for Kafka's own tools; properties without a meaning here
are ignored, since several tools share such files.
Source: org.apache.kafka.common.security.authenticator.LoginManager, org.apache.kafka.common.config.{SaslConfigs,
SslConfigs}, org.apache.kafka.clients.CommonClientConfigs.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.client.bearer_login import DEFAULT_TIMEOUT_MS, BearerToken, NoToken, TokenEndpoint, retried
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError
from kafkalite.config.jaas import LoginModule, parse_jaas
from kafkalite.config.listeners import PROTOCOLS
from kafkalite.config.properties import read_properties
from kafkalite.config.security_settings import SecuritySettings
from kafkalite.config.tls import TlsSettings, client_context
from kafkalite.security.sasl import client_exchange, gssapi, oauthbearer
from kafkalite.security.sasl.client_exchange import Login


class ClientSecurity:
    """The beginning of a connection: TLS if there is a context, then the login if there is one."""

    def __init__(self, context: ssl.SSLContext | None = None, login: Login | None = None) -> None:
        self._context = context
        self.login = login

    @classmethod
    def of(cls, properties: Mapping[str, str], login: Login | None = None) -> ClientSecurity:
        """The security of a client's properties, with `login` in place of theirs. Raises ConfigError."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security.protocol={protocol[:40]} is not one of {', '.join(PROTOCOLS)}")
        if login is None and protocol.startswith("SASL_"):
            login = _login(properties)
        if not protocol.endswith("SSL"):
            return cls(None, login)
        return cls(client_context(TlsSettings.read(lambda name: value_of(properties, name))), login)

    @classmethod
    def of_file(cls, path: str | None) -> ClientSecurity:
        """The security of the properties in this file; none without a file. Raises ConfigError."""
        return cls.of(read_properties(path)) if path is not None else cls()

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket to be used in place of `sock`, which belongs to the result. Raises OSError, whose text is for the
        operator."""
        if self._context is None:
            return sock
        try:
            return self._context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as fault:
            raise OSError(f"its certificate is not accepted ({fault.verify_message}); see ssl.truststore") from fault
        except ssl.SSLError as fault:
            raise OSError(f"it does not speak TLS as it should ({fault.reason}); see security.protocol") from fault


def _login(properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise ConfigError(
            "sasl.jaas.config is not set: it has the login, such as org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="alice" password="...";'
        )
    try:
        return login_of(mechanism, parse_jaas(text), lambda name: value_of(properties, name))
    except ValueError as fault:
        raise ConfigError(f"sasl.jaas.config with sasl.mechanism={mechanism[:40]} {fault}") from None


MECHANISMS = (*client_exchange.MECHANISMS, oauthbearer.MECHANISM, gssapi.MECHANISM)
_HANDLER = "sasl.login.callback.handler.class"
_URL = "sasl.oauthbearer.token.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_FROM_AUTHORITY, _UNSECURED = "OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"
_SERVICE = "sasl.kerberos.service.name"
_KINIT = "sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.window.factor", "sasl.kerberos.min.time.before.relogin"
_REFRESH = tuple(
    f"sasl.login.refresh.{each}" for each in ("window.factor", "window.jitter", "min.period.seconds", "buffer.seconds")
)
_TIMEOUTS = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
_RETRIES = "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"
_ENCODES = "sasl.oauthbearer.header.urlencode"
_NAME_CLAIM = "sasl.oauthbearer.sub.claim.name"
SETTINGS = (_HANDLER, _URL, _SERVICE, *_KINIT, *_REFRESH, *_TIMEOUTS, *_RETRIES, _ENCODES, _NAME_CLAIM)
"""The settings outside the login module that logins depend on."""

PASSWORD_MECHANISMS = client_exchange.MECHANISMS
TOKEN_MECHANISM = oauthbearer.MECHANISM

GetSetting = Callable[[str], Any]
"""The value of a setting."""


def login_of(mechanism: str, module: LoginModule, setting: GetSetting) -> Login:
    """The login of a login module and the other settings. Raises ValueError for the module, whose text continues a
    sentence, and ConfigError for another setting; neither repeats a secret."""
    if mechanism == oauthbearer.MECHANISM:
        return _by_token(module.options, setting)
    if mechanism == gssapi.MECHANISM:
        return _by_ticket(module.options, setting)
    if mechanism not in MECHANISMS:
        raise ValueError(f"is for the mechanism {mechanism[:40]!r}, and logins are by {', '.join(MECHANISMS)}")
    return client_exchange.login_of(mechanism, module.options)


def by_password(mechanism: str, user: str, password: str) -> Login:
    """A login by one of `PASSWORD_MECHANISMS`. Raises ValueError as `login_of`."""
    return client_exchange.login_of(mechanism, {"username": user, "password": password})


def _by_ticket(options: Mapping[str, str], setting: GetSetting) -> Login:
    from kafkalite.client.kerberos_login import KerberosSettings, KerberosTickets  # needs a package that few have

    named, of_module = setting(_SERVICE) or "", options.get("serviceName", "")
    if named and of_module and named != of_module:
        raise ConfigError(
            f"{_SERVICE}={named[:60]} and serviceName of the login module, {of_module[:60]}, are not the same"
        )
    service = named or of_module
    if not service:
        raise ConfigError(f"{_SERVICE} is not set: the first part of the principals of brokers, such as kafka")
    tickets = KerberosTickets(options, KerberosSettings(service, *map(setting, _KINIT)))
    return Login(gssapi.MECHANISM, tickets.name, tickets.exchange, may_wait=True)


def _by_token(options: Mapping[str, str], setting: GetSetting) -> Login:
    handler = (setting(_HANDLER) or "").strip()
    kind = handler.rpartition(".")[2] if handler.startswith(_PACKAGE) else handler
    if kind == _FROM_AUTHORITY:
        endpoint = _endpoint(options, setting)
        extensions = oauthbearer.extensions_of(options, "extension_")
        name = endpoint.client_id or endpoint.shown
        fetch = _fetch_of(endpoint, setting)
    elif kind in ("", _UNSECURED):
        if not kind and not any(option.startswith("unsecuredLogin") for option in options):
            raise ConfigError(
                f"{_HANDLER} is not set, which names the source of tokens of OAUTHBEARER: {_PACKAGE}{_FROM_AUTHORITY} "
                f"with {_URL}, and clientId and clientSecret in the login module"
            )
        unsecured = oauthbearer.UnsecuredTokens(options)
        extensions = oauthbearer.extensions_of(options, "unsecuredLoginExtension_")
        name = unsecured.name

        def fetch() -> oauthbearer.OwnToken:
            return unsecured.make(_wall_ms())

    else:
        raise ConfigError(
            f"{_HANDLER}={handler[:120]}: kafkalite runs no Java classes, and knows {_PACKAGE}{_FROM_AUTHORITY} and "
            f"{_UNSECURED}"
        )
    return _replaced(name, fetch, oauthbearer.RefreshRules(*map(setting, _REFRESH)), extensions)


def by_access_token(text: str, properties: Mapping[str, str], replace: Callable[[], str] | None) -> Login:
    """A login with a user's access token, which `replace` replaces before it expires, if it can be; it may block, and
    raises NoToken. Raises ValueError for a text that is no token."""
    name_claim = value_of(properties, _NAME_CLAIM)
    unused = [oauthbearer.read_token(text, name_claim)]
    name = unused[0].name

    def fetch() -> oauthbearer.OwnToken:
        if unused:
            return unused.pop()
        if replace is None:
            raise NoToken("the login has ended; log in again", is_final=True)
        try:
            return oauthbearer.read_token(replace(), name_claim)
        except ValueError as fault:
            raise NoToken(f"the new access token {fault}", is_final=True) from None

    rules = oauthbearer.RefreshRules() if replace is not None else _NOT_REPLACED
    return _replaced(name, fetch, rules, {})


_NOT_REPLACED = oauthbearer.RefreshRules(window_factor=1.0, window_jitter=0.0, min_period_seconds=0, buffer_seconds=0)


def _replaced(
    name: str,
    fetch: Callable[[], oauthbearer.OwnToken],
    rules: oauthbearer.RefreshRules,
    extensions: Mapping[str, str],
) -> Login:
    """A login with the tokens of `fetch`, each replaced by the rules before it expires."""
    token = BearerToken(fetch, rules, _wall_ms)
    return Login(
        oauthbearer.MECHANISM,
        name,
        lambda _: oauthbearer.OAuthBearerClient(token.get(), extensions),
        may_wait=True,
        refresh=token.refresh,
    )


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _endpoint(options: Mapping[str, str], setting: GetSetting) -> TokenEndpoint:
    url = (setting(_URL) or "").strip()
    if not url:
        raise ConfigError(f"{_URL} is not set: the source of tokens of OAUTHBEARER, https://... or file:///...")
    is_file = url.startswith("file:")
    client_id, secret = options.get("clientId", ""), options.get("clientSecret", "")
    if not is_file and not (client_id and secret):
        raise ValueError('has no clientId="..." and clientSecret="...", for requests of tokens')
    try:
        connect_ms, read_ms = (setting(each) or DEFAULT_TIMEOUT_MS for each in _TIMEOUTS)
        return TokenEndpoint(
            url,
            client_id,
            secret,
            options.get("scope", "").strip(),
            tls_of_module(options) if url.startswith("https:") else None,
            connect_ms,
            read_ms,
            setting(_ENCODES),
        )
    except ValueError as fault:
        raise ConfigError(f"{_URL} {fault}") from None


def tls_of_module(options: Mapping[str, str]) -> ssl.SSLContext:
    """TLS to an authority: its settings are options of the login module, as in Kafka. Raises ConfigError."""
    from kafkalite.config.tls import TlsSettings, client_context

    return client_context(TlsSettings.read(lambda name: value_of(options, name, " of the login module")))


def value_of(texts: Mapping[str, str], name: str, where: str = "") -> Any:
    """The value of a setting in `texts`, or its default. Raises ConfigError, which says `where` it is."""
    setting = SecuritySettings.by_name[name]
    text = texts.get(name)
    if text is None:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError as fault:
        raise ConfigError(f"{name}={setting.shown(text)}{where} {fault}") from None


def _fetch_of(endpoint: TokenEndpoint, setting: GetSetting) -> Callable[[], oauthbearer.OwnToken]:
    backoff_ms, backoff_max_ms = map(setting, _RETRIES)
    name_claim = setting(_NAME_CLAIM)

    def fetch() -> oauthbearer.OwnToken:
        text = retried(
            endpoint.fetch,
            backoff_ms,
            0 if endpoint.is_file else backoff_max_ms,
            lambda: monotonic_s() * 1000,
            lambda pause_ms: time.sleep(pause_ms / 1000),
        )
        try:
            return oauthbearer.read_token(text, name_claim)
        except ValueError as fault:
            raise NoToken(f"the token of {endpoint.shown} {fault}") from None

    return fetch
