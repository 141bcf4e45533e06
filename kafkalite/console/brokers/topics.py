"""Topics and partitions as rows of the API: places from the metadata, sizes and counts from the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from kafkalite.client.acl_admin import operation_names
from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient, PartitionPlace
from kafkalite.client.group_rows import sum_known
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.console.brokers.inventory import Inventory, PartitionFacts
from kafkalite.console.request.parameters import ApiError, Row, not_found
from kafkalite.protocol.messages.configs import TOPIC_RESOURCE, DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

Places = dict[int, PartitionPlace]

_CONFIGS_VERSION = 3
_WITH_IDS_VERSION = 12
_SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker (static)",
    5: "default",
}
_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
_AT_ONCE = 500  # topics in one DescribeConfigs


def places_by_topic(cluster: ClusterClient) -> dict[str, Places]:
    """The partitions of every topic, by index."""
    ordered = sorted(cluster.places.items())
    return {
        topic: {key[1]: place for key, place in places} for topic, places in groupby(ordered, lambda one: one[0][0])
    }


def places_of(cluster: ClusterClient, topic: str) -> Places:
    """The partitions of a topic. Raises ApiError for a topic that does not exist, or that the user may not describe."""
    found = _found(cluster, topic)
    if not found:
        cluster.refresh()  # it may have been created a moment ago
        found = _found(cluster, topic)
    if not found:
        raise not_found(f"topic {topic[:249]!r} not found")
    return dict(sorted(found.items()))


def _found(cluster: ClusterClient, topic: str) -> Places:
    return {key[1]: place for key, place in cluster.places.items() if key[0] == topic}


def require_partition(places: Places, topic: str, partition: int) -> PartitionPlace:
    if partition not in places:
        raise not_found(f"{topic} has the partitions 0 to {max(places)}; there is no {partition}")
    return places[partition]


def facts_of(inventory: Inventory | None, topic: str, places: Places) -> dict[int, PartitionFacts]:
    known: Mapping[TopicPartition, PartitionFacts] = {} if inventory is None else inventory.partitions
    return {index: known.get((topic, index)) or PartitionFacts() for index in places}


def _span(facts: PartitionFacts) -> int | None:
    if facts.end_offset is None or facts.start_offset is None:
        return None
    return facts.end_offset - facts.start_offset


def topic_row(cluster: ClusterClient, topic: str, places: Places, inventory: Inventory | None) -> Row:
    """One row of the list of topics; settings are added for the rows of the page."""
    facts = facts_of(inventory, topic, places)
    return {
        "name": topic,
        "is_internal": topic in cluster.internal,
        "partitions": len(places),
        "replicas": max(len(place.replicas) for place in places.values()),
        "offset_span": sum_known(_span(one) for one in facts.values()),
        "records": sum_known(one.records for one in facts.values()),
        "records_pending": inventory is None or any(one.is_counting for one in facts.values()),
        "size_bytes": sum_known(one.size_bytes for one in facts.values()),
        "bytes_per_s": None if inventory is None else inventory.rates.get(topic),
        "cleanup_policy": None,
        "retention_ms": None,
        "under_replicated": sum(len(place.isr) < len(place.replicas) for place in places.values()),
        "offline": sum(place.leader == NO_LEADER for place in places.values()),
    }


def partition_row(index: int, place: PartitionPlace, facts: PartitionFacts) -> Row:
    """One row of a topic's partitions; the last stable offset is added for the rows of the page."""
    cleaning = facts.cleaning
    return {
        "partition": index,
        "leader": None if place.leader == NO_LEADER else place.leader,
        "leader_epoch": place.leader_epoch,
        "replicas": list(place.replicas),
        "isr": list(place.isr),
        "offline": [replica for replica in place.replicas if replica not in place.isr],
        "start_offset": facts.start_offset,
        "end_offset": facts.end_offset,
        "last_stable_offset": None,
        "offset_span": _span(facts),
        "records": facts.records,
        "records_uncommitted": facts.live_records,
        "size_bytes": facts.size_bytes,
        "segments": facts.segments,
        "dirty_ratio": None if cleaning is None else cleaning.dirty_ratio_ppm / 1e6,
        "last_cleaned_ms": None if cleaning is None or cleaning.last_run_ms < 0 else cleaning.last_run_ms,
        "why_not_cleaned": None if cleaning is None else cleaning.why_not,
        "is_under_replicated": len(place.isr) < len(place.replicas),
    }


def identity_of(cluster: ClusterClient, topic: str) -> Row:
    """The topic's id, and the operations that the user may perform on it; None from a broker that has neither."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    try:
        topics = cluster.first.ask(request, _WITH_IDS_VERSION).topics
    except Unanswered:
        topics = []
    if not topics or topics[0].error_code:
        return {"topic_id": None, "operations": None}
    found = topics[0]
    return {
        "topic_id": str(found.topic_id) if found.topic_id.int else None,
        "operations": operation_names(found.topic_authorized_operations),
    }


def settings_of(cluster: ClusterClient, topics: list[str], names: list[str]) -> dict[str, dict[str, str | None]]:
    """Some settings of some topics, by name; without the topics whose settings the user may not describe."""
    found: dict[str, dict[str, str | None]] = {}
    for at in range(0, len(topics), _AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=names)
            for topic in topics[at : at + _AT_ONCE]
        ]
        answer = cluster.first.ask(DescribeConfigsRequest(resources=resources), _CONFIGS_VERSION)
        for result in answer.results:
            if not result.error_code:
                found[result.resource_name] = {one.name: one.value for one in result.configs}
    return found


def config_rows(cluster: ClusterClient, name: str, resource_type: int = TOPIC_RESOURCE) -> list[Row]:
    """Every setting of a topic, or of the broker with this id, with the sources of its value. Raises ApiError."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    client = cluster.first if resource_type == TOPIC_RESOURCE else cluster.client(int(name))
    result = client.ask(request, _CONFIGS_VERSION).results[0]
    if result.error_code:
        text = result.error_message or name_of_error(result.error_code)
        status, error = (403, "NOT_PERMITTED") if "AUTHORIZ" in name_of_error(result.error_code) else (409, "REFUSED")
        raise ApiError(status, error, f"the settings of {name} cannot be read: {text}")
    return [
        {
            "name": one.name,
            "value": None if one.is_sensitive else one.value,
            "source": _SOURCES.get(one.config_source, "default"),
            "is_default": one.config_source == 5,
            "is_read_only": one.read_only,
            "is_sensitive": one.is_sensitive,
            "type": _TYPES[one.config_type] if 0 <= one.config_type < len(_TYPES) else "unknown",
            "documentation": one.documentation,
            "synonyms": [
                {"name": each.name, "value": each.value, "source": _SOURCES.get(each.source, "default")}
                for each in one.synonyms
            ],
        }
        for one in sorted(result.configs, key=lambda each: each.name)
    ]
