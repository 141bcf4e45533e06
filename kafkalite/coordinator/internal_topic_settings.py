"""How the topics of coordinators are created.

Source: GroupCoordinator.offsetsTopicConfigs, TransactionStateManager.transactionTopicConfigs,
ShareCoordinatorService.shareGroupStateTopicConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkalite.config.broker_config import BrokerConfig

_CLEANUP_POLICY = {"cleanup.policy": "compact"}


class TopicSettings(NamedTuple):
    """How the topic is created; an existing one stays as it is. `explicit` are the broker's settings that an operator
    has set: others adapt to the number of brokers. `min_isr` None: the default of all topics."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]
    factor_setting: str
    replication_factor: int
    min_isr: int | None
    min_isr_setting: str
    explicit: AbstractSet[str]

    def with_replicas(self, replication_factor: int) -> dict[str, str]:
        """The topic's own settings if it gets so many replicas."""
        if self.min_isr is None:
            return dict(self.overrides)
        is_set = self.min_isr_setting in self.explicit
        least = self.min_isr if is_set else min(self.min_isr, replication_factor)
        return {**self.overrides, "min.insync.replicas": str(least)}


def consumer_offsets(config: BrokerConfig) -> TopicSettings:
    overrides = {
        **_CLEANUP_POLICY,
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return TopicSettings(
        GROUP_METADATA_TOPIC,
        config.offsets_topic_num_partitions,
        overrides,
        "offsets.topic.replication.factor",
        config.offsets_topic_replication_factor,
        None,
        "",
        config.explicit.keys(),
    )


def transaction_state(config: BrokerConfig) -> TopicSettings:
    overrides = {
        **_CLEANUP_POLICY,
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    return TopicSettings(
        TRANSACTION_STATE_TOPIC,
        config.transaction_state_log_num_partitions,
        overrides,
        "transaction.state.log.replication.factor",
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_min_isr,
        "transaction.state.log.min.isr",
        config.explicit.keys(),
    )


def share_state(config: BrokerConfig) -> TopicSettings:
    """Not compacted: an update is no last value. The share coordinator deletes what its snapshots make redundant."""
    overrides = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
    }
    return TopicSettings(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        overrides,
        "share.coordinator.state.topic.replication.factor",
        config.share_coordinator_state_topic_replication_factor,
        config.share_coordinator_state_topic_min_isr,
        "share.coordinator.state.topic.min.isr",
        config.explicit.keys(),
    )
