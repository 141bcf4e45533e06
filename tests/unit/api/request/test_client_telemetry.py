"""Metrics of clients: who is asked for what, when a push is accepted, and what is kept of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafkalite.api.request import client_telemetry
from kafkalite.api.request.client_telemetry import ClientInstance, ClientTelemetry
from kafkalite.api.request.metrics_data import read_points
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.metrics import Metrics
from kafkalite.common.names import ZERO_UUID
from kafkalite.record.compression import GZIP, NONE, compress
from kafkalite.server.traffic_metrics import add_client_metrics
from tests.support import prometheus
from tests.support.otlp import delta, field, gauge, histogram, metrics_data, string_attribute

CLIENT = {"client_id": "app", "client_software_name": "java"}
INTERVAL_MS = 1_000


class World:
    """A telemetry with one subscription, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000
        self.telemetry = ClientTelemetry(lambda: self.now_ms)
        self.telemetry.update("basic", {"metrics": "a.,b.", "interval.ms": str(INTERVAL_MS)})

    def get(self, instance_id: uuid.UUID = ZERO_UUID) -> ClientInstance:
        return self.telemetry.subscription(instance_id, CLIENT)

    def push(self, of: ClientInstance, data: bytes, codec: int = NONE, *, is_last: bool = False, **more: int) -> None:
        subscription_id = more.get("subscription_id", of.subscription_id)
        self.telemetry.push(
            of.instance_id, CLIENT, subscription_id, codec, data, bytes_max=more.get("bytes_max", 1000), is_last=is_last
        )

    def values(self) -> dict[str, float]:
        return {name: sample.value for _, name, _, sample in self.telemetry.samples()}


def refused(code: ErrorCode, call: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as error:
        call()
    assert error.value.code is code


def test_a_client_gets_an_id_and_what_matches_it() -> None:
    world = World()
    one = world.get()
    assert (one.metrics, one.interval_ms) == (("a.", "b."), INTERVAL_MS)
    world.telemetry.update("other", {"metrics": "c.", "interval.ms": "500", "match": "client_id=ap.*"})
    world.telemetry.update("none", {"metrics": "d.", "match": "client_id=ap"})
    again = world.get(one.instance_id)
    assert (again.metrics, again.interval_ms) == (("a.", "b.", "c."), 500)
    assert again.subscription_id != one.subscription_id
    world.telemetry.update("all", {"metrics": "*"})
    assert world.get(one.instance_id).metrics == ("*",)
    world.telemetry.update("all", {})
    world.telemetry.update("other", {"interval.ms": "300"})  # the interval of no metrics counts, too
    assert (world.get(one.instance_id).metrics, world.get().interval_ms) == (("a.", "b."), 300)
    world.telemetry.update("other", {})
    assert world.get(one.instance_id).subscription_id == one.subscription_id


def test_without_a_subscription_there_is_nothing_to_push() -> None:
    world = World()
    world.telemetry.update("basic", {})
    assert world.get().metrics == () and world.get().interval_ms == 300_000


def test_requests_that_come_too_early_are_throttled() -> None:
    world = World()
    one = world.get()
    refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, lambda: world.get(one.instance_id))
    world.push(one, b"")  # the first one after the subscription
    refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, lambda: world.push(one, b""))
    world.now_ms += INTERVAL_MS
    world.push(one, b"")


@pytest.mark.parametrize(
    ("pushes", "codes"),
    [("tt", [0, 42]), ("tnn", [0, 42, 89]), ("tnt", [0, 42, 0]), ("tnttn", [0, 42, 0, 42, 42])],
)
def test_after_the_last_push_of_a_client_the_next_one_is_refused(pushes: str, codes: list[int]) -> None:
    """As Kafka 4.3 with a receiver answers: t is a last push, n is none."""
    world = World()
    one = world.get()
    world.now_ms += 1
    found = []
    for push in pushes:
        try:
            world.push(one, b"", is_last=push == "t")
            found.append(0)
        except KafkaError as error:
            found.append(int(error.code))
    assert found == codes


