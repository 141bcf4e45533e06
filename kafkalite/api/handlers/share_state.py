"""The requests to a share coordinator (83 to 87), from leaders and group coordinators on other brokers (KIP-932).

Source: kafka.server.KafkaApis (handleInitializeShareGroupStateRequest and its kin), org.apache.kafka.coordinator.share.
ShareCoordinatorService (4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.share.share_state import ShareSummary
from kafkalite.coordinator.share_coordinator import Done, ShareCoordinator
from kafkalite.protocol.messages import share_state as wire
from kafkalite.replication.share.durable_state import SharePartitionKey, StateRange, StateWrite, StoredState
from kafkalite.security.acl.acl import Operation

Ask = Callable[[SharePartitionKey, Any, Done], None]


class ShareStateApi(NamedTuple):
    """The APIs of the durable state of share partitions."""

    coordinator: ShareCoordinator

    async def initialize_share_group_state(
        self, request: wire.InitializeShareGroupStateRequest, context: RequestContext
    ) -> wire.InitializeShareGroupStateResponse:
        def ask(key: SharePartitionKey, row: wire.InitializeSharePartition, done: Done) -> None:
            self.coordinator.initialize(key, row.state_epoch, row.start_offset, done)

        results = await _results(request, context, ask, wire.ShareTopicResult, wire.SharePartitionResult, _unchanged)
        return wire.InitializeShareGroupStateResponse(results=results)

    async def read_share_group_state(
        self, request: wire.ReadShareGroupStateRequest, context: RequestContext
    ) -> wire.ReadShareGroupStateResponse:
        def ask(key: SharePartitionKey, row: wire.ReadSharePartition, done: Done) -> None:
            self.coordinator.read(key, row.leader_epoch, done)

        results = await _results(request, context, ask, wire.ShareTopicState, wire.SharePartitionState, _with_state)
        return wire.ReadShareGroupStateResponse(results=results)

    async def write_share_group_state(
        self, request: wire.WriteShareGroupStateRequest, context: RequestContext
    ) -> wire.WriteShareGroupStateResponse:
        def ask(key: SharePartitionKey, row: wire.WriteSharePartition, done: Done) -> None:
            ranges = [
                StateRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in row.state_batches
            ]
            write = StateWrite(row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count, ranges)
            self.coordinator.write(key, write, done)

        results = await _results(request, context, ask, wire.ShareTopicResult, wire.SharePartitionResult, _unchanged)
        return wire.WriteShareGroupStateResponse(results=results)

    async def delete_share_group_state(
        self, request: wire.DeleteShareGroupStateRequest, context: RequestContext
    ) -> wire.DeleteShareGroupStateResponse:
        def ask(key: SharePartitionKey, row: wire.DeleteSharePartition, done: Done) -> None:
            self.coordinator.delete(key, done)

        results = await _results(request, context, ask, wire.ShareTopicResult, wire.SharePartitionResult, _unchanged)
        return wire.DeleteShareGroupStateResponse(results=results)

    async def read_share_group_state_summary(
        self, request: wire.ReadShareGroupStateSummaryRequest, context: RequestContext
    ) -> wire.ReadShareGroupStateSummaryResponse:
        def ask(key: SharePartitionKey, row: wire.ReadSharePartition, done: Done) -> None:
            self.coordinator.summary(key, done)

        results = await _results(
            request, context, ask, wire.ShareTopicSummary, wire.SharePartitionSummary, _with_summary
        )
        return wire.ReadShareGroupStateSummaryResponse(results=results)


async def _results(
    request: Any,
    context: RequestContext,
    ask: Ask,
    topic_type: Callable[..., Any],
    row_type: Callable[..., Any],
    fill: Callable[[Any, Any], None],
) -> list[Any]:
    """A row for each partition of the request, filled with its result or its error."""
    may = context.may_cluster(Operation.CLUSTER_ACTION)
    keys = list(_rows(request))
    if may:
        found = await asyncio.gather(*(_asked(ask, key, row) for key, row in keys))
    else:
        found = [KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * len(keys)
    topics: dict[Any, Any] = {}
    for (key, _), result in zip(keys, found, strict=True):
        row = row_type(partition=key.partition)
        if isinstance(result, KafkaError):
            row.error_code, row.error_message = result.code, result.message
        else:
            fill(row, result)
        topics.setdefault(key.topic_id, topic_type(topic_id=key.topic_id)).partitions.append(row)
    return [*topics.values()]


def _rows(request: Any) -> Iterator[tuple[SharePartitionKey, Any]]:
    """None without a group, as Kafka answers."""
    for topic in request.topics if request.group_id else ():
        for row in topic.partitions:
            yield SharePartitionKey(request.group_id, topic.topic_id, row.partition), row


async def _asked(ask: Ask, key: SharePartitionKey, row: Any) -> Any:
    result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_done(found: object) -> None:
        if not result.done():
            result.set_result(found)

    ask(key, row, on_done)
    return await result


def _unchanged(row: Any, result: object) -> None:
    """The answer says only that it was done."""


def _with_state(row: wire.SharePartitionState, state: StoredState) -> None:
    row.state_epoch, row.start_offset = state.state_epoch, state.start_offset
    row.state_batches = [
        wire.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
        for first, last, kind, count in state.ranges
    ]


def _with_summary(row: wire.SharePartitionSummary, summary: ShareSummary) -> None:
    row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count = summary
