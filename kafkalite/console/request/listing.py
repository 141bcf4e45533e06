"""Lists: filtered, sorted and cut into pages here, so that a browser never holds more than a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkalite.console.request.errors import invalid
from kafkalite.console.request.parameters import Parameter

PAGE_SIZE_MAX = 500

Row = dict[str, Any]

LIST_PARAMETERS = (
    Parameter("q", text_max=500, doc="only rows whose names contain this, ignoring case"),
    Parameter("sort", text_max=50, doc="a field; with - before it the largest come first"),
    Parameter("page", "integer", 1, at_least=1, at_most=1_000_000),
    Parameter("page_size", "integer", 50, at_least=1, at_most=PAGE_SIZE_MAX),
)


def paged(rows: Iterable[Row], query: Mapping[str, Any], *, sortable: Sequence[str], searched: Sequence[str]) -> Row:
    """A page. Rows without a value of the field come last, whatever the direction."""
    found = list(rows)
    if word := (query["q"] or "").casefold():
        found = [row for row in found if any(word in str(row.get(name) or "").casefold() for name in searched)]
    sort = query["sort"] or sortable[0]
    name = sort.removeprefix("-")
    if name not in sortable:
        raise invalid(f"sort={sort!r}: must be one of {', '.join(sortable)}, perhaps with - before it")
    known = [row for row in found if row.get(name) is not None]
    known.sort(key=lambda row: _key(row[name]), reverse=sort.startswith("-"))
    found = known + [row for row in found if row.get(name) is None]
    page, size = query["page"], query["page_size"]
    return {
        "items": found[(page - 1) * size : page * size],
        "total": len(found),
        "page": page,
        "page_size": size,
    }


def _key(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value
