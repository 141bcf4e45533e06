"""The settings of a mirror, and those of one of its sources."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.client.mirror.naming import GROUPS_EXCLUDED, TOPICS_EXCLUDED, Filter, Naming
from kafkalite.client.producer.options import ProducerOptions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The brokers of a cluster, and how to log in there."""

    bootstrap_servers: str
    security: ClientSecurity | None = field(default=None, repr=False)

    def connect(self, timeout_s: float) -> ClusterClient:
        return ClusterClient(self.bootstrap_servers, timeout_s, self.security)


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The choice of topics and groups, and how they are copied. `name` is the beginning of the group's id and of the
    transactional ids, `instance` the process among those that share the partitions."""

    target: Endpoint
    target_alias: str = "target"
    name: str = "kafkalite-mirror"
    instance: str = "0"
    topics: Filter = field(default_factory=lambda: Filter(".*", TOPICS_EXCLUDED))
    groups: Filter = field(default_factory=lambda: Filter(".*", GROUPS_EXCLUDED))
    keeps_names: bool = False
    preserves_offsets: bool = False
    replication_factor: int = -1
    with_settings: bool = True
    with_acls: bool = False
    with_groups: bool = True
    commit_interval_ms: int = 20
    transaction_bytes: int = 16 << 20
    fetch_bytes: int = 8 << 20
    refresh_interval_ms: int = 5_000
    groups_interval_ms: int = 5_000
    heartbeat_interval_ms: int = 1_000
    request_timeout_ms: int = 30_000
    retry_ms: int = 1_000
    session_timeout_ms: int = 30_000

    def naming(self, alias: str) -> Naming:
        return Naming(alias, self.target_alias, self.keeps_names)

    def producer_options(self) -> ProducerOptions:
        """The settings of the producer at the target. The transaction of a process that does not come back is aborted
        after two sessions."""
        return ProducerOptions(
            self.target.bootstrap_servers,
            max_request_bytes=4 << 20,
            request_timeout_ms=self.request_timeout_ms,
            delivery_timeout_ms=self.request_timeout_ms * 2,
            transaction_timeout_ms=self.session_timeout_ms * 2,
            max_block_ms=self.request_timeout_ms,
        )
