"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44): the settings of resources (topics, brokers,
client metrics, groups). ListConfigResources (74): the resources that have settings.

Kafka's two altering requests have structs of the same names; here those of the incremental request have a prefix, and
the responses, whose fields are equal, share one.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import INT8, STRING, Message, array, boolean, int8, int16, int32, string

TOPIC_RESOURCE = 2
"""The type of a topic among the resources that have settings (ConfigResource.Type)."""
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


class DescribeConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array(STRING, "0+", nullable="0+")


class DescribeConfigsRequest(Message, flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Message):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", mostly_empty=True)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


class DescribeConfigsResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


class DescribeConfigsResponse(Message, flexible="4+"):
    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


class AlterableConfig(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Message, flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class IncrementalAlterableConfig(Message):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class IncrementalAlterConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Message, flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Message, flexible="1+"):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class ListConfigResourcesRequest(Message, flexible="0+"):
    """Version 0, ListClientMetricsResources, asks for resources of client metrics only."""

    resource_types: list[int] = array(INT8, "1+")  # none: all types


class ListedConfigResource(Message):
    """Kafka's ConfigResource."""

    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=CLIENT_METRICS_RESOURCE)


class ListConfigResourcesResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ListedConfigResource] = array(ListedConfigResource, "0+")
