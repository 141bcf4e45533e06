"""BrokerReport: reports of brokers as values of JSON.

An Apache Kafka has none, and a user may not be allowed to read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Refused, Unanswered
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.common.text import read_json
from kafkalite.protocol.messages.broker_report import BrokerReportRequest
from kafkalite.protocol.messages.log_dirs import COUNTS, DescribeLogDirsRequest

KAFKALITE, KAFKA = "kafkalite", "kafka"
_VERSION = 0
_PARTITIONS_PER_REQUEST = 500
_LOG_DIRS_VERSION = 4


def ask_report(client: BlockingClient, kind: str, **arguments: Any) -> Any:
    """The report as JSON values. Raises Refused with the broker's message, Unanswered."""
    answer = client.ask(BrokerReportRequest(kind=kind, arguments=json.dumps(arguments)), _VERSION)
    if answer.error_code:
        raise Refused(answer.error_message or name_of_error(answer.error_code))
    try:
        return read_json(bytes(answer.content))
    except ValueError as fault:
        raise Unanswered(f"the broker's report is invalid: {fault}") from None


def is_kafkalite(client: BlockingClient) -> bool | None:
    """Whether a broker has reports, by a request that every broker answers; None if it is refused (it needs DESCRIBE
    of the cluster). Raises Unanswered."""
    answer = client.ask(DescribeLogDirsRequest(topics=[], count_records=COUNTS), _LOG_DIRS_VERSION)
    return None if answer.error_code else bool(answer.counts_records)


class KnowsBrokers:
    """Remembers whether the brokers of a cluster are kafkalite's, from the first answer on."""

    _is_kafkalite: bool | None = None

    def gives_reports(self, cluster: ClusterClient) -> bool:
        """Whether these are kafkalite's brokers whose reports the user may read. Raises Unanswered."""
        return self.kind_of(cluster) == KAFKALITE

    def kind_of(self, cluster: ClusterClient) -> str | None:
        """KAFKALITE or KAFKA; None for a user who lacks DESCRIBE on the cluster. Raises Unanswered."""
        if self._is_kafkalite is None:
            self._is_kafkalite = is_kafkalite(cluster.first)
        return None if self._is_kafkalite is None else KAFKALITE if self._is_kafkalite else KAFKA


def report(cluster: ClusterClient, pool: KnowsBrokers, broker_id: int, kind: str, **arguments: Any) -> Any:
    """The report of one broker; None if it has none. Raises Unanswered if the broker is unreachable."""
    if not pool.gives_reports(cluster):
        return None
    try:
        return ask_report(cluster.client(broker_id), kind, **arguments)
    except Refused:
        return None


def reports(cluster: ClusterClient, pool: KnowsBrokers, kind: str, **arguments: Any) -> dict[int, Any]:
    """The reports of all brokers that answer, by broker id."""
    found = {}
    for broker_id in sorted(cluster.brokers):
        try:
            one = report(cluster, pool, broker_id, kind, **arguments)
        except Unanswered:
            continue
        if one is not None:
            found[broker_id] = one
    return found


def generations(cluster: ClusterClient, pool: KnowsBrokers) -> dict[str, int]:
    """The generation of each group with members, or its epoch; none from an Apache Kafka."""
    found: dict[str, int] = {}
    for answer in reports(cluster, pool, "rebalances", generations=True).values():
        found |= answer.get("generations", {})
    return found


def record_counts(
    cluster: ClusterClient,
    pool: KnowsBrokers,
    places: Iterable[tuple[TopicPartition, int]],
    *,
    committed_only: bool = True,
) -> dict[tuple[TopicPartition, int], int]:
    """The exact number of records that a consumer at each of these offsets would still get; without unknown ones."""
    by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
    for key, offset in places:
        place = cluster.places.get(key)
        if place is not None and place.leader != NO_LEADER:
            by_leader.setdefault(place.leader, []).append((key, offset))
    found: dict[tuple[TopicPartition, int], int] = {}
    for leader, asked in by_leader.items():
        for at in range(0, len(asked), _PARTITIONS_PER_REQUEST):
            portion = asked[at : at + _PARTITIONS_PER_REQUEST]
            answer = report(
                cluster,
                pool,
                leader,
                "records",
                committed_only=committed_only,
                places=[[topic, index, offset] for (topic, index), offset in portion],
            )
            if answer is not None:
                counts = zip(portion, answer["records"], strict=True)
                found.update({place: count for place, count in counts if count is not None})
    return found
