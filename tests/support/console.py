"""A console in front of a broker, asked as a browser asks: with a cookie, and a token for each change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from kafkalite.console.clusters import ServedCluster
from kafkalite.console.server import ConsoleServer

Answer = tuple[int, Any]


class Browser:
    """A session of a console that may write, or may not."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.session: dict[str, Any] = {}
        self.renew()

    def renew(self) -> None:
        """Ask for the session again, as a page does after a login."""
        self.session = self.client.get("/api/session").json()

    def get(self, path: str, /, **query: Any) -> Any:
        """The JSON of an address that is there."""
        answer = self.client.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def refusal(self, path: str, /, **query: Any) -> tuple[int, str]:
        """The status and the name of an error."""
        answer = self.client.get(f"/api/{path}", params=query)
        return answer.status_code, answer.json()["error"]

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Answer:
        headers = {"X-CSRF-Token": self.session["csrf_token"]}
        answer = self.client.request(method, f"/api/{path}", json=dict(body or {}), headers=headers, params=query)
        return answer.status_code, answer.json()

    def reset(self, body: Mapping[str, Any]) -> Answer:
        """Resets the offsets of a group as its page does: the answer of the preview if that is refused, else of the
        reset."""
        status, preview = self.change("POST", "group/reset", body)
        if status != 200:
            return status, preview
        return self.change("POST", "group/reset", {**body, "preview": False, "preview_id": preview["preview_id"]})

    def search(self, topic: str, /, **query: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The records of a search, and its last event."""
        records = []
        for name, data in self.events(topic, **query):
            if name == "record":
                records.append(data)
            elif name in ("done", "error"):
                return records, data
        raise AssertionError("the search has no end")

    def events(self, topic: str, /, **query: Any) -> Iterator[tuple[str, Any]]:
        answer = self.client.get(f"/api/topics/{topic}/messages", params=query)
        assert answer.status_code == 200, answer.text
        for event in answer.text.split("\n\n"):
            if event:
                name, data = event.split("\n")
                yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@contextmanager
def console(
    bootstrap: str, *, may_write: bool = True, properties: Mapping[str, str] | None = None, mirrors: str | None = None
) -> Iterator[Browser]:
    """A console without sampling, on no port of its own that anybody asks."""
    cluster = ServedCluster(bootstrap, dict(properties or {}), may_write, mirrors=mirrors)
    server = ConsoleServer([cluster], "127.0.0.1", 0, version="test")
    try:
        with TestClient(server.application, base_url="http://127.0.0.1") as client:
            yield Browser(client)
    finally:
        server.close()
