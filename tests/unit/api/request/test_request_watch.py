"""The requests that the watch remembers, and that it changes none of their answers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.request import request_watch
from kafkalite.api.request.request_watch import FETCH, PRODUCE, WATCHED_MS, RequestWatch
from kafkalite.common.errors import Disconnect
from kafkalite.network.client_connection import Answer, ClientConnection, Handler, Pending
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from tests.support.manual_clock import ManualClock

API_VERSIONS = 18
FRAME = memoryview(bytearray(request_frame(ApiVersionsRequest(), 0, 7, "shop"))[4:])


class Scene:
    """A watch, and the handler that connections have now."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self.answer = answer
        self.clock = ManualClock()
        self.handler: Handler = self._answer
        self.watch = RequestWatch(self.clock, self._stand)
        self.client = ClientConnection("PLAINTEXT", "127.0.0.1", 1, "127.0.0.1", 2)

    def _answer(self, _: ClientConnection, frame: memoryview) -> Answer:
        return self.answer()

    def _stand(self, in_front: Callable[[Handler], Handler] | None) -> None:
        self.handler = self._answer if in_front is None else in_front(self._answer)

    def ask(self, frame: memoryview = FRAME) -> Answer:
        return self.handler(self.client, frame)


@pytest.fixture(autouse=True)
def everything_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_watch, "SLOW_MS", 0.0)


def test_nothing_is_counted_while_nobody_looks() -> None:
    scene = Scene(lambda: [b"1234"])
    assert scene.ask() == [b"1234"] and not scene.watch.counts
    scene.watch.keep_on()
    scene.ask()
    assert scene.watch.counts == {API_VERSIONS: 1}
    scene.clock.advance(WATCHED_MS)
    assert not scene.watch.is_on and not scene.watch.by_client
    scene.ask()
    assert scene.watch.counts == {API_VERSIONS: 1}


def test_a_client_has_the_name_that_it_gave_itself_and_its_counts() -> None:
    scene = Scene(lambda: [b"12", b"34"])
    scene.watch.keep_on()
    scene.ask()
    scene.ask()
    watched = scene.watch.by_client[scene.client]
    assert (watched.client_id, watched.counts) == ("shop", {API_VERSIONS: 2})
    assert {(one.client_id, one.bytes_in, one.bytes_out) for one in scene.watch.slow} == {("shop", len(FRAME), 4)}
    scene.watch.clients_now(set())
    assert not scene.watch.by_client


def test_sizes_of_answers_that_come_later_are_known_too() -> None:
    deferred = Pending(lambda: None)
    deferred.change(lambda response: [response])
    scene = Scene(lambda: deferred)
    scene.watch.keep_on()
    assert scene.ask() is deferred and not scene.watch.slow
    sent: list[Any] = []
    deferred.on_done(sent.append)
    deferred.answer(b"123456")
    assert sent == [[b"123456"]] and scene.watch.slow[-1].bytes_out == 6

    async def later() -> list[Any]:
        return [b"12345678"]

    async def ask() -> Any:
        answer: Any = scene.ask()
        return await answer

    scene.answer = lambda: Pending.of(later())
    assert asyncio.run(ask()) == [b"12345678"] and scene.watch.slow[-1].bytes_out == 8
    scene.answer = lambda: None  # a produce with acks=0
    scene.ask()
    assert scene.watch.slow[-1].bytes_out is None


@pytest.mark.filterwarnings("error")
def test_a_client_that_leaves_in_the_turn_of_its_request_takes_the_answer_with_it() -> None:
    async def later() -> list[Any]:
        return []

    async def ask_and_leave() -> None:
        answer: Any = scene.ask()
        answer.cancel()  # before its first step
        await asyncio.sleep(0)
        assert answer.is_done and not scene.watch.counts

    scene = Scene(lambda: Pending.of(later()))
    scene.watch.keep_on()
    asyncio.run(ask_and_leave())
    gc.collect()


def test_a_handler_that_fails_later_fails_as_without_a_watch() -> None:
    async def later() -> list[Any]:
        raise Disconnect("no more of this")

    async def ask() -> None:
        answer: Any = scene.ask()
        with pytest.raises(Disconnect, match="no more of this"):
            await answer

    scene = Scene(lambda: Pending.of(later()))
    scene.watch.keep_on()
    asyncio.run(ask())
    assert not scene.watch.counts


@pytest.mark.parametrize("size", [0, 1, 3, 9])
def test_a_frame_without_a_header_is_left_to_the_handler(size: int) -> None:
    scene = Scene(lambda: None)
    scene.watch.keep_on()
    assert scene.ask(FRAME[:size]) is None
    assert not scene.watch.counts and not scene.watch.by_client


def test_a_header_that_is_torn_has_no_name() -> None:
    scene = Scene(lambda: [b""])
    scene.watch.keep_on()
    scene.ask(FRAME[:11])
    assert scene.watch.by_client[scene.client].client_id is None


@pytest.mark.parametrize(("key", "is_timed"), [(PRODUCE, True), (FETCH, False)])
def test_a_fetch_that_waits_is_counted_and_not_timed(key: int, is_timed: bool) -> None:
    scene = Scene(lambda: Pending(lambda: None))
    scene.watch.keep_on()
    frame = FRAME.tobytes()
    answer: Any = scene.ask(memoryview(bytearray(key.to_bytes(2, "big") + frame[2:])))
    answer.answer(())
    assert scene.watch.counts[key] == 1
    assert (scene.watch.quantiles_ms(key) is not None) is is_timed
