"""Quotas of users and clients: for each client, the rates and buckets that its requests are counted against.

A client is resolved once, and again after a change of the quotas. Rates outlive such a change, so that a client that
has used up a window does not get a new one. Idle ones are dropped when there are many. The most specific entity that
matches gives the limit, separately for each type of quota (`QuotaLimits`). It also determines which consumption is
counted together: a limit of a user is shared by all clients of the user, one of a client id by all users of it; a limit
of a default entity is one for each name that it stands for. Mutations are limited by a bucket of tokens: a rate on
average, with bursts of what the bucket holds. A request may take more than the bucket holds, and then waits until the
debt is paid: otherwise a topic with more partitions than that could never be created.
Source: kafka.server.{ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager},
org.apache.kafka.common.metrics.stats.{TokenBucket, Avg}, KIP-13, KIP-55, KIP-124, KIP-599.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, inf

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import desanitized, sanitized
from kafkalite.common.sampled_rate import WAIT_MS_MAX, SampledRate, ThrottleTimes
from kafkalite.security.quota.entities import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    entity_of,
    quotas_of,
)


class TokenBucket:
    """Full at first. It holds the tokens of `burst_s` seconds. Times are monotonic milliseconds."""

    __slots__ = ("_burst_s", "_filled_ms", "_tokens", "limit")

    def __init__(self, burst_s: float, limit: float, now_ms: int) -> None:
        """`limit`: tokens per second."""
        self._burst_s = burst_s
        self._tokens = burst_s * limit
        self._filled_ms = now_ms
        self.limit = limit

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = min(self.tokens(now_ms) - count, self._burst_s * self.limit)

    def tokens(self, now_ms: int) -> float:
        """The number of tokens; negative: the number that is owed."""
        filled = self._tokens + self.limit * (now_ms - self._filled_ms) / 1000
        self._tokens = min(filled, self._burst_s * self.limit)
        self._filled_ms = now_ms
        return self._tokens

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until no tokens are owed; 0 if none are, and, as in Kafka, if that never happens."""
        tokens = self.tokens(now_ms)
        if tokens >= 0 or self.limit <= 0:
            return 0
        return floor(min(WAIT_MS_MAX, -tokens / self.limit * 1000 + 0.5))

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as full as a new one."""
        return self.tokens(now_ms) >= self._burst_s * self.limit


_Pair = tuple[str, str]  # a user and a client id; "": none


class Sharers(NamedTuple):
    """A group that is counted together: by user, sanitized, by client id, or by both; empty where all are."""

    user: str
    client_id: str


class QuotaLimits:
    """The limits of one type of quota. Users are sanitized names, client ids are not, DEFAULT is the default."""

    __slots__ = ("_by_pair",)

    def __init__(self) -> None:
        self._by_pair: dict[_Pair, float] = {}

    def __len__(self) -> int:
        return len(self._by_pair)

    def put(self, user: str, client_id: str, limit: float | None) -> bool:
        """Set the limit of an entity ("": of any user, of any client id), or remove it; returns whether it differs."""
        if self._by_pair.get((user, client_id)) == limit:
            return False
        if limit is None:
            del self._by_pair[(user, client_id)]
        else:
            self._by_pair[(user, client_id)] = limit
        return True

    def sharers(self, user: str, client_id: str) -> Sharers:
        """The group with which a client shares its limit."""
        own, default = (user, client_id), Sharers("", client_id)
        candidates = (
            (own, Sharers(user, client_id)),
            ((user, DEFAULT), Sharers(user, client_id)),
            ((user, ""), Sharers(user, "")),
            ((DEFAULT, client_id), Sharers(user, client_id)),
            ((DEFAULT, DEFAULT), Sharers(user, client_id)),
            ((DEFAULT, ""), Sharers(user, "")),
        )
        return next((sharers for pair, sharers in candidates if pair in self._by_pair), default)

    def of(self, sharers: Sharers) -> float | None:
        user, client_id = sharers
        if user and client_id:
            pairs = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            pairs = ((user, ""), (DEFAULT, ""))  # type: ignore[assignment]
        elif client_id:
            pairs = (("", client_id), ("", DEFAULT))  # type: ignore[assignment]
        else:
            return None
        return next((self._by_pair[pair] for pair in pairs if pair in self._by_pair), None)


COUNTED_MAX = 10_000
"""Of one type. A client may come with a new client id for each request."""

_RATES = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


class Counted:
    """Consumption that is counted together, of one type of quota. Controller mutations are limited by `bucket`."""

    __slots__ = ("bucket", "rate", "sharers", "throttle_times")

    def __init__(self, sharers: Sharers, rate: SampledRate, bucket: TokenBucket | None) -> None:
        self.sharers = sharers
        self.rate = rate
        self.bucket = bucket
        self.throttle_times = ThrottleTimes()

    def is_idle(self, now_ms: int) -> bool:
        return self.rate.is_idle(now_ms) and (self.bucket is None or self.bucket.is_idle(now_ms))


class ClientQuotas:
    """The quotas of one client; None where it has none."""

    __slots__ = ("fetch", "is_limited", "mutation", "produce", "request")

    def __init__(
        self, produce: Counted | None, fetch: Counted | None, request: Counted | None, mutation: Counted | None
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation
        self.is_limited = not (produce is fetch is request is mutation is None)


class QuotaWindows:
    """How consumption is sampled: `count` samples of `size_ms`."""

    __slots__ = ("count", "size_ms")

    def __init__(self, count: int, size_ms: int) -> None:
        self.count = count
        self.size_ms = size_ms


class ClientQuotaManager:
    """`generation` is another object after each change of a quota, which makes earlier results of `resolve` invalid."""

    __slots__ = ("_counted", "_limits", "_mutation_windows", "_windows", "generation")

    def __init__(self, windows: QuotaWindows, mutation_windows: QuotaWindows) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._limits = {key: QuotaLimits() for key in (*_RATES, CONTROLLER_MUTATION_RATE)}
        self._counted: dict[str, dict[Sharers, Counted]] = {key: {} for key in self._limits}
        self.generation = object()

    @property
    def counts_time(self) -> bool:
        """Whether there is any quota of request time."""
        return len(self._limits[REQUEST_PERCENTAGE]) > 0

    @property
    def has_limits(self) -> bool:
        return any(map(len, self._limits.values()))

    def put(self, path: str, config: Mapping[str, str]) -> bool:
        """Apply the settings of an entity, which may be deleted; returns whether a quota has changed."""
        entity = entity_of(path)
        names = dict(entity.names) if entity is not None else {}
        if not (USER in names or CLIENT_ID in names):
            return False
        parts = path.split("/")
        user = parts[1] if USER in names else ""
        client_id = "" if CLIENT_ID not in names else parts[-1] if names[CLIENT_ID] is None else desanitized(parts[-1])
        quotas = quotas_of(path, config)
        for key in (
            PRODUCER_BYTE_RATE,
            CONSUMER_BYTE_RATE,
        ):  # with 0 no request waits in Kafka; clients would hang otherwise
            if quotas.get(key) == 0:
                quotas[key] = inf
        changed = [key for key, limits in self._limits.items() if limits.put(user, client_id, quotas.get(key))]
        for key in changed:
            self._apply(key, self._limits[key])
        if changed:
            self.generation = object()
        return bool(changed)

    def resolve(self, user: str, client_id: str, now_ms: int) -> ClientQuotas:
        """`user` is the name without its type."""
        safe_user = sanitized(user)
        produce, fetch, request, mutation = (self._of(key, safe_user, client_id, now_ms) for key in self._limits)
        return ClientQuotas(produce, fetch, request, mutation)

    def counted(self, key: str) -> Iterator[Counted]:
        """All counted consumption of a type, for metrics."""
        return iter(tuple(self._counted[key].values()))

    @property
    def fetch_window_s(self) -> int:
        """The seconds of full windows: a fetch gets what its limit allows in them, at most."""
        return (self._windows.count - 1) * self._windows.size_ms // 1000

    @property
    def request_wait_ms_max(self) -> int:
        """The longest wait for request time."""
        return self._windows.size_ms

    def _of(self, key: str, user: str, client_id: str, now_ms: int) -> Counted | None:
        limits = self._limits[key]
        if not len(limits):
            return None
        sharers = limits.sharers(user, client_id)
        limit = limits.of(sharers)
        if limit is None:
            return None
        all_counted = self._counted[key]
        counted = all_counted.get(sharers)
        if counted is None:
            if len(all_counted) >= COUNTED_MAX:
                self._make_room(all_counted, now_ms)
            counted = all_counted[sharers] = self._new(key, sharers, limit, now_ms)
        return counted

    def _new(self, key: str, sharers: Sharers, limit: float, now_ms: int) -> Counted:
        if key != CONTROLLER_MUTATION_RATE:
            windows = self._windows
            return Counted(sharers, SampledRate(windows.count, windows.size_ms, limit), None)
        windows = self._mutation_windows
        bucket = TokenBucket(windows.count * windows.size_ms / 1000, limit, now_ms)
        return Counted(sharers, SampledRate(windows.count, windows.size_ms, inf), bucket)

    def _make_room(self, all_counted: dict[Sharers, Counted], now_ms: int) -> None:
        """Drop the idle ones, and the oldest if these are few: not every request may scan all."""
        for sharers in [each.sharers for each in all_counted.values() if each.is_idle(now_ms)]:
            del all_counted[sharers]
        for sharers in list(all_counted)[: max(0, len(all_counted) - COUNTED_MAX * 3 // 4)]:
            del all_counted[sharers]
        self.generation = object()  # connections still refer to those that are dropped

    def _apply(self, key: str, limits: QuotaLimits) -> None:
        """Apply the limits to all counted consumption, and drop that without a limit."""
        all_counted = self._counted[key]
        for sharers, counted in tuple(all_counted.items()):
            limit = limits.of(sharers)
            if limit is None:
                counted.rate.limit = inf  # for requests that are waiting
                del all_counted[sharers]
            elif counted.bucket is not None:
                counted.bucket.limit = limit
            else:
                counted.rate.limit = limit
