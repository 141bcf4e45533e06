"""Levels of features: all or none, counted, and kept over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.finalized_features import CONFIG_PATH, FeatureUpdate, FinalizedFeatures, UpgradeType

UPGRADE, SAFE, _ = UpgradeType


class Metadata:
    """The entity configs of a cluster, and their writes."""

    controller_id = 7

    def __init__(self, **config: str) -> None:
        self.entity_configs = {CONFIG_PATH: {key.replace("_", "."): value for key, value in config.items()}}
        self.writes = self

    async def change_entity_config(self, path: str, change: Any) -> None:
        self.entity_configs[path] = dict(change(self.entity_configs.get(path, {})))


def features(metadata: Any) -> FinalizedFeatures:
    return FinalizedFeatures(metadata)


def update(metadata: Metadata, *updates: FeatureUpdate, validate_only: bool = False) -> None:
    asyncio.run(features(metadata).update(updates, validate_only=validate_only))


def state(metadata: Metadata) -> tuple[Mapping[str, int], int]:
    found = features(metadata)
    return found.levels(), found.epoch


def test_a_level_is_changed_and_counted_once() -> None:
    metadata = Metadata()
    assert state(metadata) == (
        {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2},
        0,
    )
    update(metadata, FeatureUpdate("group.version", 0, SAFE), validate_only=True)
    update(metadata, FeatureUpdate("group.version", 1, UPGRADE))
    assert state(metadata) == (
        {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2},
        0,
    )
    for _ in range(2):
        update(metadata, FeatureUpdate("group.version", 0, SAFE))
        assert state(metadata) == ({"share.version": 1, "streams.version": 1, "transaction.version": 2}, 1)
    update(metadata, FeatureUpdate("group.version", 1, UPGRADE), FeatureUpdate("transaction.version", 1, SAFE))
    assert state(metadata) == (
        {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 1},
        2,
    )


def test_one_refusal_refuses_all() -> None:
    metadata = Metadata()
    with pytest.raises(
        KafkaError, match=r"for feature nope\. Local controller 7 does not support this feature\."
    ) as why:
        update(metadata, FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("nope", 1, UPGRADE))
    assert why.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert state(metadata)[1] == 0


def test_what_no_broker_here_has_written_counts_as_the_highest_level() -> None:
    assert state(Metadata(group_version="9", transaction_version="x", epoch="-1")) == (
        {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2},
        0,
    )
