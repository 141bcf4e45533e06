"""How many connections may be open: in all, and from one address.

Source: kafka.network.ConnectionQuotas. One thing differs: at `max.connections` Kafka stops accepting until one goes, we
close the new one at once, so that its client learns it and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.network.request_memory import RequestMemoryPool

CONNECTIONS_MAX = 2**31 - 1
REQUEST_MEMORY_BYTES = 128 * 1024 * 1024


class NetworkLimits(NamedTuple):
    """Kafka's properties and defaults, dots being underscores. A buffer size of -1 leaves it to the system."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    max_connections: int = CONNECTIONS_MAX
    max_connections_per_ip: int = CONNECTIONS_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    """By host name or address; names are resolved when the server starts."""
    connections_max_idle_ms: int = 600_000
    """Negative: connections stay for ever."""
    queued_max_request_bytes: int = -1
    """Of large requests that have come in part; negative: `REQUEST_MEMORY_BYTES`, or one request if that is more."""
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_send_buffer_bytes: int = 256 * 1024
    socket_listen_backlog_size: int = 50

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """The settings of these names in `config`."""
        return cls._make(getattr(config, name) for name in cls._fields)


class ConnectionQuotas:
    """Counts the open connections of a server. Every `admit` that returns None needs one `release`."""

    __slots__ = ("_by_host", "_limits", "_overrides", "connection_count", "request_memory")

    def __init__(self, limits: NetworkLimits, overrides_by_address: Mapping[str, int]) -> None:
        self._limits = limits
        self._overrides = overrides_by_address
        self._by_host: dict[str, int] = {}
        self.connection_count = 0
        asked = limits.queued_max_request_bytes
        default = max(REQUEST_MEMORY_BYTES, limits.socket_request_max_bytes)
        self.request_memory = RequestMemoryPool(asked if asked > 0 else default)

    def admit(self, host: str) -> str | None:
        """Count one more connection from `host` in and return None, or return why it may not be."""
        if self.connection_count >= self._limits.max_connections:
            return f"connection refused: max.connections={self._limits.max_connections} are open"
        count = self._by_host.get(host, 0)
        limit = self._overrides.get(host, self._limits.max_connections_per_ip)
        if count >= limit:
            name = "max.connections.per.ip.overrides" if host in self._overrides else "max.connections.per.ip"
            return f"connection refused: {name}={limit} are open from this address"
        self._by_host[host] = count + 1
        self.connection_count += 1
        return None

    def release(self, host: str) -> None:
        self.connection_count -= 1
        count = self._by_host.pop(host) - 1
        if count:
            self._by_host[host] = count
