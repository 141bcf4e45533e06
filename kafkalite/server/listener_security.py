"""The security of a broker's listeners, and of its connections to other brokers, renewed while it runs.

A listener has the context of its settings. When they change, or a file that they name, new connections get a new one;
one that cannot be made leaves the old one in service. A context of the client's role, from the settings of the listener
that the brokers use, is for connections to other brokers; so is the login of a SASL listener.
Source: kafka.network.SocketServer (ChannelBuilders), org.apache.kafka.common.security.ssl.SslFactory.reconfigure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.client.broker_channel import ChannelSecurity
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.network.client_connection import ANONYMOUS
from kafkalite.network.socket_server import Listener, Tls

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.network.client_connection import Handler
    from kafkalite.security.sasl.client_exchange import Login
    from kafkalite.server.jwks import KnownKeys
    from kafkalite.server.sasl_listeners import SaslListeners
    from kafkalite.server.tls_listener import ServedTls

logger = logging.getLogger(__name__)

FILE_CHECK_MS = 10_000
"""How often the files of keys and certificates are checked; a new certificate is in place before the old one ends."""

_WITH_TLS = ("SSL", "SASL_SSL")


class ListenerSecurity:
    """The contexts of the listeners with TLS, by name. Raises ConfigError, which names listener and setting.

    In a cluster, settings that are not sufficient at first are not an error before `reconfigure`: ZooKeeper may have
    what is missing, put there before the first start, as kafka-configs --zookeeper does it.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._served: Mapping[str, ServedTls] = {}
        self._login: Login | None = None
        self._login_settings: object = None
        self._sasl: SaslListeners | None = None
        self._sasl_may_wait = True  # at the start
        self._known_keys: KnownKeys = {}
        self._make_sasl: Callable[[BrokerConfig], SaslListeners] | None = None
        self._is_complete = False
        try:
            self._serve_all()
        except ConfigError:
            if config.zookeeper_connect is None:
                raise

    def _serve_all(self) -> None:
        self._served = {each.name: _serve(self._config, each) for each in _with_tls(self._config)}
        self._login, self._login_settings = broker_login(self._config), login_settings(self._config)
        self._is_complete = True

    @property
    def ages(self) -> bool:
        """Whether `refresh` has work: a listener has, or had, a certificate, or this broker a token."""
        return bool(self._served) or (self._login is not None and self._login.may_wait)

    def listeners(self, metadata: ClusterMetadata, serve: Handler, clock: Clock) -> list[Listener]:
        """The listeners to be bound. `serve` handles what authenticated clients ask. Raises ConfigError."""

        def make_sasl(config: BrokerConfig) -> SaslListeners:
            from kafkalite.server.sasl_listeners import SaslListeners  # most brokers have none

            return SaslListeners(config, metadata, serve, clock, self._known_keys, may_wait=self._sasl_may_wait)

        self._make_sasl = make_sasl
        self._sasl = self._sasl_of(self._config)
        self._sasl_may_wait = False
        return [self.listener(one) for one in self._config.listeners]

    def listener(self, one: ListenerConfig) -> Listener:
        """One of the current listeners, to be bound. Raises ConfigError if it cannot be served."""
        has_tls, has_sasl = one.protocol in _WITH_TLS, one.protocol.startswith("SASL_")
        if has_tls and one.name not in self._served:
            self._served = {**self._served, one.name: _serve(self._config, one)}
        authenticator = None
        if has_sasl:
            assert self._sasl is not None, "settings with such a listener have come before"
            authenticator = self._sasl.authenticator(one.name)
        return Listener(one.name, one.host, one.port, self._tls(one) if has_tls else None, authenticator)

    def _sasl_of(self, config: BrokerConfig) -> SaslListeners | None:
        """The logins of the listeners with SASL; None as long as there is no such listener. Raises ConfigError."""
        has_sasl = any(one.protocol.startswith("SASL_") for one in config.listeners)
        if self._sasl is None and has_sasl and self._make_sasl is not None:
            return self._make_sasl(config)
        return self._sasl

    async def prepare(self, config: BrokerConfig) -> None:
        """Fetch the keys for tokens that these settings need. Raises ConfigError."""
        if not any(one.protocol.startswith("SASL_") for one in config.listeners):
            return
        from kafkalite.server.sasl_listeners import key_sources

        for source in key_sources(config):
            if source not in self._known_keys:
                self._known_keys[source] = await asyncio.to_thread(source.read)

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError if the listeners could not be served with these settings, which were prepared."""
        broker_login(config)
        sasl = self._sasl_of(config)
        if sasl is not None:
            sasl.check(config)
        for listener in _with_tls(config):
            served = self._served.get(listener.name)
            if served is None:
                _serve(config, listener)
            elif not served.is_current(config, listener):
                _renewed(config, listener, served)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Serve new connections with these settings. Raises ConfigError if there were none before."""
        self._config = config
        if not self._is_complete:
            self._serve_all()
            return
        try:
            settings = login_settings(config)
            if settings != self._login_settings:
                self._login, self._login_settings = broker_login(config), settings
        except ConfigError as fault:
            logger.error("this broker logs in to others as before: %s", fault)
        try:
            self._sasl = self._sasl_of(config)
        except ConfigError as fault:
            logger.error("no listener with SASL is added: %s", fault)
        if self._sasl is not None:
            self._sasl.reconfigure(config)
        self.refresh()

    def refresh(self) -> None:
        """Checks whether settings or files have changed, and whether this broker's own login needs a new token."""
        if self._login is not None:
            self._login.refresh()
        for listener in _with_tls(self._config):
            before = self._served.get(listener.name)
            if before is None:
                continue  # one that is about to be added
            if before.is_current(self._config, listener):
                continue
            try:
                served = _renewed(self._config, listener, before)
            except ConfigError as fault:
                logger.error("the certificates of listener %s stay as they were: %s", listener.name, fault)
                served = before.kept(self._config, listener)
            else:
                logger.info("listener %s serves new connections with new certificates", listener.name)
            self._served = {**self._served, listener.name: served}

    def to_broker(self, endpoint: ListenerConfig) -> ChannelSecurity:
        """The security of a connection to another broker. Raises OSError if this broker has no such listener, and so
        no settings for it."""
        login = None
        if endpoint.protocol.startswith("SASL_"):
            login = self._login
            if login is None:
                raise OSError(
                    f"{endpoint.name} is not the listener where brokers log in; see inter.broker.listener.name"
                )
        if endpoint.protocol not in _WITH_TLS:
            return ChannelSecurity(None, login)
        served = self._served.get(endpoint.name)
        if served is None or served.as_client is None:
            raise OSError(f"there is no listener {endpoint.name} here, whose settings of TLS would be used")
        return ChannelSecurity(served.as_client, login)

    def _tls(self, listener: ListenerConfig) -> Tls:
        name = listener.name
        principal: Callable[[bytes | None], str] = _anonymous  # with SASL, which gives the client's principal
        if listener.protocol == "SSL":
            from kafkalite.server.tls_listener import principal_of

            def principal(certificate: bytes | None) -> str:
                return principal_of(self._served[name].rules, certificate)

        return Tls(lambda: self._served[name].context, principal)


