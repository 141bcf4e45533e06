"""An event of one part of the broker that others subscribe to.

Subscribers are called in the order of their subscriptions, in the turn of the loop in which the event happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """Called by its owner with the arguments for the subscribers."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: dict[object, Callable[P, object]] = {}

    def subscribe(self, subscriber: Callable[P, object]) -> Callable[[], None]:
        """Calls `subscriber` from now on. Returns a function that ends this."""
        key = object()
        self._subscribers[key] = subscriber

        def cancel() -> None:
            self._subscribers.pop(key, None)

        return cancel

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in tuple(self._subscribers.values()):
            subscriber(*args, **kwargs)
