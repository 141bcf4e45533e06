"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics, of this broker, of groups, and
subscriptions to metrics of clients. ListConfigResources: what has settings.

A topic's settings are replaced as a whole in the metadata and take effect at once. Of a broker's settings only those
that Kafka calls dynamic can be changed: mostly the defaults of topics. Groups and subscriptions need not exist; theirs
stand in the entity configs of the cluster.
Source: kafka.server.ConfigHelper, kafka.server.ZkAdminManager, KIP-226, KIP-339; org.apache.kafka.controller
.ConfigurationControlManager, kafka.server.ConfigAdminManager, KIP-714, KIP-1142.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from kafkalite.api.request.request_context import RequestContext, refusal
from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, desanitized, entity_path, topic_name_fault
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.client_metrics_config import ClientMetricsConfig
from kafkalite.config.dynamic_settings import refusal as dynamic_refusal
from kafkalite.config.group_config import GroupConfig
from kafkalite.config.settings import ConfigEntry, ConfigSource, ConfigType
from kafkalite.config.topic_config import TopicConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.messages import configs as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from kafkalite.security.acl.acl import Operation, ResourceType

TOPIC = wire.TOPIC_RESOURCE
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
ALL_BROKERS = ""
_DIGITS_MAX = 10
_NUMBERS = ("broker.id", "node.id")

_Altered = TypeVar("_Altered", wire.AlterConfigsResource, wire.IncrementalAlterConfigsResource)
_Resource = TypeVar(
    "_Resource", wire.AlterConfigsResource, wire.IncrementalAlterConfigsResource, wire.DescribeConfigsResource
)
Settings = Mapping[str, str]

Fault = tuple[int, str, ErrorCode, str | None]


