"""TLS of one listener: its context, made from its settings and files, and made again when these have changed.

Imported when a listener has TLS: OpenSSL's names and the rules for principals take 4 ms of a start.
Source: org.apache.kafka.common.security.ssl.SslFactory (reconfigure, validateReconfiguration), SslPrincipalMapper.
"""

from __future__ import annotations

import ssl

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.config.tls import (
    TlsSettings,
    client_context,
    file_states,
    own_certificate,
    server_context,
    try_handshake,
)
from kafkalite.network.client_connection import ANONYMOUS
from kafkalite.security.principal import alternative_names, subject_of, user
from kafkalite.security.principal_rules import MappingRule, map_name, parse_mapping_rules


class ServedTls(NamedTuple):
    """The context and settings in service at one listener."""

    settings: TlsSettings
    files: tuple[tuple[int, int], ...]
    context: ssl.SSLContext
    as_client: ssl.SSLContext | None
    rules: tuple[MappingRule, ...]
    certificate: bytes
    trial: ssl.SSLContext | None
    """For trial handshakes, where brokers meet: as `as_client`, without a check of host names."""

    def is_current(self, config: BrokerConfig, listener: ListenerConfig) -> bool:
        """Whether a context that is made now would be the same."""
        settings = _settings_of(config, listener)
        return settings == self.settings and file_states(settings) == self.files

    def kept(self, config: BrokerConfig, listener: ListenerConfig) -> ServedTls:
        """The same beside files that cannot be served: their fault is logged once for each change."""
        return self._replace(files=file_states(_settings_of(config, listener)))


def _settings_of(config: BrokerConfig, listener: ListenerConfig) -> TlsSettings:
    settings = TlsSettings.read(lambda name: config.listener_setting(listener.name, name))
    if listener.protocol == "SASL_SSL" and not config.is_set_for_listener(listener.name, "ssl.client.auth"):
        return settings._replace(client_auth="none")  # as in Kafka: clients there authenticate by SASL
    return settings


def renewed(config: BrokerConfig, listener: ListenerConfig, before: ServedTls) -> ServedTls:
    """New keys and certificates of a listener that is in service. Raises ConfigError unless they renew the present
    ones: the principal is the same, and brokers with the new ones and brokers with the present ones accept each other.
    """
    served = serve(config, listener)
    where = f"listener {listener.name}: the new certificate"
    if served.certificate != before.certificate:
        try:
            was, now = subject_of(before.certificate), subject_of(served.certificate)
            lacks = alternative_names(before.certificate) - alternative_names(served.certificate)
        except ValueError as fault:
            raise ConfigError(f"{where}: {fault}") from None
        if was.lower() != now.lower() and not config.listener_setting(listener.name, "ssl.allow.dn.changes"):
            raise ConfigError(
                f"{where} is for {now[:200]!r}, and the one before for {was[:200]!r}; with ssl.allow.dn.changes=true "
                "that may be, or after a restart"
            )
        if lacks and not config.listener_setting(listener.name, "ssl.allow.san.changes"):
            raise ConfigError(
                f"{where} lacks {len(lacks)} of the host names of the one before; with ssl.allow.san.changes=true that "
                "may be, or after a restart"
            )
    if served.trial is not None and before.trial is not None and _is_good(before.context, before.trial):
        _prove(f"{where} and the one before", served.context, before.trial)
        _prove(f"{where} and the one before", before.context, served.trial)
    return served


def _is_good(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether brokers accept each other with these, which ends when a certificate expires."""
    try:
        try_handshake(server, client)
    except ssl.SSLError:
        return False
    return True


def _prove(where: str, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    try:
        try_handshake(server, client)
    except ssl.SSLError as fault:
        why = getattr(fault, "verify_message", None) or fault.reason
        raise ConfigError(
            f"{where}: brokers, which meet there, would not accept each other ({why}); is its authority in the trust "
            "store (ssl.truststore)?"
        ) from None


def serve(config: BrokerConfig, listener: ListenerConfig) -> ServedTls:
    settings = _settings_of(config, listener)
    try:
        files = file_states(settings)  # before they are read: the next check finds a change in between
        rules = parse_mapping_rules(config.listener_setting(listener.name, "ssl.principal.mapping.rules"))
        context = server_context(settings)
        as_client = trial = None
        if config.zookeeper_connect is not None:
            as_client = client_context(settings)
            meeting = config.inter_broker_listener
            if meeting is not None and meeting.name == listener.name:
                trial = client_context(settings._replace(endpoint_identification_algorithm=""))
                _prove("its certificate", context, trial)
        certificate = own_certificate(settings)
        assert certificate is not None, "server_context has found one"
        return ServedTls(settings, files, context, as_client, rules, certificate, trial)
    except ConfigError as fault:
        raise ConfigError(f"listener {listener.name}: {fault}") from None
    except ValueError as fault:
        raise ConfigError(f"listener {listener.name}: ssl.principal.mapping.rules {fault}") from None


def principal_of(rules: tuple[MappingRule, ...], certificate: bytes | None) -> str:
    """The principal of a client with this certificate. Raises ValueError if the rules know none."""
    if certificate is None:
        return ANONYMOUS
    name = subject_of(certificate)
    mapped = map_name(rules, name)
    if mapped is None:
        raise ValueError(f"no rule of ssl.principal.mapping.rules matches the client's certificate, {name[:200]!r}")
    return user(mapped)
