"""Metrics of clients: which ones this broker asks each client for, when it may send them, and the last values received.

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals, and every 5 minutes at
least. Its subscription id changes exactly when these do; a push under an old id is refused, and the client asks again.
Values stay until the client is silent for three intervals. Numbers of clients and of values are limited, and values
beyond are counted.
Source: kafka.server.ClientMetricsManager, org.apache.kafka.server.metrics.ClientMetricsInstance (4.3), KIP-714.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from kafkalite.api.request.metrics_data import read_points
from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID, format_uuid, random_uuid
from kafkalite.config.client_metrics_config import INTERVAL_DEFAULT_MS, ClientMetricsConfig, MetricSubscription
from kafkalite.record import compression

ALL_METRICS = "*"
INSTANCES_MAX = 16_384  # as in Kafka; the one that was silent longest goes
SERIES_OF_CLIENT_MAX = 500  # values of one client
SERIES_MAX = 20_000  # values of all clients
UNPACKED_MAX = 4 << 20  # bytes of one push
CODECS = (compression.ZSTD, compression.LZ4, compression.GZIP, compression.SNAPPY)
"""The codecs that a client may use, the best one first."""
_EXPIRY_MIN_MS = 60_000
_PROPERTY_CHARS_MAX = 256  # longer properties of a client match no subscription
_RESERVED_IDS = (ZERO_UUID, uuid.UUID(int=1))


class Sample(NamedTuple):
    """The last value of one metric of a client, or of a part of a histogram (`MetricPoint.part`)."""

    value: float
    is_counter: bool
    part: str = ""


class ClientInstance:
    """One client, by the id that it got. Times are of the monotonic clock, None before the first request."""

    __slots__ = (
        "client", "instance_id", "interval_ms", "is_terminating", "last_error", "last_get_ms", "last_push_ms",
        "metrics", "samples", "seen_ms", "subscription_id", "version",
    )  # fmt: skip

    def __init__(self, instance_id: uuid.UUID, client: Mapping[str, str], version: int) -> None:
        self.instance_id = instance_id
        self.client = client
        self.version = version  # of the subscriptions that it was matched with
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = INTERVAL_DEFAULT_MS
        self.subscription_id = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.seen_ms = 0
        self.samples: dict[tuple[str, str, str], Sample] = {}

    def subscribe(self, subscriptions: Mapping[str, MetricSubscription]) -> None:
        """Match the client with the subscriptions."""
        matching = [one for one in subscriptions.values() if one.matches(self.client)]
        metrics = {metric for one in matching for metric in one.metrics}
        self.metrics = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        self.interval_ms = min([INTERVAL_DEFAULT_MS, *(one.interval_ms for one in matching)])  # never a longer one
        checksum = crc32c(f"{','.join(self.metrics)} {self.interval_ms}".encode()) ^ (self.instance_id.int & 0xFFFFFFFF)
        self.subscription_id = checksum - (1 << 32) if checksum >> 31 else checksum

    def may_get(self, now_ms: int) -> bool:
        """Whether a request for subscriptions comes in time; then it counts. An early one is allowed after a push that
        was refused for what the client knows of its subscription, and does not count."""
        last_ms = max((each for each in (self.last_get_ms, self.last_push_ms) if each is not None), default=None)
        if last_ms is None or now_ms - last_ms >= self.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def may_push(self, now_ms: int) -> bool:
        """Whether a push comes in time; then it counts."""
        get_ms, push_ms = self.last_get_ms, self.last_push_ms
        is_first = push_ms is None or (get_ms is not None and get_ms > push_ms)
        if not is_first and push_ms is not None and now_ms - push_ms < self.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class ClientTelemetry:
    """The subscriptions, and the clients that asked for them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the monotonic clock."""
        self._now_ms = now_ms
        self._subscriptions: dict[str, MetricSubscription] = {}
        self._version = 0
        self._instances: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()
        self._sample_count = 0
        self.push_count = 0
        self.left_out_count = 0

    def update(self, name: str, settings: Mapping[str, str]) -> None:
        """These are the settings of a subscription from now on; none: it is gone. Settings that are not understood
        subscribe to nothing."""
        self._subscriptions.pop(name, None)
        if settings:
            with suppress(KafkaError):
                self._subscriptions[name] = ClientMetricsConfig.subscription(settings)
        self._version += 1

    def subscription(self, instance_id: uuid.UUID, client: Mapping[str, str]) -> ClientInstance:
        """The client as subscribed. The zero id is one that has none yet, and gets one. Raises KafkaError."""
        instance = self._instance(random_uuid() if instance_id == ZERO_UUID else instance_id, client)
        if not instance.may_get(self._now_ms()):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        instance_id: uuid.UUID,
        client: Mapping[str, str],
        subscription_id: int,
        codec: int,
        metrics: bytes,
        *,
        bytes_max: int,
        is_last: bool,
    ) -> None:
        """Take the metrics of a client; `is_last`: it ends. Raises KafkaError."""
        if instance_id in _RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(instance_id, client)
        has_ended, instance.is_terminating = instance.is_terminating, is_last  # also if this one is refused
        try:
            if has_ended:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self._check(instance, subscription_id, codec, len(metrics), bytes_max, is_last=is_last)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        if metrics:
            try:
                self._take(instance, compression.decompress(codec, metrics, UNPACKED_MAX))
            except Malformed as fault:
                instance.last_error = ErrorCode.INVALID_RECORD
                raise KafkaError(ErrorCode.INVALID_RECORD) from fault
        instance.last_error = ErrorCode.NONE
        self.push_count += 1

    def _check(
        self, instance: ClientInstance, subscription_id: int, codec: int, size: int, bytes_max: int, *, is_last: bool
    ) -> None:
        if not instance.may_push(self._now_ms()) and not is_last:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in (compression.NONE, *CODECS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size > bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _instance(self, instance_id: uuid.UUID, client: Mapping[str, str]) -> ClientInstance:
        now_ms = self._now_ms()
        self._forget_silent(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            client = {name: text for name, text in client.items() if len(text) <= _PROPERTY_CHARS_MAX}
            before, instance = instance, ClientInstance(instance_id, client, self._version)
            instance.client = {**client, "client_instance_id": format_uuid(instance_id)}
            instance.subscribe(self._subscriptions)
            if before is not None:
                instance.samples = before.samples
            self._instances[instance_id] = instance
            if len(self._instances) > INSTANCES_MAX:
                self._drop(next(iter(self._instances)))
        instance.seen_ms = now_ms
        self._instances.move_to_end(instance_id)
        return instance

    def _forget_silent(self, now_ms: int) -> None:
        """Drop the clients that are silent for too long."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now_ms - oldest.seen_ms <= max(_EXPIRY_MIN_MS, 3 * oldest.interval_ms):
                return
            self._drop(oldest.instance_id)

    def _drop(self, instance_id: uuid.UUID) -> None:
        self._sample_count -= len(self._instances.pop(instance_id).samples)

    def _take(self, instance: ClientInstance, data: bytes) -> None:
        samples = instance.samples
        for point in islice(read_points(data), SERIES_OF_CLIENT_MAX):
            key = point.name, point.attributes, point.part
            before = samples.get(key)
            if before is None:
                if len(samples) >= SERIES_OF_CLIENT_MAX or self._sample_count >= SERIES_MAX:
                    self.left_out_count += 1
                    continue
                self._sample_count += 1
            value = point.value
            if before is not None and point.is_sum and point.is_delta:
                value += before.value
            samples[key] = Sample(value, point.is_sum and point.is_monotonic, point.part)

    def samples(self) -> Iterator[tuple[ClientInstance, str, str, Sample]]:
        """(client, name, attributes, value) of all values that are not too old."""
        self._forget_silent(self._now_ms())
        for instance in list(self._instances.values()):
            for (name, attributes, _), sample in list(instance.samples.items()):
                yield instance, name, attributes, sample
