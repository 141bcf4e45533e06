"""The console as an ASGI application: the guard, sessions, the table of routes, and the files of the pages.

A handler waits for brokers, so it runs in a thread; only the pages, the sessions and the checks of a request run on the
loop.

The guard checks every request first: the name in Host, the size of the body; and adds headers to every response. A page
of another site cannot read anything here: browsers send the cookie only to this site (SameSite=Strict), an unknown name
in Host is refused (DNS rebinding), and pages load nothing from elsewhere (the content security policy). Pages are files
of the package, with entity tags; an address that is neither a file nor of the API gets index.html.
"""

from __future__ import annotations

import gzip
import hashlib
import ipaddress
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from kafkalite.client.history import History
from kafkalite.common.heap import trim_memory
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.brokers.mirrors import Mirrors
from kafkalite.console.calls.route import (
    COOKIE,
    SEARCHES_MAX,
    SEARCHES_PER_SESSION_MAX,
    Call,
    Download,
    Event,
    Route,
    Session,
    Sessions,
)
from kafkalite.console.decoders.registry import SchemaRegistry
from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.login import BACK_PATH, SIGN_ON_PATH, Login
from kafkalite.console.request import parameters
from kafkalite.console.routes import ROUTES, document
from kafkalite.console.streams import Opened, content, events, first_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("kafkalite.console")


Endpoint = Callable[[Request], Awaitable[Response]]


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
            raise parameters.invalid(f"the parameter {name[:40]!r} is given twice")
        found[name] = value
    return found


async def _json_body(request: Request) -> Any:
    body = await request.body()
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise parameters.invalid("a change is JSON, with Content-Type: application/json")
    try:
        return read_json(body, strict=True)
    except ValueError:
        raise parameters.invalid("the body is no JSON") from None


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


BODY_BYTES_MAX = 24 << 20
_TARGET_BYTES_MAX = 80 << 10
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """`names`: hosts that this console accepts besides addresses and localhost."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in (*_LOCAL_NAMES, *names) if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._is_our_name(headers.get(b"host", b"").decode("latin-1")):
            await _refuse(send, 421, "WRONG_HOST", "this console is not known by that name; see console.listener")
            return
        size = headers.get(b"content-length", b"0")
        is_too_large = not size.isdigit() or int(size[:12]) > BODY_BYTES_MAX
        if is_too_large or len(scope["query_string"]) + len(scope["path"]) > _TARGET_BYTES_MAX:
            await _refuse(send, 413, "TOO_LARGE", f"a request may have {BODY_BYTES_MAX >> 20} MiB")
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, _bounded(receive), with_headers)

    def _is_our_name(self, host: str) -> bool:
        """Whether the host is accepted. Addresses always are: only a name can be rebound by DNS."""
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


def _bounded(receive: Receive) -> Receive:
    """Limits the body of a request without a length: a longer one ends the connection."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        return {"type": "http.disconnect"} if received > BODY_BYTES_MAX else message

    return bounded


async def _refuse(send: Send, status: int, name: str, text: str) -> None:
    body = json.dumps({"error": name, "message": text}).encode()
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
_KEPT = "no-cache"  # cached, and revalidated by its entity tag, so a new release takes effect at once
_DEPTH_MAX = 5
INDEX = "index.html"


class Page(NamedTuple):
    content: bytes
    compressed: bytes
    media_type: str
    tag: str


