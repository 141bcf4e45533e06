"""Settings of topics and brokers as the brokers describe them, with the source of each value.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (describeConfigs).
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.messages.configs import (
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

BROKER_RESOURCE = 4
_VERSION = 3
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default"}
_OF_TOPIC = 1
_AT_ONCE = 500


class Setting(NamedTuple):
    """A setting. `value` is None for a secret, `source` says where the value is from."""

    name: str
    value: str | None
    source: str
    is_read_only: bool


def describe_settings(cluster: ClusterClient, resource_type: int, name: str) -> list[Setting]:
    """The settings of a topic, or of the broker with this id, by name. Raises Unanswered."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    client = cluster.first if resource_type == TOPIC_RESOURCE else cluster.client(int(name))
    result = client.ask(DescribeConfigsRequest(resources=[resource]), _VERSION).results[0]
    if result.error_code:
        why = result.error_message or name_of_error(result.error_code)
        raise Unanswered(f"the settings of {name} cannot be read: {why}")
    return [
        Setting(
            one.name,
            None if one.is_sensitive else one.value,
            _SOURCES.get(one.config_source, "default"),
            one.read_only,
        )
        for one in sorted(result.configs, key=lambda each: each.name)
    ]


def own_settings(cluster: ClusterClient, topics: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The settings that topics have of their own, (name, value) of each; none of one that may not be described."""
    found = []
    for at in range(0, len(topics), _AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
            for topic in topics[at : at + _AT_ONCE]
        ]
        for result in cluster.first.ask(DescribeConfigsRequest(resources=resources), _VERSION).results:
            own = [(one.name, one.value or "") for one in result.configs if one.config_source == _OF_TOPIC]
            found.append((result.resource_name, sorted(own)))
    return found
