"""UpdateFeatures (57): levels of the features of a cluster, which ApiVersions names (KIP-584, KIP-1022)."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    feature: str = string("0+")
    max_version_level: int = int16("0+")  # 0: the feature is off
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)  # 1: upgrade, 2: downgrade without loss, 3: any downgrade


class UpdateFeaturesRequest(Message, flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Message):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UpdateFeaturesResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default="")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")
