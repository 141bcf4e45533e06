"""The limits of a broker's sockets, from its settings."""

from __future__ import annotations

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.network.connection_quotas import ListenerLimits, NetworkLimits
from kafkalite.server.listener_changes import network_limits


def test_limits_come_from_the_configuration() -> None:
    limits = network_limits(BrokerConfig())
    assert limits == NetworkLimits(
        max_connections_per_ip_overrides=limits.max_connections_per_ip_overrides,
        of_listeners={"PLAINTEXT": ListenerLimits()},
    )
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "max.connections": "9",
        "listener.name.outside.max.connections": "3",
        "listener.name.outside.max.connection.creation.rate": "7",
    }
    limits = network_limits(BrokerConfig.load(properties))
    assert limits.protected_listener == "PLAINTEXT"
    assert limits.of_listeners == {"PLAINTEXT": ListenerLimits(9), "OUTSIDE": ListenerLimits(3, 7)}
