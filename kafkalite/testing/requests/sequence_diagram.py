"""Recorded requests as a sequence diagram: a column for each client and one for the broker, time from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from kafkalite.common.text import printable
from kafkalite.testing.requests.recorded_request import RecordedRequest

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


def text(requests: Sequence[RecordedRequest]) -> str:
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


def html(requests: Sequence[RecordedRequest]) -> str:
    """A page that needs nothing else. What was asked and answered opens at a click."""
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
