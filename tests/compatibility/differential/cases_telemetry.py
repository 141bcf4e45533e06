"""Metrics of clients (KIP-714): which ones a broker asks for, and when it accepts a push."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from kafkalite.record import compression
from tests.compatibility.differential.asking import DELETE, SET, change
from tests.compatibility.differential.engine import Teller, once_in_4_3
from tests.support.otlp import gauge

METRICS = 16  # resource type
OF_ITS_OWN = uuid.UUID("0a0b0c0d-0102-4304-8506-0708090a0b0c")
RESERVED = uuid.UUID(int=1)
THROTTLED = 89
HOUR_MS = 3_600_000
SHORTEST_MS = 100
BYTES_MAX = 1 << 20


def get(instance_id: uuid.UUID = ZERO_UUID) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)


def push(instance_id: uuid.UUID, subscription_id: int, metrics: bytes = b"", **more: Any) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=instance_id, subscription_id=subscription_id, metrics=memoryview(metrics), **more
    )


def subscribe(t: Teller, name: str, metrics: str, interval_ms: int, *match: str) -> None:
    entries = [("metrics", SET, metrics), ("interval.ms", SET, str(interval_ms))]
    entries += [("match", SET, each) for each in match]
    t.ask(f"{name} asks for {metrics}", change(METRICS, t.name(name), *entries), 1)


def end(t: Teller, *names: str) -> None:
    for name in names:
        keys = ("metrics", "interval.ms", "match")
        t.ask(f"{name} ends", change(METRICS, t.name(name), *((key, DELETE, None) for key in keys)), 1)


def asks_for(*metrics: str, every_ms: int) -> Callable[[Any], bool]:
    """Whether the broker knows the subscription: it hears of it a moment after it is answered."""
    return lambda answer: (sorted(answer.requested_metrics), answer.push_interval_ms) == (sorted(metrics), every_ms)


def is_in_time(answer: Any) -> bool:
    return answer.error_code != THROTTLED  # type: ignore[no-any-return]


@once_in_4_3
def subscriptions(t: Teller) -> None:
    drawn = t.ask("nothing is asked for", get()).client_instance_id
    t.ask("again at once", get(drawn))
    t.ask("another client", get())
    t.ask("an id of its own", get(OF_ITS_OWN))
    t.ask("that id again", get(OF_ITS_OWN))
    t.ask("a reserved id", get(RESERVED))
    subscribe(t, "one", "b.,a.", HOUR_MS)
    t.ask("of one", get(), until=asks_for("a.", "b.", every_ms=300_000))
    t.ask("a known client hears of it at once", get(drawn))
    t.ask("and again", get(drawn))
    subscribe(t, "two", "c.,a.", 60_000)
    t.ask("of two", get(), until=asks_for("a.", "b.", "c.", every_ms=60_000))
    subscribe(t, "others", "d.", SHORTEST_MS, "client_id=nobody")
    subscribe(t, "three", "e.", 50_000, "client_id=dif+er,client_software_name=unknown")
    t.ask("of three", get(), until=asks_for("a.", "b.", "c.", "e.", every_ms=50_000))
    subscribe(t, "three", "e.", 40_000, "client_id=dif")
    subscribe(t, "four", "f.", 30_000, "client_source_address=127.*,client_software_version=unknown")
    t.ask("a pattern is for the whole", get(), until=asks_for("a.", "b.", "c.", "f.", every_ms=30_000))
    subscribe(t, "five", "*", 20_000, f"client_instance_id={'[A-Za-z0-9_-]' * 22}")
    t.ask("all", get(), until=asks_for("*", every_ms=20_000))
    end(t, "one", "two", "three", "four", "five", "others")
    t.ask("nothing again", get(), until=asks_for(every_ms=300_000))


def subscribed(t: Teller, metrics: str, interval_ms: int) -> tuple[uuid.UUID, int]:
    """The id of a client, and that of what it is asked for, `interval_ms` being the shortest interval."""
    subscribe(t, "pushed", metrics, interval_ms)
    answer = t.ask("subscribed", get(), until=asks_for(metrics, every_ms=min(interval_ms, 300_000)))
    return answer.client_instance_id, answer.subscription_id


@once_in_4_3
def pushes_in_time(t: Teller) -> None:
    client, subscription = subscribed(t, "a.", SHORTEST_MS)
    t.ask("the first", push(client, subscription, gauge("a.x", 1.0)))
    t.ask("the next", push(client, subscription, gauge("a.x", 2.0)), until=is_in_time)
    for codec in (compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD):
        data = bytes(compression.compress(codec, gauge("a.x", 3.0)))
        t.ask(f"codec {codec}", push(client, subscription, data, compression_type=codec), until=is_in_time)
        broken = push(client, subscription, b"broken" * 9, compression_type=codec)
        t.ask(f"codec {codec}, broken", broken, until=is_in_time)
    t.ask("without metrics", push(client, subscription), until=is_in_time)
    t.ask("a codec that does not exist", push(client, subscription, b"x", compression_type=9), until=is_in_time)
    t.ask("a negative codec", push(client, subscription, b"x", compression_type=-1), until=is_in_time)
    t.ask("too large", push(client, subscription, bytes(BYTES_MAX + 1)), until=is_in_time)
    t.ask("of another subscription", push(client, subscription ^ 1, b"x"), until=is_in_time)
    end(t, "pushed")
    t.ask("nothing again", get(), until=asks_for(every_ms=300_000))
    t.ask("of a subscription that is gone", push(client, subscription, gauge("a.x", 1.0)))


@once_in_4_3
def pushes_out_of_time(t: Teller) -> None:
    client, subscription = subscribed(t, "a.", 200_000)
    t.ask("no id", push(ZERO_UUID, subscription))
    t.ask("a reserved id", push(RESERVED, subscription))
    t.ask("of another subscription", push(client, subscription + 1))
    t.ask("it may ask at once", get(client))
    t.ask("but once", get(client))
    t.ask("a push after it", push(client, subscription))
    t.ask("too early", push(client, subscription))
    t.ask("nor may it ask", get(client))
    t.ask("the last one may be early", push(client, subscription, terminating=True))
    t.ask("nothing comes after the last", push(client, subscription))
    t.ask("nor another last one", push(client, subscription, terminating=True))
    other = t.ask("another client", get())
    client, subscription = other.client_instance_id, other.subscription_id
    t.ask("a codec that does not exist", push(client, subscription, compression_type=5))
    t.ask("it may ask at once, too", get(client))
    t.ask("a last one that is refused", push(client, subscription ^ 5, terminating=True))
    t.ask("is the last one nevertheless", push(client, subscription))
    t.ask("an unknown client pushes", push(OF_ITS_OWN, 5))
    answer = t.ask("and asks", get(OF_ITS_OWN))
    t.ask("and pushes", push(OF_ITS_OWN, answer.subscription_id))
    subscribe(t, "pushed", "b.", 150_000)
    t.ask("subscribed anew", get(), until=asks_for("b.", every_ms=150_000))
    t.ask("under the old subscription", push(OF_ITS_OWN, answer.subscription_id))
    answer = t.ask("it asks again", get(OF_ITS_OWN))
    t.ask("under the new one", push(OF_ITS_OWN, answer.subscription_id, gauge("b.x", 1.0)))
    end(t, "pushed")
    t.ask("nothing again", get(), until=asks_for(every_ms=300_000))
