"""Quotas of connections: how many may be open, how fast new ones may come.

    max.connections               of the broker and of a listener: others wait until they are accepted
    max.connection.creation.rate  of the broker and of a listener: a new one is served after a while
    max.connections.per.ip        from one address: others are closed at once
    connection_creation_rate      of an address, a quota of its own: others are accepted, and closed after a while

The listener of other brokers, if clients have another one, is not limited by the numbers for the whole broker: if it
needs room, the other connection that has been silent for longest is closed.
Source: kafka.network.ConnectionQuotas, KIP-402, KIP-612.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from kafkalite.common.clock import Clock, monotonic_s
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.sampled_rate import SampledRate, ThrottleTimes

CONNECTIONS_MAX = 2**31 - 1


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
    """Negative: idle connections are not closed."""
    queued_max_request_bytes: int = -1
    """Of large requests that have come in part; negative: `REQUEST_MEMORY_BYTES`, or one request if that is more."""
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_send_buffer_bytes: int = 160 * 1024
    socket_listen_backlog_size: int = 50
    of_listeners: Mapping[str, ListenerLimits] = MappingProxyType({})
    protected_listener: str | None = None
    """The listener of other brokers, if clients have others: connections of clients do not limit its own."""


SILENT_S = 1.0
FAIR_BYTES = 4 * 1024 * 1024
BUSY_FACTOR = 8


class Sender(Protocol):
    def close_to_free_memory(self) -> None:
        """Close the connection."""


class RequestMemoryPool:
    """Bounds the bytes of all partial requests together (`bytes_held`), which may exceed the bound by one receive.

    A connection may send 99 of the 100 MB that it announced and then be silent; a thousand connections may. All partial
    requests together get `bytes_max`. Beyond that one connection is closed: the longest silent among those that have
    been silent for `SILENT_S` or hold more than `FAIR_BYTES`. A few hundred producers that all send a megabyte at once
    are neither silent nor large, and may have `BUSY_FACTOR` times as much. Apache Kafka's queued.max.request.bytes
    stops reading from all clients instead, until a request is complete.
    Source: org.apache.kafka.common.memory.SimpleMemoryPool, KIP-72, for the setting.
    """

    __slots__ = ("_by_sender", "_now_s", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int, now_s: Callable[[], float] = monotonic_s) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._now_s = now_s
        self._by_sender: dict[Sender, tuple[int, float]] = {}  # (bytes, time of the last bytes); longest silent first

    def note(self, sender: Sender, held_bytes: int) -> None:
        """`held_bytes` of a request of `sender` are received; 0: it has no partial request, or is closed."""
        self.bytes_held += held_bytes - self._by_sender.pop(sender, (0, 0.0))[0]
        if held_bytes:
            now_s = self._now_s()
            self._by_sender[sender] = held_bytes, now_s
            while self.bytes_held > self.bytes_max and (last := self._dispensable(now_s)) is not None:
                last.close_to_free_memory()  # notes 0 for itself

    def _dispensable(self, now_s: float) -> Sender | None:
        for sender, (held_bytes, heard_s) in self._by_sender.items():
            if held_bytes > FAIR_BYTES or now_s - heard_s >= SILENT_S:
                return sender
        if self.bytes_held > BUSY_FACTOR * self.bytes_max:
            return next(iter(self._by_sender))
        return None


REQUEST_MEMORY_BYTES = 128 * 1024 * 1024
ADDRESSES_MAX = 10_000  # whose rates are known at a time
_NO_LIMITS = ListenerLimits()


class ListenerConnections:
    """The connections of one listener: their number, creation rate and waits."""

    __slots__ = ("accept_waits", "count", "ip_waits", "max_connections", "name", "rate")

    def __init__(self, name: str, rate: SampledRate) -> None:
        self.name = name
        self.count = 0
        self.max_connections = CONNECTIONS_MAX
        self.rate = rate
        self.accept_waits = ThrottleTimes()
        self.ip_waits = ThrottleTimes()


class ConnectionQuotas:
    """Counts the open connections of a server. Every `admit` that returns None needs one `release`. `on_excess` closes
    connections above the limit.
    """

    def __init__(self, limits: NetworkLimits, overrides_by_address: Mapping[str, int], clock: Clock) -> None:
        self._clock = clock
        self._by_host: dict[str, int] = {}
        self._listeners: dict[str, ListenerConnections] = {}
        self._samples = limits.quota_window_num, limits.quota_window_size_seconds * 1_000
        self._rates_of_ips: dict[str | None, float] = {}  # None: of each address without a limit of its own
        self._rate_by_ip: dict[str, SampledRate] = {}
        self._waiting: list[Callable[[], None]] = []
        self.rate = self._new_rate(limits.max_connection_creation_rate)
        self.connection_count = 0
        self.on_excess: Callable[[], object] = lambda: None
        asked = limits.queued_max_request_bytes
        default = max(REQUEST_MEMORY_BYTES, limits.socket_request_max_bytes)
        self.request_memory = RequestMemoryPool(asked if asked > 0 else default)
        self.reconfigure(limits, overrides_by_address)

    def reconfigure(self, limits: NetworkLimits, overrides_by_address: Mapping[str, int]) -> None:
        self._limits = limits
        self._overrides = overrides_by_address
        self.rate.limit = limits.max_connection_creation_rate
        for listener in self._listeners.values():
            self._limit(listener)
        self._wake()
        if self.excess_count > 0:
            self.on_excess()

    def limit_ip(self, host: str | None, rate: float | None) -> None:
        """Set the quota of an address, or (None) of all without one of their own; without `rate` remove it."""
        if rate is None:
            self._rates_of_ips.pop(host, None)
        else:
            self._rates_of_ips[host] = rate
        for address, known in list(self._rate_by_ip.items()):
            limit = self._rates_of_ips.get(address, self._rates_of_ips.get(None))
            if limit is None:
                del self._rate_by_ip[address]
            else:
                known.limit = limit

    def listener(self, name: str) -> ListenerConnections:
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = ListenerConnections(name, self._new_rate(CONNECTIONS_MAX))
            self._limit(found)
        return found

    @property
    def listeners(self) -> Iterator[ListenerConnections]:
        return iter(self._listeners.values())

    @property
    def excess_count(self) -> int:
        """The number of connections above the limit."""
        return self.connection_count - self._limits.max_connections

    def is_protected(self, listener_name: str) -> bool:
        return listener_name == self._limits.protected_listener

    def has_slot(self, listener_name: str) -> bool:
        """Whether one more connection may be accepted there now."""
        listener = self.listener(listener_name)
        if listener.count >= listener.max_connections:
            return False
        return self.is_protected(listener_name) or self.connection_count < self._limits.max_connections

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call back once, when a connection is closed or a limit has changed."""
        self._waiting.append(callback)

    def creation_wait_ms(self, listener_name: str) -> int:
        """Count a new connection; returns the milliseconds until it may be served."""
        now_ms = self._clock.monotonic_ms()
        listener = self.listener(listener_name)
        wait_ms = 0 if self.is_protected(listener_name) else self.rate.record(1, now_ms)
        wait_ms = min(max(wait_ms, listener.rate.record(1, now_ms)), self._samples[1])
        if wait_ms > 0:
            listener.accept_waits.add(wait_ms, now_ms)
        return wait_ms

    def ip_wait_ms(self, listener_name: str, host: str) -> int:
        """The milliseconds to keep a connection from this address before closing it; 0: it may stay. A connection that
        may not stay is not counted.
        """
        limit = self._rates_of_ips.get(host, self._rates_of_ips.get(None))
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate_by_ip.get(host)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rate_by_ip[host] = self._new_rate(limit)
        wait_ms = min(rate.admit(1, now_ms), self._samples[1])
        if wait_ms > 0:
            listener = self.listener(listener_name)
            listener.ip_waits.add(wait_ms, now_ms)
            listener.rate.add(-1, now_ms)
            if not self.is_protected(listener_name):
                self.rate.add(-1, now_ms)
        return wait_ms

    def admit(self, listener_name: str, host: str) -> str | None:
        """Count one more connection from `host` and return None, or return the reason to refuse it."""
        count = self._by_host.get(host, 0)
        limit = self._overrides.get(host, self._limits.max_connections_per_ip)
        if count >= limit:
            name = "max.connections.per.ip.overrides" if host in self._overrides else "max.connections.per.ip"
            return f"connection refused: {name}={limit} are open from this address"
        self._by_host[host] = count + 1
        self.listener(listener_name).count += 1
        self.connection_count += 1
        if self.excess_count > 0:
            self.on_excess()
        return None

    def release(self, listener_name: str, host: str) -> None:
        self.connection_count -= 1
        self.listener(listener_name).count -= 1
        count = self._by_host.pop(host) - 1
        if count:
            self._by_host[host] = count
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def _limit(self, listener: ListenerConnections) -> None:
        limits = self._limits.of_listeners.get(listener.name, _NO_LIMITS)
        listener.max_connections = limits.max_connections
        listener.rate.limit = limits.max_connection_creation_rate

    def _new_rate(self, limit: float) -> SampledRate:
        return SampledRate(*self._samples, limit)

    def _make_room(self, now_ms: int) -> None:
        if len(self._rate_by_ip) >= ADDRESSES_MAX:
            for host in [host for host, rate in self._rate_by_ip.items() if rate.is_idle(now_ms)]:
                del self._rate_by_ip[host]
            for host in list(self._rate_by_ip)[: max(0, len(self._rate_by_ip) - ADDRESSES_MAX * 3 // 4)]:
                del self._rate_by_ip[host]