class DynamicConfig(Protocol):
    """The broker's settings, which may change at runtime."""

    @property
    def now(self) -> BrokerConfig: ...

    def change(
        self, broker: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> Awaitable[None]:
        """Replace the dynamic settings of `broker` ("": of all) by the result of `change`. Raises ConfigError."""
        ...


class EntityKind(NamedTuple):
    """A kind of resource whose settings are entity configs, below `folder`. A name is always needed."""

    folder: str
    settings: type[GroupConfig | ClientMetricsConfig]
    no_name_to_describe: str
    no_name_to_alter: str


ENTITY_KINDS = {
    wire.CLIENT_METRICS_RESOURCE: EntityKind(
        CLIENT_METRICS_CONFIGS,
        ClientMetricsConfig,
        "Client metrics subscription name must not be empty",
        "Subscription name can't be empty",
    ),
    wire.GROUP_RESOURCE: EntityKind(
        GROUP_CONFIGS, GroupConfig, "Group name must not be empty", "Default group resources are not allowed."
    ),
}
LISTED_KINDS = (TOPIC, BROKER, wire.BROKER_LOGGER_RESOURCE, *ENTITY_KINDS)


class ConfigApi(NamedTuple):
    """The APIs of settings."""

    dynamic_config: DynamicConfig
    metadata: ClusterMetadata
    replica_manager: ReplicaManager
    topic_admin: TopicAdmin
    broker_id: int

    def describe_configs(
        self, request: wire.DescribeConfigsRequest, context: RequestContext
    ) -> wire.DescribeConfigsResponse | Awaitable[wire.DescribeConfigsResponse]:
        if self.metadata.is_shared:
            return self._caught_up(request, context)
        return self._described(request, context)

    async def _caught_up(
        self, request: wire.DescribeConfigsRequest, context: RequestContext
    ) -> wire.DescribeConfigsResponse:
        """As with Kafka, which reads ZooKeeper, an answer has what another broker has acknowledged before."""
        await self.topic_admin.catch_up(each.resource_name for each in request.resources if each.resource_type == TOPIC)
        return self._described(request, context)

    def _described(self, request: wire.DescribeConfigsRequest, context: RequestContext) -> wire.DescribeConfigsResponse:
        # A resource that is named twice is answered once, since clients keep the answers by resource. Otherwise five
        # bytes of a request would become a hundred kilobytes of response.
        resources = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
        allowed = _refused_last(context, Operation.DESCRIBE_CONFIGS, resources.values())
        return wire.DescribeConfigsResponse(results=[self._describe(*each, request) for each in allowed])

    def _describe(
        self,
        resource: wire.DescribeConfigsResource,
        refused: KafkaError | None,
        request: wire.DescribeConfigsRequest,
    ) -> wire.DescribeConfigsResult:
        result = wire.DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            if refused is not None:
                raise refused
            entries = self._entries(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or ""
            return result
        wanted = set(resource.configuration_keys) if resource.configuration_keys else None  # null or empty: all
        result.configs = [
            wire.DescribeConfigsResourceResult(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                is_default=entry.is_default,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
                synonyms=[
                    wire.DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
                    for one in entry.synonyms
                ]
                if request.include_synonyms
                else [],
                config_type=entry.type,
                documentation=entry.doc if request.include_documentation else None,
            )
            for entry in entries
            if wanted is None or entry.name in wanted
        ]
        return result

    def _entries(self, resource: wire.DescribeConfigsResource) -> Iterable[ConfigEntry]:
        if resource.resource_type == TOPIC:
            _check_topic_name(resource.resource_name)
            topic = self.replica_manager.by_name.get(resource.resource_name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return TopicConfig.describe(topic.overrides, self.dynamic_config.now)
        if (kind := ENTITY_KINDS.get(resource.resource_type)) is not None:
            if not resource.resource_name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, kind.no_name_to_describe)
            own = self.metadata.entity_configs.get(entity_path(kind.folder, resource.resource_name), {})
            return kind.settings.describe(own, self.dynamic_config.now)
        if resource.resource_type != BROKER:
            raise _unknown_type(resource.resource_type)
        self._check_is_this_broker(resource.resource_name)
        entries = self.dynamic_config.now.describe()
        if resource.resource_name == ALL_BROKERS:
            return _changed_for_all(entries)
        number = str(self.broker_id)  # generated at the first start if none is configured
        return [entry._replace(value=number) if entry.name in _NUMBERS else entry for entry in entries]

    def list_config_resources(
        self, request: wire.ListConfigResourcesRequest, context: RequestContext
    ) -> wire.ListConfigResourcesResponse:
        kinds: Sequence[int] = (wire.CLIENT_METRICS_RESOURCE,)
        if context.api_version > 0:
            kinds = request.resource_types or LISTED_KINDS
        if not set(kinds) <= set(LISTED_KINDS):
            return wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return wire.ListConfigResourcesResponse(
            config_resources=[
                wire.ListedConfigResource(resource_name=name, resource_type=kind)
                for kind in dict.fromkeys(kinds)
                for name in self._resources(kind)
            ]
        )

    def _resources(self, kind: int) -> list[str]:
        if kind == TOPIC:
            return sorted(self.metadata.topics)
        if kind in (BROKER, wire.BROKER_LOGGER_RESOURCE):
            return [str(broker_id) for broker_id in sorted(self.metadata.brokers)]
        folder = ENTITY_KINDS[kind].folder
        paths = self.metadata.entity_configs
        return sorted(desanitized(path.removeprefix(folder)) for path in paths if path.startswith(folder))

    async def alter_configs(
        self, request: wire.AlterConfigsRequest, context: RequestContext
    ) -> wire.AlterConfigsResponse:
        def change(resource: wire.AlterConfigsResource, old: Settings) -> dict[str, str]:
            _check_no_nulls((entry.name, entry.value) for entry in resource.configs)
            return {entry.name: entry.value or "" for entry in resource.configs}

        faults = await self._alter_all(context, request.resources, change, request.validate_only)
        return wire.AlterConfigsResponse(
            responses=[
                wire.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
                for kind, name, code, message in faults
            ]
        )

    async def incremental_alter_configs(
        self, request: wire.IncrementalAlterConfigsRequest, context: RequestContext
    ) -> wire.IncrementalAlterConfigsResponse:
        def change(resource: wire.IncrementalAlterConfigsResource, old: Settings) -> dict[str, str]:
            _check_no_nulls((entry.name, entry.value) for entry in resource.configs if entry.config_operation != DELETE)
            new = dict(old)
            for entry in resource.configs:
                self._apply(resource.resource_type, entry, new)
            return new

        faults = await self._alter_all(context, request.resources, change, request.validate_only)
        return wire.IncrementalAlterConfigsResponse(
            responses=[
                wire.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
                for kind, name, code, message in faults
            ]
        )

    def _apply(self, kind: int, entry: wire.IncrementalAlterableConfig, settings: dict[str, str]) -> None:
        """Apply one operation of an incremental change to `settings`."""
        name, operation, value = entry.name, entry.config_operation, entry.value or ""
        if kind in ENTITY_KINDS and operation in (APPEND, SUBTRACT):
            word = "APPEND" if operation == APPEND else "SUBTRACT"
            message = f"Can't {word} to key {name} because its type is not LIST."
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        if operation == SET:
            settings[name] = value
        elif operation == DELETE:
            settings.pop(name, None)
        elif operation in (APPEND, SUBTRACT):
            setting = TopicConfig.by_name.get(name) if kind == TOPIC else self.dynamic_config.now.setting_of(name)
            if setting is None or setting.type is not ConfigType.LIST:
                word = "append" if operation == APPEND else "subtract"
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {word} is not allowed for config key: {name}")
            if kind == TOPIC:
                default = setting.format(self.dynamic_config.now.topic_default(setting))
            else:
                default = self.dynamic_config.now.text_of(name)
            words = [word for word in (settings.get(name, default) or "").split(",") if word]
            changed = [word.strip() for word in value.split(",")]
            if operation == APPEND:
                words += [word for word in changed if word not in words]
            else:
                words = [word for word in words if word not in changed]
            settings[name] = ",".join(words)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation} for {name}")

    async def _alter_all(
        self,
        context: RequestContext,
        resources: Sequence[_Altered],
        change: Callable[[_Altered, Settings], dict[str, str]],
        validate_only: bool,
    ) -> list[Fault]:
        """Change each resource independently of the others; returns (type, name, code, message) of each."""
        times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        faults: list[Fault] = []
        for resource, refused in _refused_last(context, Operation.ALTER_CONFIGS, resources):
            kind, name = resource.resource_type, resource.resource_name
            try:
                if refused is not None:
                    raise refused
                if times[kind, name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once")
                if len({entry.name for entry in resource.configs}) < len(resource.configs):
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
                await self._alter_one(kind, name, lambda old: change(resource, old), validate_only)  # noqa: B023
                faults.append((kind, name, ErrorCode.NONE, None))
            except KafkaError as error:
                faults.append((kind, name, error.code, error.message))
        return faults

    def _alter_one(
        self, kind: int, name: str, change: Callable[[Settings], dict[str, str]], validate_only: bool
    ) -> Awaitable[None]:
        if kind == TOPIC:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "topics have no defaults to alter: a topic's name is missing"
                )
            _check_topic_name(name)
            return self.topic_admin.change_overrides(name, change, validate_only=validate_only)
        if kind in ENTITY_KINDS:
            return self._alter_entity(ENTITY_KINDS[kind], name, change, validate_only)
        if kind != BROKER:
            raise _unknown_type(kind)
        self._check_is_a_broker(name)
        return self._alter_broker(name, change, validate_only)

    async def _alter_entity(
        self, kind: EntityKind, name: str, change: Callable[[Settings], dict[str, str]], validate_only: bool
    ) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, kind.no_name_to_alter)
        path = entity_path(kind.folder, name)

        def checked(old: Settings) -> dict[str, str]:
            new = change(old)
            kind.settings.check(new, self.dynamic_config.now)
            return new

        if validate_only:
            checked(self.metadata.entity_configs.get(path, {}))
        else:
            await self.metadata.writes.change_entity_config(path, checked)

    async def _alter_broker(self, name: str, change: Callable[[Settings], dict[str, str]], validate_only: bool) -> None:
        def dynamic_only(old: Settings) -> dict[str, str]:
            new = change(old)
            changed = {key: value for key, value in new.items() if old.get(key) != value}
            if fault := dynamic_refusal(self.dynamic_config.now, changed, for_all=name == ALL_BROKERS):
                raise KafkaError(ErrorCode.INVALID_REQUEST, fault)
            return new

        try:
            await self.dynamic_config.change(name, dynamic_only, validate_only)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_is_a_broker(self, name: str) -> None:
        """Any broker accepts changes of another broker's settings, even while the other one is down. Kafka's clients
        must send them to the broker itself."""
        if not (self.metadata.is_shared and name.isascii() and name.isdigit() and len(name) < _DIGITS_MAX):
            self._check_is_this_broker(name)

    def _check_is_this_broker(self, name: str) -> None:
        if name not in (ALL_BROKERS, str(self.broker_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self.broker_id} or empty string, but received {name}",
            )


