"""The login of this broker at the others, where the brokers of a cluster meet at a SASL listener.

sasl.mechanism.inter.broker.protocol names the mechanism; the login stands in the login module of that listener and
mechanism, beside the users that PLAIN has there: username and password, clientId and clientSecret, or keyTab and
principal. Settings about tokens and tickets may be given for the listener, or for the mechanism on it.
Source: kafka.network.SocketServer, org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ConfigError

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.security.sasl.client_exchange import Login

_OPTIONS = {
    "OAUTHBEARER": 'clientId="..." and clientSecret="..."',
    "GSSAPI": 'useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM"',
}


def login_settings(config: BrokerConfig) -> object:
    """All that `broker_login` makes a login of, to be compared: a login keeps its token as long as this stays. Raises
    ConfigError."""
    listener = config.inter_broker_listener
    if listener is None or config.zookeeper_connect is None or not listener.protocol.startswith("SASL_"):
        return None
    from kafkalite.client.logins import SETTINGS
    from kafkalite.security.sasl.jaas import login_module

    mechanism = config.sasl_mechanism_inter_broker_protocol
    told = [config.listener_setting(listener.name, name, mechanism) for name in SETTINGS]
    return listener.name, mechanism, login_module(config, listener.name, mechanism), told


def broker_login(config: BrokerConfig) -> Login | None:
    """None where the brokers meet without SASL, or this one is a cluster by itself. Raises ConfigError."""
    listener = config.inter_broker_listener
    if listener is None or config.zookeeper_connect is None or not listener.protocol.startswith("SASL_"):
        return None
    from kafkalite.client.logins import login_of  # most brokers need none
    from kafkalite.security.sasl.jaas import login_module, property_of

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

    def told(setting: str) -> Any:
        return config.listener_setting(listener.name, setting, mechanism)

    try:
        return login_of(mechanism, found.module, told)
    except ValueError as fault:
        raise ConfigError(f"{found.where} {fault}") from None
    except ConfigError as fault:
        raise ConfigError(f"listener {listener.name}, where brokers log in to each other: {fault}") from None
