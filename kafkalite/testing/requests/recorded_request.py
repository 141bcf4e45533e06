"""One request of a client and its answer, as they were on the wire, decoded on demand, and traces of them.

A trace is a file of JSON lines, a head and then one for each request, with the frames in base64. `ended`, `took_ms`,
`response` and `left_out` are there when they are known. `api` is for readers only.

    {"trace": "kafkalite", "version": 1}
    {"began": 0, "ms": 1700000000000, "client": "127.0.0.1:5012", "api": "Produce v12", "request": "...", ...}
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable, read_json
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import RequestHeader, decode_request_header, decode_response
from kafkalite.testing.records.stored_record import check_text

_NO_HEADER = RequestHeader(-1, -1, -1, None)
_TOPIC_FIELDS = ("topic", "topic_name")


@dataclass(slots=True)
class Frames:
    """The frames of one request. Requests and answers are numbered together, in the order in which they passed.

    `wall_ms` is the broker's time, `took_ms` real time; that and `ended` are None while there is no answer. `response`
    is None also if none is due; `left_out` is the size of one that was too long to be kept. Frames have no size prefix.
    """

    began: int
    wall_ms: int
    client: str
    request: bytes
    ended: int | None = None
    took_ms: float | None = None
    response: bytes | None = None
    left_out: int = 0


class RecordedRequest:
    """One request and its answer. `client` is the host:port of the connection."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @property
    def client(self) -> str:
        return self.frames.client

    @property
    def took_ms(self) -> float | None:
        """Real time until the answer was sent; None while there is none."""
        return self.frames.took_ms

    @cached_property
    def _header(self) -> tuple[RequestHeader, int]:
        try:
            return decode_request_header(memoryview(self.frames.request))
        except Malformed:
            return _NO_HEADER, 0

    @property
    def time(self) -> datetime:
        """The time of its arrival by the broker's clock, in UTC."""
        return datetime.fromtimestamp(self.frames.wall_ms / 1000, UTC)

    @property
    def api(self) -> str:
        """Kafka's name of the API, such as "Produce"."""
        key = self._header[0].api_key
        return SERVED[key].name if key in SERVED else f"API {key}" if key >= 0 else "no request"

    @property
    def version(self) -> int:
        return self._header[0].api_version

    @property
    def client_id(self) -> str | None:
        return self._header[0].client_id

    @property
    def correlation_id(self) -> int:
        return self._header[0].correlation_id

    @cached_property
    def request(self) -> Message | None:
        """The decoded request; None if it is malformed, or of an unknown version."""
        header, position = self._header
        api = SERVED.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            return None
        try:
            request: Message = decode(api.request, header.api_version, memoryview(self.frames.request), position)[0]
        except Malformed:
            return None
        return request

    @cached_property
    def response(self) -> Message | None:
        """The answer; None if there is none (yet), or it was too long to be kept."""
        header = self._header[0]
        api = SERVED.get(header.api_key)
        if self.frames.response is None or api is None:
            return None
        try:
            answer: Message = decode_response(api, header.api_version, memoryview(self.frames.response))[1]
        except Malformed:  # ApiVersions of an unknown version is answered in version 0; or a test has spoiled it
            return None
        return answer

    @property
    def errors(self) -> list[str]:
        """Kafka's names of the errors in the answer, each once."""
        response = self.response
        codes = [] if response is None else [code for name, code in fields_of(response) if name.endswith("error_code")]
        return [_error_name(code) for code in dict.fromkeys(codes) if code != ErrorCode.NONE]

    @property
    def topics(self) -> list[str]:
        """The topics that the request names, each once."""
        request = self.request
        found = [] if request is None else list(_topic_names(request))
        return list(dict.fromkeys(found))

    def __repr__(self) -> str:
        about = f" of {', '.join(self.topics)}" if self.topics else ""
        return f"{self.api} v{self.version}{about} from {self.client_id!r} at {self.client}: {self.outcome}"

    @property
    def outcome(self) -> str:
        """A short text about its answer."""
        if self.took_ms is None:
            return "no answer"
        if self.frames.response is None and not self.frames.left_out:
            return "no answer is due"
        return f"{', '.join(self.errors) or 'ok'} after {self.took_ms:.1f} ms"


