"""An event reaches all subscribers, until they cancel."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.common.event import Event


def test_an_event_reaches_all_subscribers_in_their_order_until_they_cancel() -> None:
    event = Event[[str]]()
    heard: list[tuple[int, str]] = []
    cancel = event.subscribe(lambda what: heard.append((1, what)))
    event.subscribe(lambda what: heard.append((2, what)))
    event("a")
    cancel()
    cancel()
    event("b")
    assert heard == [(1, "a"), (2, "a"), (2, "b")]


def test_a_subscriber_may_cancel_while_it_is_called() -> None:
    event = Event[[]]()
    heard: list[int] = []
    cancels: list[Callable[[], None]] = []
    cancels.append(event.subscribe(lambda: cancels[0]()))
    event.subscribe(lambda: heard.append(1))
    event()
    event()
    assert heard == [1, 1]
