"""CreateTopics, DeleteTopics, CreatePartitions. Each topic of a request succeeds or fails independently.

Source: kafka.server.ZkAdminManager.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from kafkalite.api.request.request_context import TOPIC, RequestContext, Runtime, in_time, refusal
from kafkalite.api.request.throttling import MutationQuota
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, ZERO_UUID
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionAdmin
from kafkalite.protocol.messages import topics as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import Charge, TopicAdmin
from kafkalite.security.acl.acl import Operation

DEFAULT = -1
FIRST_VERSION_WITH_DELETION_DISABLED = 3
_FIRST_STRICT_CREATION, _FIRST_STRICT_DELETION, _FIRST_STRICT_GROWTH = 6, 5, 3
_CHANGES_AT_ONCE = 100
_TIMEOUT_MS_OF_OWN_REQUEST = 30_000
_TIMEOUT_MS_MIN = 1_000  # a shorter timeout would end before the controller could act
_Wanted = TypeVar("_Wanted")
_Done = TypeVar("_Done")
_Result = wire.CreatableTopicResult | wire.DeletableTopicResult | wire.CreatePartitionsTopicResult
_NamedTopic = TypeVar("_NamedTopic", wire.CreatableTopic, wire.CreatePartitionsTopic)


class TopicApi(NamedTuple):
    """The CreateTopics, DeleteTopics and CreatePartitions APIs."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    metadata: ClusterMetadata
    replica_manager: ReplicaManager
    topic_admin: TopicAdmin
    partition_admin: PartitionAdmin

    async def create_topics(
        self, request: wire.CreateTopicsRequest, context: RequestContext
    ) -> wire.CreateTopicsResponse:
        quota = self._quota(context, _FIRST_STRICT_CREATION)
        results = await self._create_all(request, context, quota)
        for result in results:
            if not context.may(Operation.DESCRIBE_CONFIGS, TOPIC, result.name, is_logged=False):
                result.topic_config_error_code, result.topic_id = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ZERO_UUID
                result.num_partitions, result.replication_factor, result.configs = -1, -1, []
        return wire.CreateTopicsResponse(topics=results, throttle_time_ms=_wait_ms(quota, results))

    async def create_for_client(
        self, topics: list[wire.CreatableTopic], context: RequestContext
    ) -> list[wire.CreatableTopicResult]:
        """Create topics that a request of this client needs, with its rights and its quota."""
        request = wire.CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS_OF_OWN_REQUEST)
        return await self._create_all(request, context, self._quota(context, 0))

    async def _create_all(
        self, request: wire.CreateTopicsRequest, context: RequestContext, quota: MutationQuota
    ) -> list[wire.CreatableTopicResult]:
        wanted, doubled = _once_each(request.topics)
        allowed = {each.name for each in wanted if context.may_create(each.name)}

        async def create(topic: wire.CreatableTopic) -> wire.CreatableTopicResult:
            try:
                if topic.name not in allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
                if topic.name in doubled:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                created = self._create(topic, request.validate_only, quota.take)
                return await self._in_time(request.timeout_ms, created)
            except KafkaError as error:
                return wire.CreatableTopicResult(
                    name=topic.name,
                    error_code=error.code,
                    error_message=error.message,
                    num_partitions=-1,
                    replication_factor=-1,
                    configs=[],
                )

        return await self._each(create, sorted(wanted, key=lambda each: each.name not in allowed))

    def _quota(self, context: RequestContext, first_strict_version: int) -> MutationQuota:
        """The quota of a request. It refuses no older client, which would not know the error (KIP-599)."""
        is_strict = context.api_version >= first_strict_version
        return MutationQuota(context.connection, self.runtime.clock, is_strict=is_strict)

    async def _in_time(self, timeout_ms: int, work: Coroutine[Any, Any, _Done]) -> _Done:
        """The result of `work`, in a cluster within the client's timeout (see `in_time`)."""
        if not self.metadata.is_shared:
            return await work
        return await in_time(self.runtime, max(timeout_ms, _TIMEOUT_MS_MIN), work)

    async def _each(self, do: Callable[[_Wanted], Awaitable[_Done]], all_of: Sequence[_Wanted]) -> list[_Done]:
        """The results of `do` for each element. In a cluster each change waits for the controller, so several run
        concurrently."""
        done: list[_Done] = []
        for at in range(0, len(all_of), _CHANGES_AT_ONCE):
            done += await asyncio.gather(*map(do, all_of[at : at + _CHANGES_AT_ONCE]))
        return done

    async def _create(
        self, wanted: wire.CreatableTopic, validate_only: bool, charge: Charge
    ) -> wire.CreatableTopicResult:
        self.topic_admin.check_name(wanted.name)
        overrides = _overrides(wanted)
        assigned: dict[int, list[int]] | None = None
        if wanted.assignments:
            if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Both numPartitions or replicationFactor and replicasAssignments were set. "
                    "Both cannot be used at the same time.",
                )
            assigned = {one.partition_index: list(one.broker_ids) for one in wanted.assignments}
            if len(assigned) != len(wanted.assignments) or sorted(assigned) != list(range(len(assigned))):
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be numbered from 0 on")
            for broker_ids in assigned.values():
                self._check_replicas(broker_ids)
            partition_count, factor = len(assigned), len(assigned[0])
            if any(len(broker_ids) != factor for broker_ids in assigned.values()):
                message = "All partitions should have the same number of replicas"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        else:
            partition_count = (
                self.config().num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions
            )
            factor = wanted.replication_factor
            if factor == DEFAULT:
                factor = self.topic_admin.default_replication_factor
            self._check_replication_factor(factor)
        topic = await self.topic_admin.create(
            wanted.name,
            partition_count,
            overrides,
            replication_factor=factor,
            assignment=assigned,
            validate_only=validate_only,
            charge=charge,
        )
        result = wire.CreatableTopicResult(
            name=wanted.name,
            num_partitions=partition_count,
            replication_factor=factor,
            configs=[
                wire.CreatableTopicConfigs(
                    name=entry.name,
                    value=overrides.get(entry.name, entry.value),
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in TopicConfig.describe(overrides, self.config())
            ],
        )
        if topic is not None:
            result.topic_id = topic.topic_id
        return result

    def _check_replication_factor(self, factor: int) -> None:
        if factor <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        broker_count = len(self.metadata.brokers)
        if factor > broker_count:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor: {factor} larger than available brokers: {broker_count}.",
            )

    def _check_replicas(self, broker_ids: list[int]) -> None:
        unknown = [broker_id for broker_id in broker_ids if broker_id not in self.metadata.brokers]
        if unknown:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.",
            )
        if not broker_ids or len(set(broker_ids)) < len(broker_ids):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {broker_ids}: each broker once, at least one"
            )

    async def delete_topics(
        self, request: wire.DeleteTopicsRequest, context: RequestContext
    ) -> wire.DeleteTopicsResponse:
        states = request.topics or [wire.DeleteTopicState(name=name) for name in request.topic_names]
        states, refused = self._split_by_permission(context, states)
        if not self.config().delete_topic_enable:
            newer = context.api_version >= FIRST_VERSION_WITH_DELETION_DISABLED
            code = ErrorCode.TOPIC_DELETION_DISABLED if newer else ErrorCode.INVALID_REQUEST
            responses = [_not_deleted(state.name, state.topic_id, code) for state in states]
            return wire.DeleteTopicsResponse(responses=responses + refused)
        names: Counter[str] = Counter()
        ids: Counter[UUID] = Counter()
        results: list[
            wire.DeletableTopicResult | str | UUID
        ] = []  # a finished result, or the name or id of a topic to delete
        for state in states:
            if state.name is not None and state.topic_id == ZERO_UUID:
                names[state.name] += 1
            elif state.name is None and state.topic_id != ZERO_UUID:
                ids[state.topic_id] += 1
            else:
                what = "Neither topic name nor id were" if state.name is None else "Both topic name and id were"
                results.append(
                    _not_deleted(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, f"{what} specified.")
                )
        named_too = set()
        for name, count in names.items():
            topic = self.replica_manager.by_name.get(name)
            if count > 1:
                results.append(_not_deleted(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            elif topic is not None and topic.topic_id in ids:
                named_too.add(topic.topic_id)
                said = "The topic is named by its id as well."
                results.append(_not_deleted(name, topic.topic_id, ErrorCode.INVALID_REQUEST, said))
            else:
                results.append(name)
        for topic_id, count in ids.items():
            if count > 1:
                results.append(_not_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
            elif topic_id not in named_too:
                results.append(topic_id)

        quota = self._quota(context, _FIRST_STRICT_DELETION)

        async def delete(one: wire.DeletableTopicResult | str | UUID) -> wire.DeletableTopicResult:
            if isinstance(one, wire.DeletableTopicResult):
                return one
            return await self._delete(one, request.timeout_ms, quota.take)

        deleted = await self._each(delete, results)
        return wire.DeleteTopicsResponse(responses=deleted + refused, throttle_time_ms=_wait_ms(quota, deleted))

    def _split_by_permission(
        self, context: RequestContext, states: list[wire.DeleteTopicState]
    ) -> tuple[list[wire.DeleteTopicState], list[wire.DeletableTopicResult]]:
        """The topics that the client may delete, and the refusals of the others. The name of a topic that is given by
        its id is in the refusal only if the client may describe it."""
        allowed: list[wire.DeleteTopicState] = []
        refused: list[wire.DeletableTopicResult] = []
        for state in states:
            topic = self.replica_manager.by_id.get(state.topic_id) if state.topic_id != ZERO_UUID else None
            name = topic.name if topic is not None else state.name
            if topic is not None and not context.may(Operation.DESCRIBE, TOPIC, topic.name):
                refused.append(_not_deleted(None, state.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif name is None or context.may(Operation.DELETE, TOPIC, name):  # None: an unknown id
                allowed.append(state)
            else:
                refused.append(_not_deleted(name, state.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return allowed, refused

    async def _delete(self, name_or_id: str | UUID, timeout_ms: int, charge: Charge) -> wire.DeletableTopicResult:
        try:
            for name in INTERNAL_TOPICS:
                internal = self.replica_manager.by_name.get(name)
                if name == name_or_id or (internal is not None and internal.topic_id == name_or_id):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal and cannot be deleted")
            topic = await self._in_time(timeout_ms, self.topic_admin.delete(name_or_id, charge))
        except KafkaError as error:
            if isinstance(name_or_id, str):
                return _not_deleted(name_or_id, ZERO_UUID, error.code, error.message)
            return _not_deleted(None, name_or_id, error.code, error.message)
        return wire.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)

    async def create_partitions(
        self, request: wire.CreatePartitionsRequest, context: RequestContext
    ) -> wire.CreatePartitionsResponse:
        wanted, doubled = _once_each(request.topics)
        quota = self._quota(context, _FIRST_STRICT_GROWTH)

        async def add(one: tuple[wire.CreatePartitionsTopic, bool]) -> wire.CreatePartitionsTopicResult:
            topic, is_allowed = one
            try:
                if not is_allowed:
                    raise refusal(TOPIC)
                if topic.name in doubled:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
                replicas = self._checked_replicas(topic)
                work = self.topic_admin.add_partitions(
                    topic.name,
                    topic.count,
                    replicas=replicas,
                    validate_only=request.validate_only,
                    charge=quota.take,
                )
                await self._in_time(request.timeout_ms, work)
                return wire.CreatePartitionsTopicResult(name=topic.name)
            except KafkaError as error:
                return wire.CreatePartitionsTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message
                )

        results = await self._each(add, context.refused_last(Operation.ALTER, TOPIC, wanted))
        return wire.CreatePartitionsResponse(results=results, throttle_time_ms=_wait_ms(quota, results))

    def _checked_replicas(self, wanted: wire.CreatePartitionsTopic) -> list[list[int]] | None:
        """The requested replicas of each new partition; None if the broker is to assign them."""
        if wanted.name in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{wanted.name} is internal: a group would change its partition"
            )
        if any(name == wanted.name for name, _ in self.partition_admin.reassignments()):
            message = f"A partition reassignment is in progress for the topic '{wanted.name}'."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        if wanted.assignments is None:
            return None
        topic = self.replica_manager.by_name.get(wanted.name)
        added = wanted.count - (len(topic.states) if topic is not None else 0)
        if added > 0 and len(wanted.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(wanted.assignments)} assignments provided.",
            )
        for assignment in wanted.assignments:
            self._check_replicas(list(assignment.broker_ids))
        replicas = [list(assignment.broker_ids) for assignment in wanted.assignments]
        if topic is not None:
            _check_same_factor(len(topic.states[0].replicas), replicas, first=len(topic.states))
        return replicas


def _wait_ms(quota: MutationQuota, results: Iterable[_Result]) -> int:
    refused = any(result.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED for result in results)
    return quota.wait_ms(refused=refused)


def _overrides(wanted: wire.CreatableTopic) -> dict[str, str]:
    overrides = {}
    for entry in wanted.configs:
        if entry.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {entry.name}")
        overrides[entry.name] = entry.value
    return overrides


def _not_deleted(
    name: str | None, topic_id: UUID, code: ErrorCode, message: str | None = None
) -> wire.DeletableTopicResult:
    return wire.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _check_same_factor(factor: int, added: list[list[int]], *, first: int) -> None:
    bad = {number: len(replicas) for number, replicas in enumerate(added, start=first) if len(replicas) != factor}
    if bad:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
            f"{list(bad)} have replication factors {list(bad.values())}, respectively.",
        )


def _once_each(topics: Iterable[_NamedTopic]) -> tuple[list[_NamedTopic], set[str]]:
    """The first topic of each name, and the names that occur more than once."""
    wanted: dict[str, _NamedTopic] = {}
    doubled: set[str] = set()
    for topic in topics:
        if wanted.setdefault(topic.name, topic) is not topic:
            doubled.add(topic.name)
    return list(wanted.values()), doubled
