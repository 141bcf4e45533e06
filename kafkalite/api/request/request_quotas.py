"""Quotas of the client of one connection, as the handling of a request sees them.

They are resolved for the first request of a client id on a connection and kept there, until a request has another
client id or a quota has changed. What a request is counted against is known before it is handled: a produce for its
bytes, every request for the time that earlier ones of this client have taken.
Source: kafka.server.{ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager}, KIP-219.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.common.sampled_rate import SampledRate
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.security.quota.client_quotas import ClientQuotas, Counted

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
        """Count time that requests have taken; for how long to wait now."""
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
    """For how long to wait before so many bytes may be sent. A batch that is larger than all that the quota allows in a
    window may go when nothing else has gone lately: its consumer would wait for ever, as it does at an Apache Kafka."""
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
    """The quota of one request that creates or deletes partitions. A strict one refuses what comes while tokens are
    owed; one for older clients takes it, and makes them wait longer."""

    __slots__ = ("_clock", "_counted", "_is_strict")

    def __init__(self, connection: ClientConnection, clock: Clock, *, is_strict: bool) -> None:
        quotas = quotas_of(connection)
        self._counted: Counted | None = quotas.mutation if quotas is not None else None
        self._clock = clock
        self._is_strict = is_strict

    def take(self, partition_count: int) -> None:
        """Raises KafkaError(THROTTLING_QUOTA_EXCEEDED), and takes nothing."""
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
        """For how long the client is to wait: if it was refused, or has more than it had tokens for."""
        counted = self._counted
        if counted is None or (self._is_strict and not refused):
            return 0
        assert counted.bucket is not None
        return counted.bucket.wait_ms(self._clock.monotonic_ms())
