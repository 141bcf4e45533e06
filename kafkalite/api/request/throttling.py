"""Quotas of requests: counts bytes, time and partitions by client, and throttles clients over their quota.

`ThrottlingDispatcher` stands before the dispatcher only while some quota is set, so that without any a request costs
nothing. A client is answered at once, with the time for which it is to wait, and its connection is muted for so long:
older clients, which do not know that field, wait as well (KIP-219). Fast paths count bytes themselves
(`CountedAppend`, `CountedFetchFastPath`), and are taken as long as there is nothing to wait for.

    bytes of a produce           counted when it comes; an AppendAt counts as one
    bytes of a fetch             counted when it is answered; too many are not sent, the answer is empty instead;
                                 a ShareFetch counts as a Fetch
    time of the broker           counted when it has been spent; that of fast paths when it is a millisecond
    partitions made or deleted   counted by the handler (`MutationQuota`)

The quotas of a client are resolved at the first request of its client id on a connection and kept there
(`RequestQuotas`), until a request has another client id or a quota has changed.
Source: kafka.server.{ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager}, KafkaApis,
RequestHandlerHelper, KIP-124, KIP-219.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from kafkalite.common.clock import Clock, monotonic_s
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.region import Part
from kafkalite.common.sampled_rate import SampledRate
from kafkalite.network.client_connection import Answer, ClientConnection, ThrottledAnswer
from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.append_at import APPEND_AT_KEY
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.protocol.messages.share_fetch import ShareFetchResponse
from kafkalite.security.quota.client_quotas import ClientQuotaManager, ClientQuotas, Counted

PERCENT_OF_SECOND = 100.0


class RequestQuotas:
    """The quotas of the latest client on a connection. `client` are the bytes in a request's header that name it, up
    to `client_end`.

    `spent_s` is the time of requests that is not counted yet. `request_wait_ms` is for how long this client is to wait
    for time that was counted. `is_exempt`: the request that is handled now comes from another broker.
    """

    __slots__ = (
        "_clock",
        "_request_wait_ms_max",
        "client",
        "client_end",
        "fetch",
        "fetch_bytes_max",
        "generation",
        "is_exempt",
        "is_limited",
        "mutation",
        "produce",
        "request",
        "request_wait_ms",
        "spent_s",
    )

    def __init__(
        self, client: bytes, quotas: ClientQuotas, generation: object, clock: Clock, *, fetch_window_s: int,
        request_wait_ms_max: int,
    ) -> None:  # fmt: skip
        self.client = client
        self.client_end = _CLIENT_AT + len(client)
        self.generation = generation
        self.is_limited = quotas.is_limited
        self.produce = quotas.produce
        self.fetch = quotas.fetch
        self.request = quotas.request
        self.mutation = quotas.mutation
        fetch_limit = quotas.fetch.rate.limit if quotas.fetch is not None else _NO_LIMIT
        self.fetch_bytes_max = int(min(fetch_limit * fetch_window_s, _NO_LIMIT))
        self.request_wait_ms = 0
        self.spent_s = 0.0
        self.is_exempt = False
        self._clock = clock
        self._request_wait_ms_max = request_wait_ms_max

    def count_time(self, spent_s: float, now_ms: int) -> int:
        """Count time that requests have taken; returns the milliseconds to wait now."""
        assert self.request is not None
        wait_ms = self.request.rate.record(spent_s * PERCENT_OF_SECOND, now_ms)
        return min(wait_ms, self._request_wait_ms_max)

    def fetch_wait_ms(self, size_bytes: int) -> int:
        """For how long to wait before so many bytes may be sent."""
        if self.fetch is None:
            return self.request_wait_ms
        return max(self.request_wait_ms, fetch_wait_ms(self.fetch.rate, size_bytes, self._clock.monotonic_ms()))


_CLIENT_AT = 8  # behind key, version and correlation id
_NO_LIMIT = 2**31 - 1


def fetch_wait_ms(rate: SampledRate, size_bytes: int, now_ms: int) -> int:
    """For how long to wait before so many bytes may be sent. A batch that is larger than the quota of a whole window is
    sent when nothing else was sent lately. Otherwise its consumer would wait without limit, as it does with Apache
    Kafka.
    """
    wait_ms = rate.wait_ms(now_ms, size_bytes)
    return wait_ms if wait_ms and rate.per_second(now_ms) > 0 else 0


def quotas_of(connection: ClientConnection) -> RequestQuotas | None:
    """The quotas of the request that is handled; None without any."""
    quotas: RequestQuotas | None = connection.quotas
    return quotas if quotas is not None and quotas.is_limited else None


def exempt(connection: ClientConnection) -> None:
    """The request that is handled is one of another broker, and counts against no quota."""
    if connection.quotas is not None:
        connection.quotas.is_exempt = True


class MutationQuota:
    """The quota of one request that creates or deletes partitions. A strict one refuses changes while the client owes
    tokens; one for older clients admits them and throttles longer.
    """

    __slots__ = ("_clock", "_counted", "_is_strict")

    def __init__(self, connection: ClientConnection, clock: Clock, *, is_strict: bool) -> None:
        quotas = quotas_of(connection)
        self._counted: Counted | None = quotas.mutation if quotas is not None else None
        self._clock = clock
        self._is_strict = is_strict

    def take(self, partition_count: int) -> None:
        """Take tokens. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED), and then takes none."""
        counted = self._counted
        if counted is None:
            return
        now_ms = self._clock.monotonic_ms()
        assert counted.bucket is not None
        if self._is_strict and counted.bucket.tokens(now_ms) < 0:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        counted.bucket.take(partition_count, now_ms)
        counted.rate.add(partition_count, now_ms)

    def wait_ms(self, *, refused: bool) -> int:
        """Milliseconds for which the client is throttled: after a refusal, or while it owes tokens."""
        counted = self._counted
        if counted is None or (self._is_strict and not refused):
            return 0
        assert counted.bucket is not None
        return counted.bucket.wait_ms(self._clock.monotonic_ms())


PRODUCE_KEY = 0
_WRITE_KEYS = frozenset({PRODUCE_KEY, APPEND_AT_KEY})
_FETCH_KEYS = frozenset({1, 78})  # Fetch, ShareFetch
_EXEMPT_KEYS = frozenset({27})  # WriteTxnMarkers, which brokers send each other
_CLIENT_ID_MAX = 512  # longer ones are cut: they are kept for as long as they are counted
COUNTED_AT_ONCE_S = 0.001  # to count the time of each request of a fast path would cost half as much as it takes
_HEADER = Struct(">hhih")


class ThrottlingDispatcher:
    """Handles requests with `handle`, that of the dispatcher, within the quotas of `manager`."""

    __slots__ = ("_clock", "_manager", "_monotonic_ms", "handle")

    def __init__(self, handle: Callable[..., Answer], manager: ClientQuotaManager, clock: Clock) -> None:
        self.handle = handle
        self._manager = manager
        self._clock = clock
        self._monotonic_ms = clock.monotonic_ms

    def within_bytes(self, connection: ClientConnection, frame: memoryview) -> Answer:
        """The handler of requests while no quota of request time is set."""
        if (answer := connection.fast_answer(frame)) is not None:
            return answer
        return self._handle(connection, frame, self._quotas_of(connection, frame), 0.0)

    def within_time(self, connection: ClientConnection, frame: memoryview) -> Answer:
        """The handler of requests while there are quotas of request time."""
        quotas = self._quotas_of(connection, frame)
        started_s = monotonic_s()
        if connection.fast_paths:
            if quotas.spent_s >= COUNTED_AT_ONCE_S or quotas.request_wait_ms:
                self._count_time(quotas)
            if not quotas.request_wait_ms and (answer := connection.fast_answer(frame)) is not None:
                quotas.spent_s += monotonic_s() - started_s
                return answer
        self._count_time(quotas)
        return self._handle(connection, frame, quotas, started_s)

    def _count_time(self, quotas: RequestQuotas) -> None:
        """Count the time that requests of fast paths have taken."""
        if quotas.request is not None:
            quotas.request_wait_ms = quotas.count_time(quotas.spent_s, self._monotonic_ms())
        quotas.spent_s = 0.0

    def _handle(
        self, connection: ClientConnection, frame: memoryview, quotas: RequestQuotas, started_s: float
    ) -> Answer:
        """The answer without a fast path."""
        key = int.from_bytes(frame[:2], "big")
        if not quotas.is_limited or len(frame) < _HEADER.size or (frame[0] and key not in _WRITE_KEYS):
            return self.handle(connection, frame)
        wait_ms = 0
        if key in _WRITE_KEYS and quotas.produce is not None:
            wait_ms = quotas.produce.rate.record(len(frame), self._monotonic_ms())
        return _ThrottledRequest(self, connection, quotas, key, started_s, wait_ms).answer(frame)

    def _quotas_of(self, connection: ClientConnection, frame: memoryview) -> RequestQuotas:
        quotas: RequestQuotas | None = connection.quotas
        if (
            quotas is not None
            and frame[8 : quotas.client_end] == quotas.client
            and quotas.generation is self._manager.generation
        ):
            return quotas
        return self._resolve(connection, frame)

    def _resolve(self, connection: ClientConnection, frame: memoryview) -> RequestQuotas:
        """The quotas of the client that the frame's header names; those of no client for a frame without one."""
        size = _HEADER.unpack_from(frame)[3] if len(frame) >= _HEADER.size else 0
        client = bytes(frame[8 : _HEADER.size + max(0, size)])
        client_id = client[2 : 2 + _CLIENT_ID_MAX].decode(errors="replace")
        user = connection.principal.partition(":")[2]
        manager = self._manager
        resolved = manager.resolve(user, client_id, self._monotonic_ms())
        connection.quotas = quotas = RequestQuotas(
            client,
            resolved,
            manager.generation,
            self._clock,
            fetch_window_s=manager.fetch_window_s,
            request_wait_ms_max=manager.request_wait_ms_max,
        )
        return quotas


