"""OffsetCommit, OffsetFetch, OffsetDelete: handed to the group coordinator, which keeps the offsets."""

from __future__ import annotations

from collections.abc import Awaitable

from kafkalite.api.context import Call, Services
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


def offset_commit(
    services: Services, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    return services.groups.commit_offsets(request, call.api_version)


def offset_fetch(
    services: Services, request: OffsetFetchRequest, call: Call
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    return services.groups.fetch_offsets(request, call.api_version)


def offset_delete(services: Services, request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    return services.groups.delete_offsets(request)