class Pages:
    """All files below console/static, read once. `base` is the path in front of addresses in index.html; modules refer
    to each other by relative paths, and have it from there. Files are compressed for browsers that take it."""

    def __init__(self, base: str = "") -> None:
        self._files: dict[str, Page] = {}
        self._base = base.encode()
        self._read(resources.files("kafkalite.console") / "static", "", 0)

    def _read(self, folder: Traversable, prefix: str, depth: int) -> None:
        if depth > _DEPTH_MAX or not folder.is_dir():
            return
        for one in folder.iterdir():
            if one.is_dir():
                self._read(one, f"{prefix}{one.name}/", depth + 1)
            elif (media_type := _TYPES.get("." + one.name.rpartition(".")[2])) is not None:
                content = one.read_bytes()
                if prefix + one.name == INDEX:
                    content = content.replace(b'<html lang="en"', b'<html lang="en" data-base="%s"' % self._base)
                    content = re.sub(rb'(href|src)="/', rb'\1="%s/' % self._base, content)
                tag = hashlib.sha256(content).hexdigest()[:24]
                self._files[prefix + one.name] = Page(content, gzip.compress(content, 9, mtime=0), media_type, tag)

    async def file(self, request: Request) -> Response:
        """/static/PATH."""
        return self._answer(request, self._files.get(request.path_params["path"]))

    async def index(self, request: Request) -> Response:
        """index.html, for every address of a page."""
        return self._answer(request, self._files.get(INDEX))

    def _answer(self, request: Request, page: Page | None) -> Response:
        if page is None:
            return PlainTextResponse("there is no such page", 404)
        is_compressed = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{page.tag}{"-gzip" if is_compressed else ""}"'
        headers = {"etag": tag, "cache-control": _KEPT, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if is_compressed:
            headers["content-encoding"] = "gzip"
        content = page.compressed if is_compressed else page.content
        return Response(content, media_type=page.media_type, headers=headers)


@dataclass(slots=True)
class Console:
    """The parts of one console. `may_write`: changes are allowed."""

    sessions: Sessions
    history: History
    login: Login
    may_write: bool
    version: str
    names: tuple[str, ...] = ()
    registry: SchemaRegistry | None = None
    mirrors: Mirrors | None = None
    base: str = ""
    decoders: DecoderPool = field(default_factory=DecoderPool)
    _streams: set[Opened | None] = field(default_factory=set)

    def application(self) -> Guard:
        openapi = document(ROUTES, self.version)
        pages = Pages(self.base)

        async def describe(request: Request) -> Response:
            return JSONResponse(openapi)

        routes = [
            StarletteRoute("/api/openapi.json", describe, methods=["GET"]),
            StarletteRoute("/api/session", self._guarded(self.login.session), methods=["GET"]),
            StarletteRoute("/api/login", self._guarded(self.login.log_in), methods=["POST"]),
            *self._sign_on_routes(),
            StarletteRoute("/api/logout", self._guarded(self.login.log_out), methods=["POST"]),
            *(
                StarletteRoute(_path(route), self._guarded(self._endpoint(route)), methods=[route.method])
                for route in ROUTES
            ),
            StarletteRoute("/api/{rest:path}", _nothing, methods=["GET", "POST", "PATCH", "DELETE", "PUT"]),
            StarletteRoute("/static/{path:path}", pages.file, methods=["GET"]),
            StarletteRoute("/{path:path}", pages.index, methods=["GET"]),
        ]
        handlers: Any = {HTTPException: _http_error, Exception: _own_fault}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self.names)

    def _sign_on_routes(self) -> list[StarletteRoute]:
        if self.login.sign_on is None:
            return []
        return [
            StarletteRoute(SIGN_ON_PATH, self._guarded(self.login.to_provider), methods=["GET"]),
            StarletteRoute(BACK_PATH, self._guarded(self.login.from_provider), methods=["GET"]),
        ]

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint, with its errors turned into responses."""

        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except parameters.ApiError as fault:
                return JSONResponse(fault.body(), fault.status)
            except parameters.CLIENT_FAULTS as fault:
                error = parameters.of_client(fault)
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
                raise parameters.ApiError(401, "LOGIN_REQUIRED", "log in first: the brokers require SASL")
            path = _path_values(route, request)
            query = parameters.read_query(route.parameters, _query(request))
            fields = parameters.read_body(route.parameters, body)

            def call(cluster: Any) -> Any:
                parts = session, cluster, pool, self.history, self.decoders, self.registry, self.mirrors
                return route.handler(Call(path, query, fields, *parts))

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
            raise parameters.too_many(
                f"{SEARCHES_PER_SESSION_MAX} searches of a session may run at once; stop one of them"
            )
        session.searches += 1

        opened: Opened | None = None

        def done() -> None:
            session.searches -= 1
            self._streams.discard(opened)
            trim_memory()

        try:
            opened = await first_of(pool, call)
        except BaseException:
            done()
            raise
        self._streams.add(opened)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_encoded(events(opened), done), media_type="text/event-stream", headers=headers)

    def end_streams(self) -> None:
        """Ends all searches, from any thread."""
        for opened in list(self._streams):
            if opened is not None:
                opened.end()

    def _session(self, request: Request) -> Session:
        """The session of the cookie; a program without one gets the shared session, for reads."""
        found = self.sessions.find(request.cookies.get(COOKIE))
        return found or Session("", "", self.sessions.shared)

    def check_change(self, request: Request, session: Session) -> None:
        """Raises ApiError unless changes are allowed, and the request is not from a page of another site."""
        if not self.may_write:
            raise parameters.read_only()
        self.login.check_token(request, session)
