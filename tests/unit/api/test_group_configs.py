"""A group's own settings reach its coordinator, as do the broker's, and the gate of the consumer protocol closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.configs import (
    GROUP_RESOURCE,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest

BROKER, SET = 4, 0
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g 1", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
)


def change(kind: int, resource: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
    one = IncrementalAlterConfigsResource(resource_type=kind, resource_name=resource, configs=[entry])
    return IncrementalAlterConfigsRequest(resources=[one])


def test_settings_reach_the_coordinator(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        configs = broker._running.coordinators.group_configs
        await asker.ask(change(GROUP_RESOURCE, "g 1", "consumer.heartbeat.interval.ms", "6000"), 1)
        assert configs.of("g 1").consumer_heartbeat_interval_ms == 6_000
        await asker.ask(change(BROKER, "", "group.consumer.assignment.interval.ms", "7"), 1)
        assert configs.of("g 1").consumer_assignment_interval_ms == configs.of("g").consumer_assignment_interval_ms == 7
        await broker._running.coordinators.offsets_topic.ensure()
        answer = await asker.ask(JOIN, 1)
        assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 6_000)

    tell(story)


def test_level_zero_closes_the_gate(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await broker._running.coordinators.offsets_topic.ensure()
        off = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        assert (await asker.ask(UpdateFeaturesRequest(feature_updates=[off]), 2)).error_code == 0
        assert (await asker.ask(JOIN, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = (await asker.ask(ConsumerGroupDescribeRequest(group_ids=["g 1"]), 1)).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
        on = FeatureUpdateKey(feature="group.version", max_version_level=1)
        assert (await asker.ask(UpdateFeaturesRequest(feature_updates=[on]), 2)).error_code == 0
        assert (await asker.ask(JOIN, 1)).error_code == 0

    tell(story)
