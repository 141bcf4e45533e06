"""The record of what clients asked: what it keeps, how it is shown and stored, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench import wire
from bench.records import record_batch
from kafkalite import Broker
from kafkalite.api.dispatch import Dispatcher
from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, Pending, ThrottledAnswer
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.requests import request_log
from kafkalite.testing.requests.interception import changed_answer
from kafkalite.testing.requests.recorded_request import Frames, RecordedRequest, read_trace


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def produce(client: wire.Connection, topic: str, size: int = 10) -> None:
    client.produce(wire.produce_frame(topic, 0, record_batch(1, size)))


def test_nothing_is_recorded_before_the_start_and_nothing_after_the_stop(broker: Broker) -> None:
    handlers = {type(processor.handler) for processor in broker.server.server.processors}
    assert handlers == {Dispatcher}, "no request costs more than on any broker"
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        assert len(broker.requests) == 0 and repr(broker.requests) == "no requests"
        broker.requests.start()
        broker.requests.start()  # it is recording already
        produce(client, "orders")
        produce(client, "orders")  # on the fast path
        broker.requests.stop()
        produce(client, "orders")
    assert [each.api for each in broker.requests] == ["Produce", "Produce"]
    assert len(broker.records("orders")) == 3
    assert {type(processor.handler) for processor in broker.server.server.processors} == {Dispatcher}
    broker.requests.clear()
    assert list(broker.requests) == []


def test_a_request_is_decoded_and_so_is_its_answer(broker: Broker) -> None:
    broker.requests.start()
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        produce(client, "orders")
        [one] = broker.requests.of("produce", topic="orders")
        assert one.client.startswith("127.0.0.1:") and one.topics == ["orders"] and one.errors == []
        assert isinstance(one.request, ProduceRequest) and one.request.topic_data[0].name == "orders"
        assert one.response is not None and one.took_ms is not None
        assert abs(one.time - datetime.now(UTC)) < timedelta(minutes=1)
        assert repr(one).startswith(f"Produce v{one.version} of orders from {one.client_id!r} at 127.0.0.1:")
        assert broker.requests.of(client_id="nobody") == [] == broker.requests.of(topic="others")
        assert len(broker.requests.of(client_id=one.client_id)) == len(broker.requests)


def test_an_error_in_the_answer_is_named(broker: Broker) -> None:
    broker.requests.start()
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        with pytest.raises(wire.TopicExists):
            client.create_topic("orders")
    first, second = broker.requests.of("CreateTopics")
    assert (first.errors, second.errors) == ([], ["TOPIC_ALREADY_EXISTS"])
    assert "TOPIC_ALREADY_EXISTS after" in repr(second)


def test_the_number_and_the_size_of_what_is_kept_are_limited(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "REQUESTS_MAX", 3)
    monkeypatch.setattr(request_log, "BYTES_MAX", 10_000)
    monkeypatch.setattr(request_log, "ANSWER_BYTES_MAX", 10)
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        broker.requests.start()
        for _ in range(5):
            produce(client, "orders")
        assert len(broker.requests) == 3
        last = list(broker.requests)[-1]
        assert last.response is None and last.frames.left_out > 10 and last.outcome.startswith("ok")
        produce(client, "orders", 8_000)
        assert len(broker.requests) < 3 or len(list(broker.requests)[-1].frames.request) > 8_000
        produce(client, "orders", 9_000)
        assert len(broker.requests) == 1, "two of them are more than may be kept"


def test_a_reset_forgets_them_and_goes_on(broker: Broker) -> None:
    broker.requests.start()
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        broker.reset()
        assert len(broker.requests) == 0
        client.create_topic("orders")
    assert [each.errors for each in broker.requests.of("CreateTopics")] == [[]]


def test_an_asynchronous_broker_records_too() -> None:
    async def story() -> None:
        async with Broker() as broker:
            broker.requests.start()
            client = await asyncio.to_thread(wire.Connection, broker.bootstrap_servers)
            await asyncio.to_thread(client.create_topic, "orders")
            await asyncio.to_thread(client.__exit__, None, None, None)
            assert "CreateTopics" in [each.api for each in broker.requests]

    asyncio.run(story())


def test_a_diagram_shows_requests_and_answers_as_they_passed(broker: Broker, tmp_path: Path) -> None:
    broker.requests.start()
    with wire.Connection(broker.bootstrap_servers) as one, wire.Connection(broker.bootstrap_servers) as two:
        one.create_topic("orders")
        produce(two, "orders")
    lines = broker.requests.diagram().splitlines()
    assert len(lines) == 1 + 2 * len(broker.requests)
    assert any("->" in line and "CreateTopics" in line for line in lines)
    assert lines[-1].split("<-")[1].split()[-2:] == [str(len(broker.requests)), "ok"]
    page = tmp_path / "requests.html"
    broker.requests.save(page)
    assert page.read_text().count("<tr>") == 1 + 2 * len(broker.requests)
    broker.requests.clear()
    assert broker.requests.diagram().split() == ["ms", "broker"]


def test_a_page_shows_wild_names_as_text(broker: Broker, tmp_path: Path) -> None:
    frames = Frames(0, 0, "h:1", b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x09<b>&x</b>\x00\x00\x00\x01\x00\x03<i>")
    broker.requests._records.append(frames)
    page = tmp_path / "requests.html"
    broker.requests.save(page)
    assert "&lt;b&gt;&amp;x&lt;/b&gt;" in page.read_text() and "<b>" not in page.read_text()
    assert "<i>" not in page.read_text()


def test_a_trace_is_read_as_it_was_written(broker: Broker, tmp_path: Path) -> None:
    broker.requests.start()
    with wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        produce(client, "orders")
    path = tmp_path / "orders.trace"
    broker.requests.save(path)
    assert read_trace(path) == [each.frames for each in broker.requests]
    assert [json.loads(line).get("api", "").partition(" ")[0] for line in path.read_text().splitlines()][
        -1
    ] == "Produce"


@pytest.mark.parametrize("text", ["", "{}\n", '{"trace": "kafkalite", "version": 1}\n{"began": 1}\n', "\n\n"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.trace"
    path.write_text(text)
    with pytest.raises(ValueError, match="no trace of requests"):
        read_trace(path)


def test_a_version_that_nobody_knows_is_shown_without_its_fields() -> None:
    one = RecordedRequest(Frames(0, 0, "h:1", b"\x00\x00\x7f\x00\x00\x00\x00\x01\xff\xff\x00"))
    assert (one.api, one.request, one.response, one.errors, one.topics) == ("Produce", None, None, [], [])
    assert "no answer" in repr(one)
    for frame in (b"", b"\x00\x00", b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff"):
        wild = RecordedRequest(Frames(0, 0, "h:1", frame))
        assert wild.request is None and wild.topics == [] and "no answer" in repr(wild)
    other = RecordedRequest(Frames(0, 0, "h:1", b"\x70\x00\x00\x00\x00\x00\x00\x01\xff\xff"))
    assert other.api == f"API {0x7000}" and other.response is None


@pytest.mark.parametrize("kind", ["now", "later"])
def test_a_client_over_its_quota_rests_after_an_answer_that_was_changed(kind: str) -> None:
    throttled = ThrottledAnswer([b"answer"], 700)

    def change(parts: list[Part] | None) -> list[Part] | None:
        return None if parts is None else [b"another"]

    async def story() -> object:
        answer: Answer = throttled
        if kind == "later":
            answer = Pending(lambda: None)
            asyncio.get_running_loop().call_soon(answer.answer, throttled)
        changed = changed_answer(answer, change)
        return await changed if isinstance(changed, Pending) else changed

    told = asyncio.run(story())
    assert isinstance(told, ThrottledAnswer)
    assert told == [b"another"] and told.throttle_ms == 700