class _ThrottledRequest:
    """One request that is handled without a fast path. Its time counts until it is answered or begins to wait for
    something, and again while the response is encoded."""

    __slots__ = ("_connection", "_dispatching", "_key", "_produce_wait_ms", "_quotas", "_started_s")

    def __init__(
        self, dispatching: ThrottlingDispatcher, connection: ClientConnection, quotas: RequestQuotas, key: int,
        started_s: float, produce_wait_ms: int,
    ) -> None:  # fmt: skip
        self._dispatching = dispatching
        self._connection = connection
        self._quotas = quotas
        self._key = key
        self._started_s = started_s
        self._produce_wait_ms = produce_wait_ms

    def answer(self, frame: memoryview) -> Answer:
        quotas = self._quotas
        quotas.is_exempt = self._key in _EXEMPT_KEYS
        answer = self._dispatching.handle(self._connection, frame, self.encode)
        if isinstance(answer, list):
            return answer
        if quotas.request is not None:  # from here on it waits for other work
            quotas.spent_s += monotonic_s() - self._started_s
            self._started_s = 0.0
        if answer is None and self._produce_wait_ms and not quotas.is_exempt:
            self._note(quotas.produce, self._produce_wait_ms)
            return ThrottledAnswer((), self._produce_wait_ms)
        return answer

    def encode(self, response: Any, version: int, correlation_id: int) -> list[Part]:
        quotas = self._quotas
        if quotas.is_exempt:
            quotas.spent_s = 0.0
            return response_frame(response, version, correlation_id)
        handler_ms = getattr(response, "throttle_time_ms", 0)  # by the handler
        is_fetch = isinstance(response, FetchResponse | ShareFetchResponse)
        wait_ms = max(handler_ms, self._produce_wait_ms, 0 if is_fetch else self._count_time())
        if wait_ms and not is_fetch and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = wait_ms
        parts = response_frame(response, version, correlation_id)
        if is_fetch and not wait_ms and quotas.fetch is not None:
            quotas.fetch.rate.add(sum(map(len, parts)), self._dispatching._monotonic_ms())
        if is_fetch and self._started_s:
            quotas.spent_s += monotonic_s() - self._started_s
        if not wait_ms:
            return parts
        self._note(self._throttling_quota(wait_ms, handler_ms), wait_ms)
        return ThrottledAnswer(parts, wait_ms)

    def _count_time(self) -> int:
        """Count the time until now; returns the milliseconds to wait."""
        quotas = self._quotas
        if quotas.request is None:
            return 0
        spent_s = quotas.spent_s + (monotonic_s() - self._started_s if self._started_s else 0.0)
        quotas.spent_s = 0.0
        wait_ms = quotas.count_time(spent_s, self._dispatching._monotonic_ms())
        quotas.request_wait_ms = wait_ms = max(quotas.request_wait_ms, wait_ms)
        return wait_ms

    def _throttling_quota(self, wait_ms: int, handler_ms: int) -> Counted | None:
        """The quota that a wait is for."""
        quotas = self._quotas
        if self._produce_wait_ms == wait_ms:
            return quotas.produce
        if self._key not in _FETCH_KEYS:
            return quotas.mutation if handler_ms == wait_ms else quotas.request
        return quotas.request if wait_ms == quotas.request_wait_ms else quotas.fetch

    def _note(self, cause: Counted | None, wait_ms: int) -> None:
        if cause is not None:
            cause.throttle_times.add(wait_ms, self._dispatching._monotonic_ms())
