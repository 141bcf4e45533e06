"""A schema registry with Confluent's addresses, over HTTP, which remembers its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Registry:
    """Schemas by id, and versions by subject. `asked` has the paths; one that `is_away` refuses all of them."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.is_away = False
        self._by_id: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._serialized: dict[int, str] = {}

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[Mapping[str, Any]] | None = None,
        serialized: str | None = None,
    ) -> int:
        """The id of a new schema; `serialized` is its form with format=serialized."""
        schema_id = len(self._by_id) + 1
        self._by_id[schema_id] = {"schema": schema, "references": references or []}
        if kind != "AVRO":  # which Confluent's leaves out
            self._by_id[schema_id]["schemaType"] = kind
        if serialized is not None:
            self._serialized[schema_id] = serialized
        self._subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def answer(self, target: str) -> tuple[int, Any]:
        """The status and the JSON for a path."""
        self.asked.append(target)
        parts = urlsplit(target)
        is_serialized = parse_qs(parts.query).get("format") == ["serialized"]
        if self.is_away:
            return 503, {"error_code": 50301, "message": "away"}
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        if words == ["subjects"]:
            return 200, list(self._subjects)
        if words[:2] == ["schemas", "ids"]:
            schema_id = int(words[2])
            if schema_id not in self._by_id:
                return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
            return 200, self._schema(schema_id, is_serialized)
        ids = self._subjects.get(words[1])
        if ids is None:
            return 404, {"error_code": 40401, "message": "Subject not found."}
        if len(words) == 3:
            return 200, list(range(1, len(ids) + 1))
        version = len(ids) if words[3] == "latest" else int(words[3])
        found = self._schema(ids[version - 1], is_serialized)
        return 200, {"subject": words[1], "version": version, "id": ids[version - 1], **found}

    def _schema(self, schema_id: int, is_serialized: bool) -> dict[str, Any]:
        found = dict(self._by_id[schema_id])
        if is_serialized and schema_id in self._serialized:
            found["schema"] = self._serialized[schema_id]
        return found


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """A registry on a free port."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.logins.append(self.headers.get("Authorization"))
            status, answer = registry.answer(self.path)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