def fields_of(message: Message) -> Iterator[tuple[str, Any]]:
    """The name and value of each field that is no struct, in the order of the wire; also those of nested structs."""
    for name in message.__fields__:
        value = getattr(message, name)
        if isinstance(value, Message):
            yield from fields_of(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    yield from fields_of(each)
                else:
                    yield name, each
        else:
            yield name, value


def _topic_names(message: Message) -> Iterator[str]:
    """The names of topics: in fields `topic`, or in the `name` of a struct in a list of topics."""
    for name in message.__fields__:
        value = getattr(message, name)
        if name in _TOPIC_FIELDS and isinstance(value, str) and value:
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Message):
                own = getattr(each, "name", None)
                if "topic" in name and isinstance(own, str) and own:
                    yield own
                yield from _topic_names(each)
            elif "topic" in name and isinstance(each, str) and isinstance(value, list):
                yield each


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


_OF_LOGINS = ("SaslHandshake", "SaslAuthenticate")
"""APIs that the authenticator of a connection answers, before any interceptor."""

_APIS = {api.name.casefold(): api.name for api in SERVED.values()}


def api_name(given: str) -> str:
    """Kafka's name of an API from any of its spellings: "InitProducerId", "INIT_PRODUCER_ID". Raises ValueError,
    also for those of logins, TypeError if it is no text."""
    check_text("api", given)
    spelt = given.replace("_", "").casefold()
    if spelt not in _APIS:
        raise ValueError(f"no API is named {given!r}{suggestions(spelt, _APIS, _APIS)}")
    name = _APIS[spelt]
    if name in _OF_LOGINS:
        raise ValueError(f"{name} belongs to a login, and logins are neither recorded nor spoiled")
    return name


def suggestions(name: str, names: Iterable[str], shown: dict[str, str] | None = None) -> str:
    """A few similar names, as the end of a message; empty if there is none. `shown` has other spellings."""
    near = [one if shown is None else shown[one] for one in get_close_matches(name, list(names), 3, 0.5)]
    return f"; similar: {', '.join(near)}" if near else ""


_HEAD = {"trace": "kafkalite", "version": 1}


def write_trace(path: Path, requests: Sequence[Frames]) -> None:
    """Raises OSError."""
    with open(path, "w", encoding="utf-8") as file:
        for line in (_HEAD, *map(_line, requests)):
            file.write(json.dumps(line) + "\n")


