"""A response that may wait for a group's decision or for an append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

Result = TypeVar("Result")
Response = TypeVar("Response")


class PendingResponse(Generic[Result, Response]):
    """Receives one result and renders the response. If the client has left meanwhile, the result is dropped."""

    __slots__ = ("_future", "_render", "_response")

    def __init__(self, render: Callable[[Result], Response]) -> None:
        self._render = render
        self._response: Response | None = None
        self._future: asyncio.Future[Response] | None = None

    def answer(self, result: Result, /) -> None:
        response = self._render(result)
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def outcome(self, loop: asyncio.AbstractEventLoop) -> Response | asyncio.Future[Response]:
        """The response if the result has arrived, else a future of the response."""
        if self._response is not None:
            return self._response
        self._future = cast("asyncio.Future[Response]", loop.create_future())
        return self._future
