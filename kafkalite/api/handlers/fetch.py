"""Fetch: regions of segment files for the requested partitions, at once or when `min_bytes` have arrived.

A fetch is answered at once if it is satisfied (`FetchReader.read`) or may not wait. Otherwise a `LongPoll` waits on its
partitions, and they are read again when enough has arrived or the time is up. Only its connection waits.
Clients from before 0.11 get the stored batches in an older format (`down_conversion`), which takes a task.
From version 13 on topics are named by id, so that a topic is not mistaken for an earlier one of its name (KIP-516).
Source: kafka.server.KafkaApis.handleFetchRequest, kafka.server.DelayedFetch, KIP-74, KIP-227, KIP-516, KIP-951.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kafkalite.api.request.broker_endpoints import FindBroker
from kafkalite.api.request.fetch_reader import FIRST_VERSION_OF_BATCHES, FetchParts, FetchReader, Found
from kafkalite.api.request.fetch_sessions import (
    FIRST_VERSION_BY_ID,
    NO_SESSION,
    ConsumerSession,
    FetchContext,
    WantedPartition,
    replica_of,
)
from kafkalite.api.request.long_poll import WAIT_MS_MAX, LongPoll
from kafkalite.api.request.replica_fetch import DelayedReplicaFetch, ReplicaFetchReader
from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.api.request.throttling import exempt, quotas_of
from kafkalite.common.errors import KafkaError
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.replication.partition import Partition
from kafkalite.security.acl.acl import Operation


class FetchApi(FetchParts):
    """The Fetch API, of consumers and followers."""

    __slots__ = ()

    def fetch(
        self, request: FetchRequest, context: RequestContext
    ) -> FetchResponse | Pending | Awaitable[FetchResponse]:
        try:
            fetch_context = self.sessions.context(request, context.api_version, self.runtime.clock.monotonic_ms())
        except KafkaError as error:
            return FetchResponse(error_code=error.code, session_id=NO_SESSION)
        find = partial(self.brokers.find, context.connection)
        is_follower = replica_of(request)[0] >= 0
        if is_follower and not context.may_cluster(Operation.CLUSTER_ACTION):
            refused = FetchReader(self, request, fetch_context, context.api_version, find)
            refused.deny(lambda _: False)
            return refused.response(refused.read(is_over=True)[0])
        if is_follower:
            exempt(context.connection)
            return self._fetch_as_replica(
                request, ReplicaFetchReader(self, request, fetch_context, context.api_version, find)
            )
        reader = FetchReader(self, request, fetch_context, context.api_version, find)
        session = fetch_context.session
        if isinstance(session, ConsumerSession):
            session.on_fetch(reader.reads_committed, self._reader_of(context))
        if context.access is not None:
            reader.deny(partial(context.may, Operation.READ, TOPIC))
        if (quotas := quotas_of(context.connection)) is not None:
            reader.limit(quotas.fetch_bytes_max, quotas.fetch_wait_ms)
        waits = reader.min_bytes > 0 and request.max_wait_ms > 0 and bool(fetch_context.partitions)
        if context.api_version < FIRST_VERSION_OF_BATCHES:
            return asyncio.ensure_future(self._fetch_of_old(request, reader, waits=waits))
        if isinstance(session, ConsumerSession) and fetch_context.incremental and session.has_idle:
            reader.begin_idle(session)
        if waits and (partitions := reader.exhausted()) is not None:
            return self._wait(request, reader, reader.min_bytes, partitions)
        found, missing_bytes = reader.read(is_over=not waits)
        if missing_bytes:
            return self._wait(request, reader, missing_bytes)
        return reader.response(found)

    def _reader_of(self, context: RequestContext) -> object:
        """It is equal as long as the client may read the same topics."""
        if context.access is None:
            return None
        return context.connection.principal, context.connection.host, self.admission_epoch.value

    def _fetch_as_replica(self, request: FetchRequest, reader: ReplicaFetchReader) -> FetchResponse | Pending:
        """A follower's fetch. Its progress is recorded on arrival, before anything is read, and once."""
        reader.record_progress()
        waits = reader.min_bytes > 0 and request.max_wait_ms > 0 and reader.has_partitions
        found, missing_bytes = reader.read(is_over=not waits)
        if missing_bytes:
            return DelayedReplicaFetch(self.runtime, reader, missing_bytes, min(request.max_wait_ms, WAIT_MS_MAX))
        return reader.response(found)

    def answer_now(
        self,
        request: FetchRequest,
        version: int,
        wanted: WantedPartition,
        find: FindBroker,
    ) -> FetchResponse:
        """The immediate answer to a fetch of one partition, without a session and without regard to min_bytes."""
        context = FetchContext({wanted.key: wanted}, version >= FIRST_VERSION_BY_ID, None, incremental=False)
        reader = FetchReader(self, request, context, version, find)
        return reader.response(reader.read(is_over=True)[0])

    def answer_delayed(
        self, request: FetchRequest, context: RequestContext, fetch_context: FetchContext, *, is_over: bool
    ) -> FetchResponse | int:
        """The answer to a fetch without a session that has waited; the missing bytes if it is not satisfied, and its
        time not over."""
        find = self.brokers.finder_for(context.connection)
        reader = FetchReader(self, request, fetch_context, context.api_version, find)
        if context.access is not None:
            reader.deny(partial(context.may, Operation.READ, TOPIC))
        found, missing_bytes = reader.read(is_over=is_over)
        return missing_bytes or reader.response(found)

    def _wait(
        self,
        request: FetchRequest,
        reader: FetchReader,
        missing_bytes: int,
        partitions: Sequence[Partition] | None = None,
        respond: Callable[[Found], object] | None = None,
    ) -> Pending:
        """The answer of `respond` (None: the response), when the request is satisfied or max_wait_ms have passed."""

        def poll_partitions(is_over: bool) -> int:
            if reply.is_done:
                return 0
            try:
                found, missing_bytes = reader.read(is_over=is_over)
                response = None if missing_bytes else (respond or reader.response)(found)
            except Exception as error:
                reply.fail(error)
                return 0
            if missing_bytes:
                reader.watch(poll)
            else:
                reply.answer(response)
            return missing_bytes

        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        poll = LongPoll(self.runtime, wait_ms, missing_bytes, poll_partitions, reader.reads_committed)
        reply = Pending(poll.stop)
        reader.watch(poll, partitions)
        return reply

    async def _fetch_of_old(self, request: FetchRequest, reader: FetchReader, *, waits: bool) -> FetchResponse:
        """`fetch` for versions whose records are down-converted, in a task. The bytes that are stored count."""
        _, missing_bytes = reader.read(is_over=not waits)
        if missing_bytes:
            await self._wait(request, reader, missing_bytes, respond=len)
        return reader.response(await reader.read_converted())