def _with_tls(config: BrokerConfig) -> list[ListenerConfig]:
    return [each for each in config.listeners if each.protocol in _WITH_TLS]


def _serve(config: BrokerConfig, listener: ListenerConfig) -> ServedTls:
    from kafkalite.server.tls_listener import serve  # most brokers have no such listener

    return serve(config, listener)


def _renewed(config: BrokerConfig, listener: ListenerConfig, before: ServedTls) -> ServedTls:
    from kafkalite.server.tls_listener import renewed

    return renewed(config, listener, before)


def _anonymous(_: bytes | None) -> str:
    return ANONYMOUS


_OPTIONS = {
    "OAUTHBEARER": 'clientId="..." and clientSecret="..."',
    "GSSAPI": 'useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM"',
}


def login_settings(config: BrokerConfig) -> object:
    """All settings of `broker_login`, to be compared: a login keeps its token as long as they stay. Raises
    ConfigError."""
    listener = config.inter_broker_listener
    if listener is None or config.zookeeper_connect is None or not listener.protocol.startswith("SASL_"):
        return None
    from kafkalite.client.logins import SETTINGS
    from kafkalite.config.jaas import login_module

    mechanism = config.sasl_mechanism_inter_broker_protocol
    chosen = [config.listener_setting(listener.name, name, mechanism) for name in SETTINGS]
    return listener.name, mechanism, login_module(config, listener.name, mechanism), chosen


def broker_login(config: BrokerConfig) -> Login | None:
    """The login of this broker at the others, where the brokers meet at a SASL listener; None where they meet without
    SASL, or this one runs standalone. Raises ConfigError.

    sasl.mechanism.inter.broker.protocol names the mechanism; the login stands in the login module of that listener and
    mechanism, beside the users that PLAIN has there: username and password, clientId and clientSecret, or keyTab and
    principal. Settings about tokens and tickets may be given for the listener, or for the mechanism on it.
    Source: org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder.
    """
    listener = config.inter_broker_listener
    if listener is None or config.zookeeper_connect is None or not listener.protocol.startswith("SASL_"):
        return None
    from kafkalite.client.logins import login_of  # most brokers need none
    from kafkalite.config.jaas import login_module, property_of

    mechanism = config.sasl_mechanism_inter_broker_protocol
    enabled = config.listener_setting(listener.name, "sasl.enabled.mechanisms")
    if mechanism not in enabled:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={mechanism}: the brokers meet at listener {listener.name}, where "
            f"sasl.enabled.mechanisms has {','.join(enabled)}; set one of these"
        )
    found = login_module(config, listener.name, mechanism)
    if found is None:
        name = property_of(listener.name, mechanism)
        options = _OPTIONS.get(mechanism, 'username="..." and password="..."')
        raise ConfigError(f"{name} is missing: it has the {options} of this broker at others")

    def chosen(setting: str) -> Any:
        return config.listener_setting(listener.name, setting, mechanism)

    try:
        return login_of(mechanism, found.module, chosen)
    except ValueError as fault:
        raise ConfigError(f"{found.where} {fault}") from None
    except ConfigError as fault:
        raise ConfigError(f"listener {listener.name}, where brokers log in to each other: {fault}") from None
