"""The login of this broker at the others, where the brokers of a cluster meet at a SASL listener.

sasl.mechanism.inter.broker.protocol names the mechanism; username and password stand in the login module of that
listener and mechanism, beside the users that PLAIN has there.
Source: kafka.network.SocketServer, org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.security.sasl.client_exchange import Login


def broker_login(config: BrokerConfig) -> Login | None:
    """None where the brokers meet without SASL, or this one is a cluster by itself. Raises ConfigError."""
    listener = config.inter_broker_listener
    if listener is None or config.zookeeper_connect is None or not listener.protocol.startswith("SASL_"):
        return None
    from kafkalite.security.sasl.client_exchange import login_of  # most brokers need none
    from kafkalite.security.sasl.login_modules import login_module, property_of

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
        raise ConfigError(f'{name} is missing: it has the username="..." and password="..." of this broker at others')
    try:
        return login_of(mechanism, found.module)
    except ValueError as fault:
        raise ConfigError(f"{found.where} {fault}") from None
