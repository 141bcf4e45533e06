"""Changes of topics by an administrator: requests to the controller of a cluster, refusals as text; and RunCleaner,
which starts a compaction.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (createTopics, deleteTopics, createPartitions,
incrementalAlterConfigs). The versions are those that brokers have from 2.4 to 4.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages import topics as wire
from kafkalite.protocol.messages.cleaner import RunCleanerRequest
from kafkalite.protocol.messages.configs import (
    TOPIC_RESOURCE,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

_VERSION = 0


def compact(client: BlockingClient, topic: str, partitions: Sequence[int], rolls: bool) -> dict[int, str | None]:
    """The broker's message about each partition, None for one that is queued. Raises Unanswered for a refusal."""
    request = RunCleanerRequest(topic=topic, partitions=list(partitions), rolls=rolls, waits=False, timeout_ms=0)
    answer = client.ask(request, _VERSION)
    if answer.error_code:
        raise Unanswered(answer.error_message or name_of_error(answer.error_code))
    return {
        one.partition_index: one.message or (name_of_error(one.error_code) if one.error_code else None)
        for one in answer.partitions
    }


BROKERS_DEFAULT = -1
_CREATE_VERSION = 4
_DELETE_VERSION = 3
_CREATE_PARTITIONS_VERSION = 1
_ALTER_CONFIGS_VERSION = 0
_SET, _DELETE = 0, 1  # operations of IncrementalAlterConfigs
_GRACE_S = 5.0  # the broker times out before this side does

Refusals = list[str]
"""A sentence for each topic that is unchanged."""


def create_topics(
    cluster: ClusterClient,
    names: Sequence[str],
    timeout_s: float,
    *,
    partitions: int = BROKERS_DEFAULT,
    replicas: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    validate_only: bool = False,
) -> Refusals:
    """Raises Unanswered."""
    settings = [wire.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    topics = [
        wire.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
        for name in names
    ]
    request = wire.CreateTopicsRequest(topics=topics, timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    answer = cluster.controller().ask(request, _CREATE_VERSION, timeout_s + _GRACE_S)
    passed = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else ErrorCode.NONE
    return _refusals("is not created", answer.topics, passed)


def ensure_topics(cluster: ClusterClient, retries: Retries, partition_counts: Mapping[str, int]) -> None:
    """Create missing topics with these partition counts and the cluster's defaults, and wait until brokers report them.
    Raises WriteFailed if one cannot be created, or has fewer partitions.
    """
    topics = [
        wire.CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        for name, count in partition_counts.items()
    ]

    def create() -> int:
        response = cluster.controller().ask(wire.CreateTopicsRequest(topics=topics), _CREATE_VERSION)
        codes = {one.name: one for one in response.topics if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS}
        for name, one in codes.items():
            if one.error_code == ErrorCode.NOT_CONTROLLER:
                cluster.refresh([])
                return int(ErrorCode.LEADER_NOT_AVAILABLE)
            if one.error_code:
                said = f" ({one.error_message})" if one.error_message else ""
                raise WriteFailed(f"topic {name!r} cannot be created: {name_of_error(one.error_code)}{said}")
        return int(ErrorCode.NONE)

    def refresh() -> int:
        return max(cluster.refresh(partition_counts).values(), default=int(ErrorCode.NONE))

    retries.persist("topics cannot be created", create)
    retries.persist("the topics that were created are not there", refresh)
    for name, count in partition_counts.items():
        there = cluster.partition_count(name)
        if there < count:
            raise WriteFailed(
                f"topic {name!r} has {there} partitions there, and {count} are copied; add partitions to it"
            )


def delete_topics(
    cluster: ClusterClient, names: Sequence[str], timeout_s: float, *, if_exists: bool = False
) -> Refusals:
    """Raises Unanswered."""
    request = wire.DeleteTopicsRequest(topic_names=list(names), timeout_ms=int(timeout_s * 1000))
    answer = cluster.controller().ask(request, _DELETE_VERSION, timeout_s + _GRACE_S)
    passed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else ErrorCode.NONE
    return _refusals("is not deleted", answer.responses, passed)


def add_partitions(cluster: ClusterClient, name: str, count: int, timeout_s: float) -> Refusals:
    """Adds partitions up to `count`. Raises Unanswered."""
    topic = wire.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = wire.CreatePartitionsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))
    answer = cluster.controller().ask(request, _CREATE_PARTITIONS_VERSION, timeout_s + _GRACE_S)
    return _refusals("gets no more partitions", answer.results)


def alter_configs(
    cluster: ClusterClient,
    name: str,
    configs: Mapping[str, str],
    removed: Iterable[str],
    *,
    validate_only: bool = False,
    resource_type: int = TOPIC_RESOURCE,
) -> Refusals:
    """Sets some settings of a topic, and resets others to the broker's; or those of the broker with this id, or of all
    brokers (an empty name). Raises Unanswered."""
    changes = [IncrementalAlterableConfig(name=key, config_operation=_SET, value=configs[key]) for key in configs]
    changes += [IncrementalAlterableConfig(name=key, config_operation=_DELETE, value=None) for key in removed]
    resource = IncrementalAlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    is_topic = resource_type == TOPIC_RESOURCE
    client = cluster.controller() if is_topic or not name else cluster.client(int(name))
    answer = client.ask(request, _ALTER_CONFIGS_VERSION)
    what = "topic" if is_topic else "broker"
    return [
        f"{what} {one.resource_name or 'all'} keeps its settings: {one.error_message or name_of_error(one.error_code)}"
        for one in answer.responses
        if one.error_code
    ]


def _refusals(what: str, results: Iterable[Any], passed: ErrorCode = ErrorCode.NONE) -> Refusals:
    return [
        f"topic {one.name} {what}: {_reason(one)}" for one in results if one.error_code not in (ErrorCode.NONE, passed)
    ]


def _reason(refusal: Any) -> str:
    """The broker's message, or the name of the error."""
    if refusal.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "no topic has this name"
    return getattr(refusal, "error_message", None) or name_of_error(refusal.error_code)
