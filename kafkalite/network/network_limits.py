"""Limits of connections, from the settings of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from kafkalite.config.broker_config import BrokerConfig

CONNECTIONS_MAX = 2**31 - 1
DEFAULT_INTER_BROKER_LISTENER = "PLAINTEXT"


class ListenerLimits(NamedTuple):
    """Limits of one listener."""

    max_connections: int = CONNECTIONS_MAX
    max_connection_creation_rate: int = CONNECTIONS_MAX


class NetworkLimits(NamedTuple):
    """Kafka's properties and defaults, dots being underscores. A buffer size of -1 leaves it to the system."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    max_connections: int = CONNECTIONS_MAX
    max_connections_per_ip: int = CONNECTIONS_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    """By host name or address; names are resolved when the server takes the limits."""
    max_connection_creation_rate: int = CONNECTIONS_MAX
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    connections_max_idle_ms: int = 600_000
    """Negative: connections stay for ever."""
    queued_max_request_bytes: int = -1
    """Of large requests that have come in part; negative: `REQUEST_MEMORY_BYTES`, or one request if that is more."""
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_send_buffer_bytes: int = 256 * 1024
    socket_listen_backlog_size: int = 50
    of_listeners: Mapping[str, ListenerLimits] = MappingProxyType({})
    protected_listener: str | None = None
    """The listener of other brokers, beside others: its connections are not limited by those of clients."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """The settings of these names in `config`."""
        names = [listener.name for listener in config.listeners]
        inter_broker = config.inter_broker_listener
        protected = inter_broker.name if inter_broker is not None else DEFAULT_INTER_BROKER_LISTENER
        of_listeners = {
            name: ListenerLimits(
                config.listener_setting(name, "max.connections"),
                config.listener_setting(name, "max.connection.creation.rate"),
            )
            for name in names
        }
        values = {name: getattr(config, name) for name in cls._fields if hasattr(config, name)}
        return cls(
            **values,
            of_listeners=of_listeners,
            protected_listener=protected if protected in names and len(names) > 1 else None,
        )
