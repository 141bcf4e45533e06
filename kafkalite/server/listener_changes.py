"""Listeners that are added, removed, or advertised elsewhere while the broker runs.

A listener that stays keeps its address until the next start, as in Kafka. A new one is bound for a moment before a
change is written, so that a port that is taken is refused; Kafka would write it, and log the fault.
Source: kafka.server.DynamicListenerConfig, KIP-226.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from kafkalite.common.clock import Clock, PeriodicTasks
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.network.connection_quotas import ListenerLimits
from kafkalite.network.socket_server import Listener, NetworkLimits, SocketServer
from kafkalite.server.listener_security import FILE_CHECK_MS, ListenerSecurity

logger = logging.getLogger(__name__)

_DEFAULT_INTER_BROKER_LISTENER = "PLAINTEXT"
GRACE_MS = 5_000
"""For requests in flight at a listener that is removed."""

Advertise = Callable[[Mapping[str, int]], Awaitable[None]]
"""Registers where this broker can be dialled; gets the ports of its listeners."""


def network_limits(config: BrokerConfig) -> NetworkLimits:
    """The settings of these names in `config`."""
    names = [listener.name for listener in config.listeners]
    inter_broker = config.inter_broker_listener
    protected = inter_broker.name if inter_broker is not None else _DEFAULT_INTER_BROKER_LISTENER
    of_listeners = {
        name: ListenerLimits(
            config.listener_setting(name, "max.connections"),
            config.listener_setting(name, "max.connection.creation.rate"),
        )
        for name in names
    }
    return NetworkLimits(
        **{name: getattr(config, name) for name in NetworkLimits._fields if hasattr(config, name)},
        of_listeners=of_listeners,
        protected_listener=protected if protected in names and len(names) > 1 else None,
    )


class ListenerChanges:
    """Keeps the listeners of `server` in step with the settings, from its construction to `close`."""

    def __init__(
        self,
        config: BrokerConfig,
        server: SocketServer,
        security: ListenerSecurity,
        advertise: Advertise,
        clock: Clock,
    ) -> None:
        self._config = config
        self._server = server
        self._security = security
        self._advertise = advertise
        self._work: asyncio.Task[None] | None = None
        self._certificates: PeriodicTasks | None = None
        self._clock = clock
        self._watch_certificates()

    async def check(self, new: BrokerConfig) -> None:
        """Raises ConfigError if a listener could not be added."""
        await self._security.prepare(new)
        self._security.check(new)
        added, removed = self._difference(new)
        free_ports = {self._server.ports[name] for name in removed}
        for listener in added:
            if listener.port not in free_ports:
                await self._server.check_address(Listener(listener.name, listener.host, listener.port))

    def apply(self, new: BrokerConfig) -> None:
        """Schedule the changes."""
        added, removed = self._difference(new)
        is_moved = new.advertised_listeners != self._config.advertised_listeners
        self._config = new
        if (added or removed or is_moved) and (self._work is None or self._work.done()):
            self._work = asyncio.get_running_loop().create_task(self._carry_out(), name="kafkalite-listeners")

    def _watch_certificates(self) -> None:
        """Check certificates and tokens from the first one on; an idle broker without any does not wake."""
        if self._security.ages and self._certificates is None:
            self._certificates = PeriodicTasks(self._clock)
            self._certificates.add("certificates", FILE_CHECK_MS, self._security.refresh)

    async def close(self) -> None:
        if self._certificates is not None:
            self._certificates.stop()
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    async def _carry_out(self) -> None:
        done: BrokerConfig | None = None
        while done is not self._config:
            config = done = self._config
            added, removed = self._difference(config)
            for name in removed:  # first: another listener may get its port
                self._server.remove(name, GRACE_MS)
                logger.info("listener %s is removed", name)
            for listener in added:
                try:
                    await self._server.add(self._security.listener(listener))
                except ConfigError as fault:
                    logger.error("listener %s is not added: %s", listener.name, fault)
                else:
                    logger.info("listener %s is added, port %d", listener, self._server.ports[listener.name])
            self._watch_certificates()
            await self._advertise(self._server.ports)

    def _difference(self, config: BrokerConfig) -> tuple[list[ListenerConfig], list[str]]:
        """The listeners to be added, and the names of those to be removed."""
        names, bound = {listener.name for listener in config.listeners}, self._server.ports
        return [one for one in config.listeners if one.name not in bound], [name for name in bound if name not in names]
