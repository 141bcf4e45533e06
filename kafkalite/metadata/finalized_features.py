"""The features of the cluster and their levels, which ApiVersions names and UpdateFeatures changes.

A cluster begins with the highest levels. Levels that were changed, and how often any was, stand in an entity config of
kafkalite's own, since brokers of Kafka 3.9 in the same ZooKeeper would stop at levels that they do not know.
Source: org.apache.kafka.controller.FeatureControlManager (updateFeatures), KIP-584, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.cluster_metadata import ClusterMetadata

GROUP_VERSION = "group.version"  # 1: groups of the consumer protocol (KIP-848)
SHARE_VERSION = "share.version"  # 1: share groups (KIP-932)
STREAMS_VERSION = "streams.version"  # 1: groups of Kafka Streams (KIP-1071)
TRANSACTION_VERSION = "transaction.version"  # 2: each end moves the epoch, brokers add partitions (KIP-890)
HIGHEST_LEVELS = {GROUP_VERSION: 1, SHARE_VERSION: 1, STREAMS_VERSION: 1, TRANSACTION_VERSION: 2}
"""By feature that is supported; the lowest level of each is 0, at which it is off."""

CONFIG_PATH = "features/finalized"
_EPOCH = "epoch"
_DIGITS_MAX = 9


class UpgradeType(IntEnum):
    """The change of a level that is allowed."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature is to have. `upgrade_type` is a number of `UpgradeType`, or of none."""

    feature: str
    level: int
    upgrade_type: int


class FinalizedFeatures:
    """The levels in the metadata."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    @property
    def epoch(self) -> int:
        """Grows with each change of a level."""
        return _number(self._config, _EPOCH, 0)

    def level(self, feature: str) -> int:
        """The level of a supported feature, 0: it is off."""
        return _level(self._config, feature)

    def levels(self) -> dict[str, int]:
        """The features that are on."""
        return {feature: level for feature in HIGHEST_LEVELS if (level := self.level(feature))}

    async def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Give features these levels, all or none. Raises KafkaError(INVALID_UPDATE_VERSION)."""

        def change(old: Mapping[str, str]) -> Mapping[str, str]:
            new = dict(old)
            for update in updates:
                self._check(update, new)
                new[update.feature] = str(update.level)
            if any(_level(new, feature) != _level(old, feature) for feature in HIGHEST_LEVELS):
                return new | {_EPOCH: str(_number(old, _EPOCH, 0) + 1)}
            return old

        if validate_only or change(self._config) == self._config:
            change(self._config)
        else:
            await self._metadata.writes.change_entity_config(CONFIG_PATH, change)

    @property
    def _config(self) -> Mapping[str, str]:
        return self._metadata.entity_configs.get(CONFIG_PATH, {})

    def _check(self, update: FeatureUpdate, levels: Mapping[str, str]) -> None:
        feature, level, upgrade_type = update
        highest = HIGHEST_LEVELS.get(feature)
        fault = None
        if upgrade_type not in UpgradeType.__members__.values():
            fault = "The controller does not support the given upgrade type."
        elif level < 0:
            fault = "A feature version cannot be less than 0."
        elif level > 0 and highest is None:
            fault = f"Local controller {self._metadata.controller_id} does not support this feature."
        elif highest is None:
            fault = f"Feature {feature} not found."
        elif level > highest:
            fault = f"Local controller {self._metadata.controller_id} only supports versions 0-{highest}"
        elif level < _level(levels, feature) and upgrade_type == UpgradeType.UPGRADE:
            fault = (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
        if fault is not None:
            message = (
                "The update failed for all features since the following feature had an error: Invalid update version "
                f"{level} for feature {feature}. {fault}"
            )
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _level(config: Mapping[str, str], feature: str) -> int:
    highest = HIGHEST_LEVELS[feature]
    return min(_number(config, feature, highest), highest)  # a later version of this broker may have had more


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    text = config.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else default
