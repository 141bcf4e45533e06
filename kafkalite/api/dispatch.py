"""Dispatches request frames to their handlers and encodes the responses.

Each API of the table of APIs has one handler (`server/broker_apis`). A request is decoded by its version, handled, and
its response encoded by the same version. All of this is synchronous unless a handler returns an awaitable.
Source: kafka.network.RequestChannel, kafka.server.KafkaApis.handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.api.fast_path import fetch_fast_path, heartbeat_fast_path, produce_fast_path
from kafkalite.api.handlers.metadata import API_VERSIONS_KEY, unsupported_version
from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import Disconnect
from kafkalite.network.client_connection import Pending, ignore
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.codec.codec import decoder
from kafkalite.protocol.header import decode_request_header, response_frame

if TYPE_CHECKING:
    from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi
    from kafkalite.api.handlers.fetch import FetchApi
    from kafkalite.api.handlers.produce import ProduceApi
    from kafkalite.api.request.request_context import Access
    from kafkalite.common.region import Part
    from kafkalite.network.client_connection import Answer, ClientConnection


Handler = Callable[[Any, RequestContext], Any]
"""(request, context) -> response | awaitable of it | None (no response). Types agree with the row in APIS."""

PRODUCE_KEY = 0
FETCH_KEY = 1
HEARTBEAT_KEY = 68
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""Limit of any request but Produce, whose bytes are mostly records. Other requests are decoded to objects of some 35
times the size of the smallest element, so a request of socket.request.max.bytes would take gigabytes of memory."""

Encode = Callable[[Any, int, int], "list[Part]"]
"""(response, version, correlation id) -> the parts of its frame"""
Decode = Callable[[memoryview, int], tuple[Any, int]]


class Dispatcher:
    """Handles every request of every connection. Raises Malformed or Disconnect for requests without a response.

    A `Pending` or future that a handler returns is cancelled when its client disconnects. A coroutine, such as
    the creation of a topic, is run to its end even if its client disconnects.
    """

    __slots__ = ("_access", "_consumer_groups", "_fetch", "_handler_of", "_produce", "_routes", "_tasks")

    def __init__(
        self,
        handler_of: Callable[[str], Handler],
        produce: ProduceApi,
        fetch: FetchApi,
        consumer_groups: Callable[[], ConsumerGroupApi],
        access: Access | None = None,
    ) -> None:
        """`handler_of` is asked at the first request of an API and version. `produce`, `fetch` and
        `consumer_groups` are for the fast paths; `access` is None without an authorizer."""
        self._handler_of = handler_of
        self._produce = produce
        self._fetch = fetch
        self._consumer_groups = consumer_groups
        self._access = access
        # (key, version) -> (decoder, handler, type); a decoder is compiled at the first request of its version
        self._routes: dict[tuple[int, int], tuple[Decode, Handler, type[Any]]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    def __call__(self, connection: ClientConnection, frame: memoryview) -> Answer:
        answer = connection.fast_answer(frame)
        return self.handle(connection, frame) if answer is None else answer

    def handle(self, connection: ClientConnection, frame: memoryview, encode: Encode = response_frame) -> Answer:
        """The answer without a fast path. `encode` makes the frame of the response, now or when there is one."""
        (key, version, correlation_id, client_id), position = decode_request_header(frame)
        route = self._routes.get((key, version)) or self._route(key, version)
        if route is None:
            if key == API_VERSIONS_KEY:
                return response_frame(unsupported_version(), 0, correlation_id)
            raise Disconnect(f"version {version} of API {key} is not served")
        decode, handle, response_type = route
        if len(frame) > REQUEST_BYTES_MAX and key != PRODUCE_KEY:
            raise Disconnect(f"a request of {len(frame)} bytes for API {key}: more than {REQUEST_BYTES_MAX}")
        request, _ = decode(frame, position)
        context = RequestContext(connection, version, client_id, self._access)
        if key == FETCH_KEY:
            fetch_fast_path.learn(self._fetch, context, frame, request)
        response = handle(request, context)
        if type(response) is response_type:
            if key == PRODUCE_KEY:
                produce_fast_path.learn(self._produce, context, frame, position, request, response)
            elif key == HEARTBEAT_KEY:
                heartbeat_fast_path.learn(self._consumer_groups(), context, frame, request, response)
            return encode(response, version, correlation_id)
        if response is None:
            return None
        pending = response if isinstance(response, Pending) else self._carry_out(response)
        if pending is response and key == PRODUCE_KEY:
            produce_fast_path.learn(self._produce, context, frame, position, request, None)
        pending.change(partial(_encoded, encode, version, correlation_id))
        return pending

    async def drain(self) -> None:
        """Waits until the tasks of all coroutines are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _carry_out(self, work: Awaitable[Any]) -> Pending:
        """The answer of a handler's future, or of its coroutine, which a disconnect of the client does not cancel."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Pending.of(task, None if task is work else ignore)

    def _route(self, key: int, version: int) -> tuple[Decode, Handler, type[Any]] | None:
        api = SERVED.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        handler = self._handler_of(api.name)
        if self._access is not None:
            from kafkalite.api.permissions import guarded

            handler = guarded(api, handler)
        route = decoder(api.request, version), handler, api.response
        self._routes[(key, version)] = route
        return route


def _encoded(encode: Encode, version: int, correlation_id: int, response: Any) -> list[Part] | None:
    return None if response is None else encode(response, version, correlation_id)