def read_trace(path: Path) -> list[Frames]:
    """Raises OSError, ValueError if it is no trace."""
    with open(path, encoding="utf-8") as file:
        try:
            if read_json(file.readline()) != _HEAD:
                raise ValueError("its first line is not that of a trace")
            return [_frames(read_json(line)) for line in file]
        except (ValueError, KeyError, TypeError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is no trace of requests: {why}") from None


def _line(frames: Frames) -> dict[str, Any]:
    recorded = RecordedRequest(frames)
    line: dict[str, Any] = {
        "began": frames.began,
        "ms": frames.wall_ms,
        "client": frames.client,
        "api": f"{recorded.api} v{recorded.version}",
        "request": b64encode(frames.request).decode(),
    }
    if frames.ended is not None:
        line |= {"ended": frames.ended, "took_ms": frames.took_ms}
    if frames.response is not None:
        line["response"] = b64encode(frames.response).decode()
    if frames.left_out:
        line["left_out"] = frames.left_out
    return line


def _frames(line: Any) -> Frames:
    if not isinstance(line, dict):
        raise ValueError(f"a request is an object, not {line!r}"[:200])
    response = line.get("response")
    return Frames(
        int(line["began"]), int(line["ms"]), str(line["client"]), b64decode(line["request"], validate=True),
        line.get("ended"), line.get("took_ms"), None if response is None else b64decode(response, validate=True),
        int(line.get("left_out", 0)),
    )  # fmt: skip


_COLUMN = 28
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Requests</title>
<style>
:root { color-scheme: light dark; }
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; }
table { border-collapse: collapse; }
th { position: sticky; top: 0; background: Canvas; text-align: left; }
th, td { padding: .15em .8em; border-bottom: 1px solid color-mix(in srgb, CanvasText 15%%, transparent); }
td { vertical-align: top; white-space: nowrap; }
.error { color: #c62828; font-weight: 600; }
pre { margin: .3em 0; white-space: pre-wrap; max-width: 90ch; }
</style>
</head>
<body>
<table>
<thead><tr><th>time</th>%s<th>broker</th></tr></thead>
<tbody>
%s
</tbody>
</table>
</body>
</html>
"""


class _Event(NamedTuple):
    """An arrow between a client and the broker. `pair` is the number of the request."""

    order: int
    column: int
    is_request: bool
    pair: int
    recorded: RecordedRequest


def diagram_text(requests: Sequence[RecordedRequest]) -> str:
    """One line for each arrow: `->` a request, `<-` its answer, with the number of the request where others came in
    between."""
    clients = _clients(requests)
    lines = ["  ".join([f"{'ms':>9}", *(f"{name:<{_COLUMN}}" for name in clients.values()), "broker"]).rstrip()]
    began_ms = requests[0].frames.wall_ms if requests else 0
    for event in _events(requests, list(clients)):
        each = event.recorded
        at_ms = each.frames.wall_ms - began_ms + (0 if event.is_request else each.took_ms or 0)
        lead = "  ".join([f"{at_ms:>9.1f}", *[f"{'|':<{_COLUMN}}"] * event.column])
        shaft = "-" * (_COLUMN + (len(clients) - event.column - 1) * (_COLUMN + 2))
        arrow = f"|{shaft}>" if event.is_request else f"|<{shaft}"
        lines.append(f"{lead}  {arrow} {event.pair} {_label(event)}")
    return "\n".join(lines)


def diagram_html(requests: Sequence[RecordedRequest]) -> str:
    """A self-contained HTML page. A click opens the fields of a request and its answer."""
    clients = _clients(requests)
    rows = []
    began_ms = requests[0].frames.wall_ms if requests else 0
    for event in _events(requests, list(clients)):
        each = event.recorded
        at_ms = each.frames.wall_ms - began_ms + (0 if event.is_request else each.took_ms or 0)
        cells = [f"<td>{at_ms:.1f} ms</td>"]
        for column in range(len(clients)):
            cells.append(f"<td>{('&rarr;' if event.is_request else '&larr;') if column == event.column else ''}</td>")
        kind = ' class="error"' if not event.is_request and each.errors else ""
        message = escape(repr(each.request if event.is_request else each.response))
        detail = f"<details><summary>{event.pair} {escape(_label(event))}</summary><pre>{message}</pre></details>"
        rows.append(f"<tr>{''.join(cells)}<td{kind}>{detail}</td></tr>")
    return _PAGE % ("".join(f"<th>{escape(name)}</th>" for name in clients.values()), "\n".join(rows))


def _clients(requests: Sequence[RecordedRequest]) -> dict[str, str]:
    """Each connection, in the order of the first requests, and the heading of its column."""
    names: dict[str, str] = {}
    for each in requests:
        name = printable(f"{each.client_id or 'client'} {each.client.rpartition(':')[2]}")
        if len(name) > _COLUMN:
            name = f"{name[: _COLUMN - 9]}..{name[-7:]}"
        names.setdefault(each.client, name)
    return names


def _events(requests: Sequence[RecordedRequest], clients: list[str]) -> list[_Event]:
    events = []
    for number, each in enumerate(requests, 1):
        column = clients.index(each.client)
        events.append(_Event(each.frames.began, column, True, number, each))
        if each.frames.ended is not None and (each.frames.response is not None or each.frames.left_out):
            events.append(_Event(each.frames.ended, column, False, number, each))
    return sorted(events, key=lambda event: event.order)


def _label(event: _Event) -> str:
    each = event.recorded
    if not event.is_request:
        return ", ".join(each.errors) or "ok"
    return printable(f"{each.api} v{each.version}" + (f" {', '.join(each.topics)}" if each.topics else ""))
