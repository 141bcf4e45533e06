"""The requests of the consumer protocol (KIP-848): heartbeats, descriptions, and what follows from them.

A group decides, and its effects are performed here: regular expressions are matched some topics a turn of the loop, and
a group changes its protocol. Both end in a change of the group that is appended as any other.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (consumerGroupHeartbeat, consumerGroupDescribe),
GroupMetadataManager, modern.consumer.TopicRegexResolver (4.3).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import format_uuid
from kafkalite.coordinator.group.group import CLASSIC, CONSUMER
from kafkalite.coordinator.runtime.effects import (
    CONSUMER_GROUP_APPEND_ERROR,
    STAYS_IN_LOG,
    Append,
    EffectPerformer,
    Waiter,
)

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.coordinator.group.classic.classic_group import ClassicGroup
    from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
    from kafkalite.coordinator.group.consumer.group_change import DowngradeGroup, ResolveRegexes
    from kafkalite.coordinator.group.consumer.group_description import ConsumerGroupDescription
    from kafkalite.coordinator.group.consumer.group_environment import GroupEnvironment
    from kafkalite.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
    from kafkalite.coordinator.group.consumer.member import ResolvedRegex
    from kafkalite.coordinator.group.group import Group
    from kafkalite.coordinator.group_store import GroupStore

logger = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class ConsumerGroups:
    """The consumer groups among those in `store`."""

    def __init__(
        self,
        config: BrokerConfig,
        store: GroupStore,
        performer: EffectPerformer[Group],
        environment: GroupEnvironment,
        spawn: Spawn = asyncio.ensure_future,
    ) -> None:
        self._config = config
        self._store = store
        self._performer = performer
        self._environment = environment
        self._spawn = spawn
        self._tasks: set[Any] = set()

    # --- requests

    def keep_alive(
        self, group_id: str, member_id: str, member_epoch: int, instance_id: str | None, client: tuple[str, str]
    ) -> int | None:
        """A heartbeat that says nothing: the interval of heartbeats, in ms, if it is told nothing; None: it has to be
        decided by `heartbeat`. `client` is its id and its host."""
        group = self._store.by_id.get(group_id)
        if group is None or group.kind != CONSUMER:
            return None
        keep_alive = cast("ConsumerGroup", group).keep_alive
        return keep_alive(member_id, member_epoch, instance_id, client, self._performer.clock)

    def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, api_version: int, waiter: Waiter[HeartbeatResult]
    ) -> None:
        """ConsumerGroupHeartbeat: `waiter` is answered when the change is in the log."""
        from kafkalite.coordinator.group.consumer.heartbeat import HeartbeatResult, refused, validate

        store, performer = self._store, self._performer
        try:
            validate(group_id, request, api_version, self._environment.config(group_id).assignors)
            if not request.member_id:  # of a client that leaves it to the coordinator
                request = request._replace(member_id=format_uuid(uuid.uuid4()))
            known, error = store.find(group_id)
            if error:
                waiter.answer(HeartbeatResult(error))
                return
            group, effects = self._group_for(group_id, known, request)
        except KafkaError as error:
            waiter.answer(refused(error))
            return
        decided = group.consumer_heartbeat(request, waiter, performer.now())
        if group is not known:
            if not any(isinstance(effect, Append) for effect in decided):  # it is refused: nothing has changed
                performer.perform(group, decided)
                return
            if known is None:
                store.by_id[group_id] = group
            else:
                if known.kind == CLASSIC:
                    performer.perform(known, cast("ClassicGroup", known).refuse_syncs(performer.now()))
                store.replace(known, group)
        performer.perform(group, [*effects, *decided])

    def _group_for(
        self, group_id: str, known: Group | None, request: ConsumerHeartbeat
    ) -> tuple[ConsumerGroup, Sequence[Any]]:
        """The group of a heartbeat, and the effects of its conversion. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        from kafkalite.coordinator.group.classic.classic_group import ClassicGroup
        from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
        from kafkalite.coordinator.group_migration import upgraded

        if isinstance(known, ConsumerGroup):
            return known, ()
        if known is not None and (request.member_epoch != 0 or known.kind != CLASSIC):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if request.member_epoch != 0:
            name = "Group" if request.is_leave else "Consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} {group_id} not found.")
        if isinstance(known, ClassicGroup) and known.prepare_deletion():
            return upgraded(known, self._environment, self._performer.now())
        group = self._store.new_consumer_group(group_id)
        if known is not None:
            group.members.preceding_records = known.tombstones()
        return group, ()

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """ConsumerGroupDescribe: the group as it is stored. Raises KafkaError."""
        from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
        from kafkalite.coordinator.group.consumer.group_description import describe

        with self._store.find_stored(group_id) as group:
            if isinstance(group, ConsumerGroup):
                default = self._environment.config(group_id).assignors[0]
                return describe(group_id, group.tables, self._environment.topics, default)
            fault = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {fault}.")

    def unassign(self, group: ConsumerGroup) -> None:
        """Have every member give up its partitions, for tests; `rebalance` ends that."""
        change = group.members.new_change()
        change.unassign()
        self._performer.perform(group, group.members.store(change, ()))

    def rebalance(self, group: ConsumerGroup) -> None:
        """Begin a rebalance: the next heartbeat assigns the partitions anew."""
        change = group.members.new_change()
        change.begin_rebalance()
        self._performer.perform(group, group.members.store(change, ()))

    # --- effects

    def perform(self, group: Group, effect: ResolveRegexes | DowngradeGroup) -> None:
        """Perform an effect that only consumer groups have."""
        from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
        from kafkalite.coordinator.group.consumer.group_change import DowngradeGroup

        assert isinstance(group, ConsumerGroup)
        if isinstance(effect, DowngradeGroup):
            self._downgrade(group, effect)
            return
        task = self._spawn(self._resolve(group, effect))
        if isinstance(task, asyncio.Future):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _resolve(self, group: ConsumerGroup, effect: ResolveRegexes) -> None:
        resolved: list[tuple[str, ResolvedRegex]] | None = None
        try:
            resolved = await self._match(effect)
        except Exception:
            logger.exception("group %s: its regular expressions could not be resolved", group.group_id)
        if self._store.is_replaced(group):  # its records would come behind those of the group in its place
            resolved = None
        self._performer.perform(group, group.on_regexes_resolved(resolved, self._performer.now()))

    async def _match(self, effect: ResolveRegexes) -> list[tuple[str, ResolvedRegex]]:
        """Match all expressions of the group against the topics of the cluster, as they are now."""
        from kafkalite.coordinator.group.consumer.member import ResolvedRegex

        topics = self._environment.topics
        version, since_ms, names = topics.version, self._performer.now().wall_ms, list(topics.names)
        matched = {
            regex: await self._environment.compile_regex(regex).select(names) for regex in sorted(effect.regexes)
        }
        allowed = frozenset[str]().union(*matched.values())
        if effect.may_describe is not None:
            allowed = frozenset(name for name in allowed if effect.may_describe(name))
        return [
            (regex, ResolvedRegex(allowed.intersection(names), version, since_ms)) for regex, names in matched.items()
        ]

    def _downgrade(self, group: ConsumerGroup, effect: DowngradeGroup) -> None:
        from kafkalite.coordinator.group.consumer.member_records import records_of
        from kafkalite.coordinator.group_migration import downgraded

        now = self._performer.now()
        classic = downgraded(group, effect.leaving, effect.generation_id, self._config, now)
        records = [*records_of(group.group_id, effect.change.steps), *group.tombstones(), *classic.records()]
        self._store.replace(group, classic)
        group.members.conversion = effect.change

        def on_append(error: ErrorCode) -> None:
            shown = CONSUMER_GROUP_APPEND_ERROR.get(error, error)
            is_stored = not error or error in STAYS_IN_LOG
            if not is_stored:
                self._store.restore(classic)
                effect.change.undo()
                group.members.conversion = None
                self._performer.perform(group, group.members.retry_removal(effect.leaving, self._performer.now()))
            else:
                logger.info("group %s is classic again", group.group_id)
                self._store.confirm(classic)
                self._performer.perform(classic, classic.on_loaded(self._performer.now()))
            for each in effect.answers:
                each.waiter.answer(each.refuse(shown) if error else each.result)
            if is_stored and effect.reason is not None and classic.members:  # all may have left meanwhile
                self._performer.perform(classic, classic.rebalance(effect.reason, self._performer.now()))

        self._store.append(group.partition, records, on_append)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
