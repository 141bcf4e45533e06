"""The surroundings of a consumer group: its settings, the topics of the cluster, assignors, regular expressions.

Source: org.apache.kafka.coordinator.group.{GroupCoordinatorConfig, GroupConfig, ConsumerGroupMigrationPolicy} (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.group_config import GroupConfig, GroupConfigs
from kafkalite.coordinator.group.topics import Topics

INT_MAX = (1 << 31) - 1


class MigrationPolicy(Enum):
    """Whether a group with members may change its protocol while it works."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerGroupConfig(NamedTuple):
    """The settings of one group: those of the broker, or of the group itself where it has them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = INT_MAX
    classic_max_size: int = INT_MAX
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


class ConsumerGroupSettings:
    """The settings of each group, from those of the broker and those that the group has for itself."""

    def __init__(self, broker: Callable[[], BrokerConfig], groups: GroupConfigs) -> None:
        self._broker = broker
        self._groups = groups
        self._built = broker(), groups.of(""), ConsumerGroupConfig()
        self._build(*self._built[:2])

    def of(self, group_id: str) -> ConsumerGroupConfig:
        """Most groups have no settings of their own, so those of the last group are kept: 0.3 us instead of 1.5."""
        broker, group = self._broker(), self._groups.of(group_id)
        known_broker, known_group, built = self._built
        if broker is known_broker and group is known_group:
            return built
        if broker is not known_broker:
            self._groups.reconfigure(broker)
            group = self._groups.of(group_id)
        return self._build(broker, group)

    def _build(self, broker: BrokerConfig, group: GroupConfig) -> ConsumerGroupConfig:
        built = ConsumerGroupConfig(
            group.consumer_session_timeout_ms,
            group.consumer_heartbeat_interval_ms,
            group.consumer_assignment_interval_ms,
            broker.group_consumer_max_size,
            broker.group_max_size,
            broker.group_consumer_assignors,
            MigrationPolicy(broker.group_consumer_migration_policy),
            broker.group_consumer_regex_refresh_interval_ms,
        )
        self._built = broker, group, built
        return built


class TopicRegex(Protocol):
    """A compiled regular expression."""

    async def select(self, names: Iterable[str], /) -> list[str]:
        """The names that match as a whole. Gives way to the loop on the way."""
        ...


class GroupTotals:
    """Counts over all groups of a broker but the classic ones, for metrics: rebalances that were begun because a
    subscription or a topic changed."""

    __slots__ = ("rebalances", "share_rebalances", "streams_rebalances")

    def __init__(self) -> None:
        self.rebalances = 0  # of consumer groups
        self.share_rebalances = 0
        self.streams_rebalances = 0


class GroupEnvironment(NamedTuple):
    """The surroundings that all consumer groups of a broker share. `compile_regex` raises ValueError, which
    names the fault of the expression."""

    topics: Topics
    config: Callable[[str], ConsumerGroupConfig]  # by group id
    compile_regex: Callable[[str], TopicRegex]
    totals: GroupTotals

    def check_regex(self, regex: str) -> None:
        """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        try:
            self.compile_regex(regex)
        except ValueError as fault:
            message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {fault}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from fault
