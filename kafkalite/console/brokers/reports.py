"""Reports of brokers, as far as they give any: an Apache Kafka gives none, and a user may not be allowed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.client.blocking_client import Refused, Unanswered
from kafkalite.client.broker_reports import ask_report
from kafkalite.client.cluster_client import NO_LEADER
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

_PARTITIONS_PER_REQUEST = 500


class KnowsBrokers(Protocol):
    """The pool of a user."""

    def gives_reports(self, cluster: ClusterClient) -> bool: ...


def report(cluster: ClusterClient, pool: KnowsBrokers, broker_id: int, kind: str, **arguments: Any) -> Any:
    """None where there is none. Raises Unanswered if the broker is away."""
    if not pool.gives_reports(cluster):
        return None
    try:
        return ask_report(cluster.client(broker_id), kind, **arguments)
    except Refused:
        return None


def reports(cluster: ClusterClient, pool: KnowsBrokers, kind: str, **arguments: Any) -> dict[int, Any]:
    """Of every broker that gives one now, by its id."""
    found = {}
    for broker_id in sorted(cluster.brokers):
        try:
            one = report(cluster, pool, broker_id, kind, **arguments)
        except Unanswered:
            continue
        if one is not None:
            found[broker_id] = one
    return found


def record_counts(
    cluster: ClusterClient,
    pool: KnowsBrokers,
    places: Iterable[tuple[TopicPartition, int]],
    *,
    committed_only: bool = True,
) -> dict[tuple[TopicPartition, int], int]:
    """How many records a consumer at each of these places would still get, exactly; without those not known."""
    by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
    for key, offset in places:
        place = cluster.places.get(key)
        if place is not None and place.leader != NO_LEADER:
            by_leader.setdefault(place.leader, []).append((key, offset))
    found: dict[tuple[TopicPartition, int], int] = {}
    for leader, asked in by_leader.items():
        for at in range(0, len(asked), _PARTITIONS_PER_REQUEST):
            portion = asked[at : at + _PARTITIONS_PER_REQUEST]
            told = report(
                cluster,
                pool,
                leader,
                "records",
                committed_only=committed_only,
                places=[[topic, index, offset] for (topic, index), offset in portion],
            )
            if told is not None:
                counts = zip(portion, told["records"], strict=True)
                found.update({place: count for place, count in counts if count is not None})
    return found
