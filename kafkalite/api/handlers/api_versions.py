"""ApiVersions: the APIs and versions that this broker supports, and its features.

The only feature is transaction.version, as Kafka 4 has it.
Source: KIP-35, KIP-511, KIP-584; kafka.server.KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_VERSIONS_KEY = 18
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2  # a new epoch for every transaction, whose partitions the brokers add (KIP-890)
_FEATURES_EPOCH = 0  # the features never change
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")


def api_versions(services: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    names = (request.client_software_name, request.client_software_version)
    if context.api_version >= FIRST_VERSION_WITH_SOFTWARE and not all(map(_SOFTWARE.match, names)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.connection.client_software_name = request.client_software_name or None
    context.connection.client_software_version = request.client_software_version or None
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in APIS.values()
        ],
        supported_features=_supported_features(context.api_version),
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(
                name=TRANSACTION_VERSION, min_version_level=TRANSACTION_LEVEL, max_version_level=TRANSACTION_LEVEL
            )
        ],
    )


def _supported_features(version: int) -> list[SupportedFeatureKey]:
    """Clients of older versions cannot read a feature whose lowest level is 0 (KAFKA-17492)."""
    if version < FIRST_VERSION_WITH_LEVEL_ZERO:
        return []
    return [SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_LEVEL)]


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of an unsupported version. Its list has the versions that the
    client may retry with."""
    mine = APIS[API_VERSIONS_KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=mine.key, min_version=mine.min_version, max_version=mine.max_version)],
    )