_OWN_RIGHTS = {TOPIC: ResourceType.TOPIC, wire.GROUP_RESOURCE: ResourceType.GROUP}


def _refused_last(
    context: RequestContext, operation: Operation, resources: Iterable[_Resource]
) -> list[tuple[_Resource, KafkaError | None]]:
    """Each resource with its refusal, if the client may not; all but topics and groups need the cluster."""

    def refused(each: _Resource) -> KafkaError | None:
        type_ = _OWN_RIGHTS.get(each.resource_type)
        if type_ is not None:
            return None if context.may(operation, type_, each.resource_name) else refusal(type_)
        return None if context.may_cluster(operation) else refusal(ResourceType.CLUSTER)

    return sorted(((each, refused(each)) for each in resources), key=lambda one: one[1] is not None)


def _changed_for_all(entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """The dynamic settings of all brokers (cluster-wide defaults), also if this broker overrides them."""
    changed = []
    for entry in entries:
        own = tuple(one for one in entry.synonyms if one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        if own:
            changed.append(entry._replace(value=own[0].value, source=own[0].source, synonyms=own))
    return changed


def _check_no_nulls(entries: Iterable[tuple[str, str | None]]) -> None:
    entries = list(entries)
    nulls = [name for name, value in entries if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _check_topic_name(name: str) -> None:
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def _unknown_type(kind: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}: topics are 2, brokers are 4")
