"""The quotas, settings of groups, subscriptions to metrics and the authorizer of a running broker, kept up to date with
the metadata, from which expired tokens are deleted.

While there is any quota of users or clients, requests pass a `ThrottlingDispatcher`; without one quotas cost nothing.
Source: kafka.server.ConfigHandler (QuotaConfigHandler, IpConfigHandler), kafka.security.authorizer.AclAuthorizer (its
listener of changes), kafka.controller.KafkaController (tokenCleanScheduler).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.api.request.request_context import Access
from kafkalite.api.request.throttling import ThrottlingDispatcher
from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.common.names import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, desanitized
from kafkalite.metadata.cluster_metadata import Change
from kafkalite.security.acl.acl import Resource
from kafkalite.security.quota.client_quotas import ClientQuotaManager, QuotaWindows
from kafkalite.security.quota.entities import CONNECTION_CREATION_RATE, DEFAULT, quotas_of

if TYPE_CHECKING:
    from kafkalite.api.dispatch import Dispatcher
    from kafkalite.api.request.admission import AdmissionEpoch
    from kafkalite.api.request.client_telemetry import ClientTelemetry
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.group_config import GroupConfigs
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.network.socket_server import SocketServer
    from kafkalite.security.delegation_tokens import DelegationToken

logger = logging.getLogger(__name__)

_audit_log = logging.getLogger("kafkalite.authorizer")
_IPS = "ips/"


def follow_quotas(
    config: BrokerConfig,
    metadata: ClusterMetadata,
    server: SocketServer,
    dispatcher: Dispatcher,
    epoch: AdmissionEpoch,
    clock: Clock,
) -> tuple[ClientQuotaManager, Callable[[], None]]:
    """The quotas of clients, and a function that ends their updates. Each change advances `epoch`."""
    manager = ClientQuotaManager(
        QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1_000),
        QuotaWindows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1_000),
    )
    throttling = ThrottlingDispatcher(dispatcher.handle, manager, clock)

    def apply(path: str) -> bool:
        """Apply the settings of an entity; returns whether a quota of users or clients has changed."""
        quotas = metadata.entity_configs.get(path, {})
        if not path.startswith(_IPS):
            return manager.put(path, quotas)
        node = path.removeprefix(_IPS)
        rate = quotas_of(path, quotas).get(CONNECTION_CREATION_RATE)
        server.limit_ip(None if node == DEFAULT else desanitized(node), rate)
        return False

    def choose_dispatcher() -> None:
        epoch.advance()
        if manager.counts_time:
            server.serve(throttling.within_time)
        elif manager.has_limits:
            server.serve(throttling.within_bytes)
        else:
            server.serve(dispatcher)
            for connection in server.clients():
                connection.quotas = None

    def on_change(change: Change, path: str) -> None:
        if change is Change.ENTITY_CONFIG and apply(path):
            choose_dispatcher()

    changes = [apply(path) for path in metadata.entity_configs]
    if any(changes):
        choose_dispatcher()
    return manager, metadata.listen(on_change)


def follow_group_configs(metadata: ClusterMetadata, configs: GroupConfigs) -> Callable[[], None]:
    """Keep `configs` up to date. Returns a function that ends their updates."""

    def on_change(change: Change, path: str) -> None:
        if change is Change.ENTITY_CONFIG and path.startswith(GROUP_CONFIGS):
            configs.update(desanitized(path.removeprefix(GROUP_CONFIGS)), metadata.entity_configs.get(path, {}))

    for path in metadata.entity_configs:
        on_change(Change.ENTITY_CONFIG, path)
    return metadata.listen(on_change)


def follow_client_metrics(metadata: ClusterMetadata, telemetry: ClientTelemetry) -> None:
    """Keep the subscriptions of `telemetry` up to date, as long as the broker runs."""

    def on_change(change: Change, path: str) -> None:
        if change is Change.ENTITY_CONFIG and path.startswith(CLIENT_METRICS_CONFIGS):
            telemetry.update(path, metadata.entity_configs.get(path, {}))

    for path in metadata.entity_configs:
        on_change(Change.ENTITY_CONFIG, path)
    metadata.listen(on_change)


def follow_acls(
    config: BrokerConfig, metadata: ClusterMetadata, epoch: AdmissionEpoch, clock: Clock
) -> tuple[Access, Callable[[], None]]:
    """The access to this broker, and a function that ends its updates. Each change advances `epoch`."""
    from kafkalite.security.acl.authorizer import Authorizer  # most brokers have none

    authorizer = Authorizer(config.super_users, allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)
    for resource, entries in metadata.acls.items():
        authorizer.acls.put(resource, entries)

    def on_change(change: Change, name: str) -> None:
        if change is Change.ACLS:
            resource = Resource.parse(name)
            authorizer.acls.put(resource, metadata.acls.get(resource, ()))
            authorizer.changed()
            epoch.advance()

    return Access(authorizer, RateLimitedLogger(clock, _audit_log.info)), metadata.listen(on_change)


def token_expiry(metadata: ClusterMetadata, broker_id: int, clock: Clock) -> Callable[[], None]:
    """A function that begins to remove the delegation tokens that have expired, if this broker is the controller."""
    work: asyncio.Task[None] | None = None

    def start() -> None:
        nonlocal work
        if metadata.controller_id == broker_id and (work is None or work.done()):
            work = asyncio.ensure_future(remove_expired())

    async def remove_expired() -> None:
        now_ms = clock.wall_ms()

        def unless_renewed(there: DelegationToken | None) -> DelegationToken | None:
            return None if there is None or there.is_expired(now_ms) else there

        for token in [each for each in metadata.delegation_tokens.values() if each.is_expired(now_ms)]:
            try:
                await metadata.writes.change_delegation_token(token.token_id, unless_renewed)
            except (KafkaError, StorageError) as fault:
                logger.warning("a delegation token that has expired is not removed yet: %s", fault)
                return
            logger.info("the delegation token %s of %s has expired", token.token_id, token.owner)

    return start