def test_what_a_push_is_refused_for() -> None:
    world = World()
    refused(ErrorCode.INVALID_REQUEST, lambda: world.telemetry.push(
        ZERO_UUID, CLIENT, 0, NONE, b"", bytes_max=1, is_last=False))  # fmt: skip
    for code, data, codec, more in (
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, b"", NONE, {"subscription_id": 1}),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"", 5, {}),
        (ErrorCode.TELEMETRY_TOO_LARGE, b"abc", NONE, {"bytes_max": 2}),
        (ErrorCode.INVALID_RECORD, b"abc", GZIP, {}),
        (ErrorCode.INVALID_RECORD, b"\xff", NONE, {}),
    ):
        one = world.get()
        refused(code, lambda: world.push(one, data, codec, **more))  # noqa: B023


def test_a_client_that_was_refused_its_subscription_asks_at_once() -> None:
    world = World()
    one = world.get()
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, lambda: world.push(one, b"", subscription_id=1))
    assert world.get(one.instance_id).subscription_id == one.subscription_id
    refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, lambda: world.push(one, b""))  # the early request does not count


def test_after_a_push_that_was_taken_it_asks_in_time_again() -> None:
    world = World()
    one = world.get()
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, lambda: world.push(one, b"", subscription_id=1))
    world.now_ms += INTERVAL_MS
    world.push(one, b"")
    refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, lambda: world.get(one.instance_id))


def test_a_client_sends_every_five_minutes_at_least() -> None:
    world = World()
    world.telemetry.update("basic", {"metrics": "a.", "interval.ms": "3600000"})
    assert world.get().interval_ms == 300_000


def test_the_last_values_are_kept_and_sums_add_up() -> None:
    world = World()
    one = world.get()
    for value in (1, 2):
        world.push(one, compress(GZIP, gauge("a.lag", value)), GZIP)
        world.now_ms += INTERVAL_MS
        world.push(one, delta("b.sent", 10))
        world.now_ms += INTERVAL_MS
    assert world.values() == {"a.lag": 2, "b.sent": 20}
    world.now_ms += 61_000
    assert world.values() == {}


def test_histograms_count_up_to_each_bound() -> None:
    world = World()
    one = world.get()
    place = string_attribute("place", "x")
    for _ in range(2):
        world.push(one, histogram("a.time", [0.5, 10.0], [1, 2, 3], 47.5, place))
        world.now_ms += INTERVAL_MS
    found = {(name, attributes, sample.part): sample.value for _, name, attributes, sample in world.telemetry.samples()}
    parts = {"0.5": 2, "10": 6, "+Inf": 12, "count": 12, "sum": 95}
    assert found == {("a.time", "place=x", part): value for part, value in parts.items()}
    metrics = Metrics()
    add_client_metrics(metrics, world.telemetry)
    told = prometheus.parse("".join(metrics.pieces()))
    prefix = "kafkalite_client_metric_histogram"
    assert {part: list(told[f"{prefix}_{part}"].samples.values()) for part in ("sum", "count")} == {
        "sum": [95],
        "count": [12],
    }
    buckets = {dict(labels)["le"]: value for labels, value in told[f"{prefix}_bucket"].samples.items()}
    assert buckets == {"0.5": 2, "10": 6, "+Inf": 12}


def test_a_histogram_of_too_many_bounds_is_left_out() -> None:
    data = histogram("a.time", [float(each) for each in range(300)], [1] * 301, 1)
    assert list(read_points(data)) == []
    with pytest.raises(Malformed):
        list(read_points(metrics_data(field(9, field(1, field(6, b"1234567"))))))


def test_values_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "SERIES_OF_CLIENT_MAX", 3)
    monkeypatch.setattr(client_telemetry, "SERIES_MAX", 4)
    monkeypatch.setattr(client_telemetry, "INSTANCES_MAX", 2)
    world = World()
    one, other = world.get(), world.get()
    for number in range(4):
        for client in (one, other):
            world.push(client, gauge(f"m{number}", number))
        world.now_ms += INTERVAL_MS
    assert len(list(world.telemetry.samples())) == 4 and world.telemetry.left_out_count == 4
    world.get()
    world.get()
    assert list(world.telemetry.samples()) == []
