"""The handlers of share groups (KIP-932), bound to the parts of the broker that they use.

Each is made at the first request for it, with its import: most brokers have no share group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.api.handlers.share_fetch import ShareFetchApi
    from kafkalite.api.handlers.share_groups import ShareGroupApi
    from kafkalite.api.handlers.share_state import ShareStateApi
    from kafkalite.api.request.broker_endpoints import BrokerEndpoints
    from kafkalite.api.request.request_context import Runtime
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.metadata.finalized_features import FinalizedFeatures
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.server.coordinators import Coordinators


class ShareApis:
    """`fetches` answers members with records, `groups` their heartbeats, `states` the leaders of share partitions."""

    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        metadata: ClusterMetadata,
        brokers: BrokerEndpoints,
        replica_manager: ReplicaManager,
        coordinators: Coordinators,
        features: FinalizedFeatures,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._metadata = metadata
        self._brokers = brokers
        self._replica_manager = replica_manager
        self._coordinators = coordinators
        self._features = features

    @cached_property
    def fetches(self) -> ShareFetchApi:
        from kafkalite.api.handlers.share_fetch import ShareFetchApi
        from kafkalite.api.request.share_acknowledgements import ShareAcknowledgements
        from kafkalite.api.request.share_sessions import ShareSessions
        from kafkalite.api.request.share_traffic import ShareTraffic
        from kafkalite.replication.share.share_partitions import SharePartitions

        its = self._coordinators
        shares = SharePartitions(self._runtime.clock, its.share_states, its.share_reading)
        self._replica_manager.on_resignation.subscribe(shares.on_resignation)
        traffic = ShareTraffic()

        def on_last_end(group_id: str) -> None:
            shares.drop_group(group_id)
            traffic.forget_group(group_id)

        sessions = ShareSessions(
            lambda: self._config().group_share_max_share_sessions, shares.on_session_end, on_last_end
        )
        replicas = self._replica_manager
        taken = ShareAcknowledgements(replicas, shares, traffic)
        return ShareFetchApi(
            self._runtime, self._config, self._brokers, replicas, shares, sessions, self._features, traffic, taken
        )

    @property
    def used_fetches(self) -> ShareFetchApi | None:
        """`fetches` if there was a request for them."""
        found: ShareFetchApi | None = self.__dict__.get("fetches")
        return found

    @cached_property
    def groups(self) -> ShareGroupApi:
        from kafkalite.api.handlers.share_groups import ShareGroupApi

        its = self._coordinators
        return ShareGroupApi(self._runtime, its.groups, self._features, self._metadata, its.end_offsets.find)

    @cached_property
    def states(self) -> ShareStateApi:
        from kafkalite.api.handlers.share_state import ShareStateApi

        return ShareStateApi(self._coordinators.shares)
