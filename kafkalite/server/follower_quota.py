"""The answers to followers, within leader.replication.throttled.rate; an election of a partition reaches them, too."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.api.request.fetch_sessions import FollowerFetches
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.replication.replica.replication_quota import ReplicationQuota
from kafkalite.replication.replica_manager import ReplicaManager


def follower_fetches(
    broker_id: int, settings: Callable[[], BrokerConfig], replica_manager: ReplicaManager
) -> FollowerFetches:
    """For a broker with this number; `settings` are those of now."""
    config = settings()
    quota = ReplicationQuota(
        broker_id,
        lambda: settings().leader_replication_throttled_rate,
        config.replication_quota_window_num,
        config.replication_quota_window_size_seconds * 1_000,
    )
    fetches = FollowerFetches(quota)
    replica_manager.on_election.subscribe(lambda _: fetches.on_election())
    return fetches
