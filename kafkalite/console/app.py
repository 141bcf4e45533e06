"""The console as an ASGI application: sessions and the table of routes in front, pages behind.

A handler waits for brokers, so it runs in a thread; only the pages, the sessions and the checks of a request are done
on the loop.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from kafkalite.client.blocking_client import Unanswered
from kafkalite.common.errors import ConfigError
from kafkalite.common.text import read_json
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.brokers.history import History
from kafkalite.console.calls.route import Call, Download, Event, Route
from kafkalite.console.calls.sessions import COOKIE, SEARCHES_MAX, SEARCHES_PER_SESSION_MAX, Session, Sessions
from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.guard import Guard
from kafkalite.console.login import Login
from kafkalite.console.openapi import document
from kafkalite.console.pages import Pages
from kafkalite.console.request.errors import ApiError, invalid, of_client, read_only, too_many
from kafkalite.console.request.parameters import read_body, read_query
from kafkalite.console.routes import ROUTES
from kafkalite.console.streams import content, events, first_of

logger = logging.getLogger("kafkalite.console")

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Console:
    """The parts of one console. `may_write`: changes are allowed."""

    sessions: Sessions
    history: History
    login: Login
    may_write: bool
    version: str
    names: tuple[str, ...] = ()
    pages: Pages = field(default_factory=Pages)
    decoders: DecoderPool = field(default_factory=DecoderPool)

    def application(self) -> Guard:
        openapi = document(ROUTES, self.version)

        async def describe(request: Request) -> Response:
            return JSONResponse(openapi)

        routes = [
            StarletteRoute("/api/openapi.json", describe, methods=["GET"]),
            StarletteRoute("/api/session", self._guarded(self.login.session), methods=["GET"]),
            StarletteRoute("/api/login", self._guarded(self.login.log_in), methods=["POST"]),
            StarletteRoute("/api/logout", self._guarded(self.login.log_out), methods=["POST"]),
            *(
                StarletteRoute(_path(route), self._guarded(self._endpoint(route)), methods=[route.method])
                for route in ROUTES
            ),
            StarletteRoute("/api/{rest:path}", _nothing, methods=["GET", "POST", "PATCH", "DELETE", "PUT"]),
            StarletteRoute("/static/{path:path}", self.pages.file, methods=["GET"]),
            StarletteRoute("/{path:path}", self.pages.index, methods=["GET"]),
        ]
        handlers: Any = {HTTPException: _http_error, Exception: _own_fault}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self.names)

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """The same, whose faults become answers."""

        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except ApiError as fault:
                return JSONResponse(fault.body(), fault.status)
            except (Unanswered, ConfigError) as fault:
                error = of_client(fault)
                return JSONResponse(error.body(), error.status)
            except ClientDisconnect:
                return PlainTextResponse("", 400)

        return guarded

    def _endpoint(self, route: Route) -> Endpoint:
        async def answer(request: Request) -> Response:
            session = self._session(request)
            if route.is_change:
                self.check_change(request, session)
            body = await _json_body(request) if route.is_change else {}
            pool = session.pool
            if pool is None:
                raise ApiError(401, "LOGIN_REQUIRED", "log in first: the brokers want SASL")
            path = _path_values(route, request)
            query = read_query(route.parameters, _query(request))
            fields = read_body(route.parameters, body)

            def call(cluster: Any) -> Any:
                return route.handler(Call(path, query, fields, session, cluster, pool, self.history, self.decoders))

            if route.streams:
                return await self._events(session, pool, call)
            found = await first_of(pool, call, fresh=route.is_change)
            if isinstance(found.value, Download):
                return _download(found.value, content(found))
            await found.close()
            return JSONResponse(found.value)

        return answer

    async def _events(self, session: Session, pool: BrokerPool, call: Callable[[Any], Any]) -> Response:
        if session.searches >= SEARCHES_PER_SESSION_MAX or self.sessions.searches >= SEARCHES_MAX:
            raise too_many(f"{SEARCHES_PER_SESSION_MAX} searches of a session may run at once; stop one of them")
        session.searches += 1

        def done() -> None:
            session.searches -= 1

        try:
            opened = await first_of(pool, call)
        except BaseException:
            done()
            raise
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_encoded(events(opened), done), media_type="text/event-stream", headers=headers)

    def _session(self, request: Request) -> Session:
        """The session of the cookie; a program without one may read what everybody may."""
        found = self.sessions.find(request.cookies.get(COOKIE))
        return found or Session("", "", self.sessions.shared)

    def check_change(self, request: Request, session: Session) -> None:
        """Raises ApiError unless it is allowed, and no page of another site has sent it."""
        if not self.may_write:
            raise read_only()
        self.login.check_token(request, session)


def _path(route: Route) -> str:
    path = route.path
    for one in route.parameters:
        if one.where == "path" and one.kind == "integer":
            path = path.replace("{" + one.name + "}", "{" + one.name + ":int}")
    return path


def _path_values(route: Route, request: Request) -> dict[str, Any]:
    given = request.path_params
    return {one.name: one.of_json(given[one.name]) for one in route.parameters if one.where == "path"}


def _query(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise invalid(f"the parameter {name[:40]!r} is given twice")
        found[name] = value
    return found


async def _json_body(request: Request) -> Any:
    body = await request.body()
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise invalid("a change is JSON, with Content-Type: application/json")
    try:
        return read_json(body, strict=True)
    except ValueError:
        raise invalid("the body is no JSON") from None


async def _encoded(portions: AsyncIterator[list[Event]], done: Callable[[], None]) -> AsyncIterator[bytes]:
    try:
        async for some in portions:
            text = "".join(f"event: {one.name}\ndata: {json.dumps(one.data)}\n\n" for one in some)
            yield text.encode()
    finally:
        done()


def _download(found: Download, pieces: AsyncIterator[bytes]) -> Response:
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in found.name)
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return StreamingResponse(pieces, media_type=found.media_type, headers=headers)


async def _nothing(request: Request) -> Response:
    return JSONResponse({"error": "NOT_FOUND", "message": "there is no such address; see /api/openapi.json"}, 404)


async def _http_error(request: Request, fault: Exception) -> Response:
    status = fault.status_code if isinstance(fault, HTTPException) else 500
    name = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(status, "INVALID_REQUEST")
    headers = fault.headers if isinstance(fault, HTTPException) else None
    return JSONResponse({"error": name, "message": str(getattr(fault, "detail", ""))}, status, headers)


async def _own_fault(request: Request, fault: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=fault)
    return JSONResponse({"error": "INTERNAL", "message": "the console has a fault; see its log"}, 500)
