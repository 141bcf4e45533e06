"""The pages: files of the package, with entity tags; every other address that is no file gets index.html."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

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
_KEPT = "no-cache"  # kept, and asked for by its entity tag: a new release is seen at once
_DEPTH_MAX = 5
INDEX = "index.html"


class Page(NamedTuple):
    content: bytes
    media_type: str
    tag: str


class Pages:
    """All files below console/static, read once."""

    def __init__(self) -> None:
        self._files: dict[str, Page] = {}
        self._read(resources.files("kafkalite.console") / "static", "", 0)

    def _read(self, folder: Traversable, prefix: str, depth: int) -> None:
        if depth > _DEPTH_MAX or not folder.is_dir():
            return
        for one in folder.iterdir():
            if one.is_dir():
                self._read(one, f"{prefix}{one.name}/", depth + 1)
            elif (media_type := _TYPES.get("." + one.name.rpartition(".")[2])) is not None:
                content = one.read_bytes()
                self._files[prefix + one.name] = Page(
                    content, media_type, f'"{hashlib.sha256(content).hexdigest()[:24]}"'
                )

    async def file(self, request: Request) -> Response:
        """/static/PATH."""
        return self._answer(request, self._files.get(request.path_params["path"]))

    async def index(self, request: Request) -> Response:
        """Every address of a page."""
        return self._answer(request, self._files.get(INDEX))

    def _answer(self, request: Request, page: Page | None) -> Response:
        if page is None:
            return PlainTextResponse("there is no such page", 404)
        headers = {"etag": page.tag, "cache-control": _KEPT}
        if request.headers.get("if-none-match") == page.tag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, media_type=page.media_type, headers=headers)
