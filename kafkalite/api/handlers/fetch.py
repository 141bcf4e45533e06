"""Fetch: regions of segment files for the requested partitions, at once or when `min_bytes` have arrived.

A fetch is answered at once if it has found `min_bytes`, met an error, or may not wait. Otherwise a `DelayedOperation`
waits on its partitions, and they are read again when enough has arrived or the time is up. Only its connection waits.
Clients from before 0.11 get the stored batches in an older format (`down_conversion`), which takes a task.
From version 13 on topics are named by id, so that a topic is not mistaken for an earlier one of its name (KIP-516).
Source: kafka.server.KafkaApis.handleFetchRequest, kafka.server.DelayedFetch, KIP-74, KIP-227, KIP-516, KIP-951.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from kafkalite.api.request.broker_endpoints import FindBroker
from kafkalite.api.request.fetch_reader import FIRST_VERSION_OF_BATCHES, FetchReader
from kafkalite.api.request.fetch_sessions import (
    FIRST_VERSION_BY_ID,
    NO_SESSION,
    FetchContext,
    WantedPartition,
    replica_of,
)
from kafkalite.api.request.replica_fetch import DelayedReplicaFetch, ReplicaFetchReader
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_quotas import exempt, quotas_of
from kafkalite.api.request.services import Services
from kafkalite.common.errors import KafkaError
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.replication.partition import DelayedOperation, Partition
from kafkalite.security.acl.acl import Operation

WAIT_MS_MAX = 2**31 - 1


def fetch(
    services: Services, request: FetchRequest, context: RequestContext
) -> FetchResponse | DeferredResponse | Awaitable[FetchResponse]:
    try:
        fetch_context = services.fetch_sessions.context(
            request, context.api_version, services.runtime.clock.monotonic_ms()
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION)
    find = partial(services.brokers.find, context.connection)
    access, connection = services.access, context.connection
    is_follower = replica_of(request)[0] >= 0
    if access is not None and is_follower and not access.allows_cluster(connection, Operation.CLUSTER_ACTION):
        refused = FetchReader(services, request, fetch_context, context.api_version, find)
        refused.deny(lambda _: False)
        return refused.response(refused.read()[0])
    if is_follower:
        exempt(connection)
        return _fetch_as_replica(
            services, request, ReplicaFetchReader(services, request, fetch_context, context.api_version, find)
        )
    reader = FetchReader(services, request, fetch_context, context.api_version, find)
    if access is not None:
        reader.deny(partial(access.may_read, connection))
    if (quotas := quotas_of(connection)) is not None:
        reader.limit(quotas.fetch_bytes_max, quotas.fetch_wait_ms)
    min_bytes = min(request.min_bytes, reader.max_bytes)  # a response never holds more
    waits = min_bytes > 0 and request.max_wait_ms > 0 and bool(fetch_context.partitions)
    if context.api_version < FIRST_VERSION_OF_BATCHES:
        return asyncio.ensure_future(_fetch_of_old(services, request, reader, min_bytes if waits else 0))
    if waits and (partitions := reader.exhausted()) is not None:
        return _wait(services, request, reader, partitions, min_bytes)
    found, size_bytes, urgent = reader.read()
    if urgent or size_bytes >= min_bytes or not waits:
        return reader.response(found)
    return _wait(services, request, reader, reader.partitions(), min_bytes - size_bytes)


def _fetch_as_replica(
    services: Services, request: FetchRequest, reader: ReplicaFetchReader
) -> FetchResponse | DeferredResponse:
    """A follower's fetch. It counts on its arrival, before anything is read, and once."""
    reader.arrive()
    min_bytes = min(request.min_bytes, reader.max_bytes)
    waits = min_bytes > 0 and request.max_wait_ms > 0 and reader.has_partitions
    found, size_bytes, urgent = reader.read_all(is_last=not waits)
    if urgent or size_bytes >= min_bytes or not waits:
        return reader.response(found)
    return DelayedReplicaFetch(services.runtime, reader, min_bytes, min(request.max_wait_ms, WAIT_MS_MAX))


def answer_now(
    services: Services,
    request: FetchRequest,
    version: int,
    wanted: WantedPartition,
    find: FindBroker,
) -> FetchResponse:
    """The immediate answer to a fetch of one partition, without a session and without regard to min_bytes."""
    context = FetchContext({wanted.key: wanted}, version >= FIRST_VERSION_BY_ID, None, incremental=False)
    reader = FetchReader(services, request, context, version, find)
    return reader.response(reader.read()[0])


def _wait(
    services: Services, request: FetchRequest, reader: FetchReader, partitions: list[Partition], missing_bytes: int
) -> DeferredResponse:
    """The answer, deferred until `missing_bytes` have arrived or max_wait_ms have passed."""

    def answer() -> None:
        if not reply.settled:
            try:
                response = reader.response(reader.read()[0])
            except Exception as error:
                reply.fail(error)
            else:
                reply.answer(response)

    def withdraw() -> None:  # answered, or the client went away
        timer.cancel()
        operation.withdraw()

    reply = DeferredResponse(withdraw)
    operation = DelayedOperation(
        missing_bytes, answer, services.runtime.loop.call_soon, read_committed=reader.reads_committed
    )
    timer = services.runtime.clock.call_later(min(request.max_wait_ms, WAIT_MS_MAX), operation.wake)
    for partition in partitions:
        operation.watch(partition)
    return reply


async def _fetch_of_old(
    services: Services, request: FetchRequest, reader: FetchReader, min_bytes: int
) -> FetchResponse:
    """`fetch` for versions whose records are down-converted, in a task."""
    woken: asyncio.Future[None] = services.runtime.loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    operation = DelayedOperation(min_bytes, wake, services.runtime.loop.call_soon)
    timer = services.runtime.clock.call_later(min(request.max_wait_ms, WAIT_MS_MAX), operation.wake)
    try:
        for partition in reader.partitions():
            operation.watch(partition)  # before converting, so that appends meanwhile are not missed
        found, size_bytes, urgent = await reader.read_converted()
        if not urgent and size_bytes < min_bytes:
            operation.accumulate(size_bytes)  # some bytes may count twice: better a small answer than a late one
            await woken
            found, _, _ = await reader.read_converted()
    finally:
        timer.cancel()
        operation.withdraw()
    return reader.response(found)
