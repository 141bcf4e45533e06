"""The quotas of a running broker, kept up to date with those of its cluster.

While there is any quota of users or clients, requests go through a `ThrottlingDispatcher`; without one the broker does
nothing for quotas at all.
Source: kafka.server.ConfigHandler (QuotaConfigHandler, IpConfigHandler).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.api.throttling import ThrottlingDispatcher
from kafkalite.common.names import desanitized
from kafkalite.metadata.cluster_metadata import Change
from kafkalite.security.quota.client_quotas import ClientQuotaManager, QuotaWindows
from kafkalite.security.quota.entities import CONNECTION_CREATION_RATE, DEFAULT, quotas_of

if TYPE_CHECKING:
    from kafkalite.api.dispatch import Dispatcher
    from kafkalite.api.request.admission import AdmissionEpoch
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.network.socket_server import SocketServer

_IPS = "ips/"


def follow_quotas(
    config: BrokerConfig,
    metadata: ClusterMetadata,
    server: SocketServer,
    dispatcher: Dispatcher,
    epoch: AdmissionEpoch,
    clock: Clock,
) -> tuple[ClientQuotaManager, Callable[[], None]]:
    """The quotas of clients, and a function that ends their updates."""
    manager = ClientQuotaManager(
        QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1_000),
        QuotaWindows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1_000),
    )
    throttling = ThrottlingDispatcher(dispatcher, manager, clock)
    return manager, _FollowedQuotas(metadata, manager, server, dispatcher, throttling, epoch).follow()


class _FollowedQuotas:
    """Gives the quotas in `metadata` to `manager` and `server`, from `follow` on. Each change advances `epoch`."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        manager: ClientQuotaManager,
        server: SocketServer,
        dispatcher: Dispatcher,
        throttling: ThrottlingDispatcher,
        epoch: AdmissionEpoch,
    ) -> None:
        self._metadata = metadata
        self._manager = manager
        self._server = server
        self._dispatcher = dispatcher
        self._throttling = throttling
        self._epoch = epoch

    def follow(self) -> Callable[[], None]:
        """Returns a function that ends this."""
        changes = [self._take(path) for path in self._metadata.entity_configs]
        if any(changes):
            self._switch()
        return self._metadata.listen(self._on_change)

    def _on_change(self, change: Change, path: str) -> None:
        if change is Change.ENTITY_CONFIG and self._take(path):
            self._switch()

    def _take(self, path: str) -> bool:
        """Whether a quota of users or clients has changed."""
        config = self._metadata.entity_configs.get(path, {})
        if not path.startswith(_IPS):
            return self._manager.put(path, config)
        node = path.removeprefix(_IPS)
        rate = quotas_of(path, config).get(CONNECTION_CREATION_RATE)
        self._server.limit_ip(None if node == DEFAULT else desanitized(node), rate)
        return False

    def _switch(self) -> None:
        self._epoch.advance()
        manager = self._manager
        if manager.counts_time:
            self._server.serve(self._throttling.within_time)
        elif manager.has_limits:
            self._server.serve(self._throttling.within_bytes)
        else:
            self._server.serve(self._dispatcher)
            for connection in self._server.clients():
                connection.quotas = None
