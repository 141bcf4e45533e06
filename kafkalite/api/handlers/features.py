"""UpdateFeatures: the levels of the cluster's features, changed all or none.

Version 0 cannot allow a downgrade: Kafka ignores its field.
Source: kafka.server.ControllerApis (handleUpdateFeatures), UpdateFeaturesResponse, KIP-584.
"""

from __future__ import annotations

from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.finalized_features import FeatureUpdate, FinalizedFeatures
from kafkalite.protocol.messages import features as wire

_LAST_VERSION_WITH_RESULTS = 1


class FeatureApi(NamedTuple):
    """The API of features."""

    features: FinalizedFeatures

    async def update_features(
        self, request: wire.UpdateFeaturesRequest, context: RequestContext
    ) -> wire.UpdateFeaturesResponse:
        updates = [
            FeatureUpdate(one.feature, one.max_version_level, one.upgrade_type) for one in request.feature_updates
        ]
        try:
            await self.features.update(updates, validate_only=request.validate_only)
        except KafkaError as error:
            return wire.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
        results = []
        if context.api_version <= _LAST_VERSION_WITH_RESULTS:
            results = [wire.UpdatableFeatureResult(feature=one.feature, error_message="NONE") for one in updates]
        return wire.UpdateFeaturesResponse(error_message=None, results=results)
