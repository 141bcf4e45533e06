"""Parameters of queries and fields of bodies: one declaration checks them and describes them in the OpenAPI document.

Also the errors that refuse a request (a status, a name for programs, a sentence for people), and lists, which are
filtered, sorted and paged here, so that a browser never has more than a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalite.client.cluster_client import WriteFailed
from kafkalite.client.group_admin import NotReset
from kafkalite.common.errors import ConfigError, Refused, Unanswered
from kafkalite.common.text import printable

CLIENT_FAULTS = (Unanswered, WriteFailed, ConfigError)
"""Exceptions that `of_client` turns into a response."""
WRITE_SETTING = "console.write=true (--write)"


class ApiError(Exception):
    """A refused request; its response is {"error": name, "message": message}."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message

    def body(self) -> dict[str, str]:
        return {"error": self.name, "message": printable(self.message)}


def invalid(message: str) -> ApiError:
    return ApiError(400, "INVALID_REQUEST", message)


def not_found(message: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", message)


def refused(message: str) -> ApiError:
    """A refusal by a broker, with its message."""
    return ApiError(409, "REFUSED", message)


def too_many(message: str) -> ApiError:
    return ApiError(429, "TOO_MANY", message)


def read_only() -> ApiError:
    return ApiError(403, "READ_ONLY", f"this console changes nothing; start it with {WRITE_SETTING}")


def of_client(fault: Unanswered | WriteFailed | ConfigError) -> ApiError:
    """The error of a client of brokers: something does not exist, a missing permission, or an unreachable broker."""
    text = str(fault)
    if isinstance(fault, ConfigError):
        return not_found(text)
    if isinstance(fault, NotReset):
        return refused(text)
    if "AUTHORIZATION_FAILED" in text:
        return ApiError(403, "NOT_PERMITTED", f"the access control lists do not allow it: {text}")
    if isinstance(fault, (WriteFailed, Refused)):
        return refused(text)
    return ApiError(502, "UNREACHABLE", text)


OFFSET_MAX = (1 << 63) - 1
_TEXT_MAX = 32 << 10
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Parameter:
    """`kind`: string, integer, boolean, object, array. A required one has no default. `items` is the kind of what an
    array contains. In a query an array is its items with commas between them, and an empty text means no value unless
    it `may_be_empty`. `where`: query, path or body.
    """

    name: str
    kind: str = "string"
    default: Any = None
    required: bool = False
    at_least: int | None = None
    at_most: int | None = None
    one_of: tuple[str, ...] = ()
    items: str = "string"
    where: str = "query"
    text_max: int = _TEXT_MAX
    may_be_empty: bool = False
    doc: str = ""

    def of_text(self, text: str) -> Any:
        """The value of a query's text. Raises ApiError."""
        if self.kind == "array":
            words = [word.strip() for word in text.split(",") if word.strip()]
            return [self._item(_number(word) if self.items == "integer" else word) for word in words]
        if self.kind == "integer":
            return self.of_json(_number(text))
        if self.kind == "boolean":
            if text.lower() not in _TRUE + _FALSE:
                raise self._wrong(text, "must be true or false")
            return text.lower() in _TRUE
        return self.of_json(text)

    def of_json(self, value: Any) -> Any:
        """The value of a body's field. Raises ApiError."""
        if value is None and not self.required:
            return self.default
        kinds: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
        if type(value) is float and value.is_integer() and self.kind == "integer":
            value = int(value)
        if type(value) not in (kinds[self.kind],):
            raise self._wrong(value, f"must be of the type {self.kind}")
        if self.kind == "array":
            return [self._item(one) for one in value]
        if self.kind == "string" and len(value) > self.text_max:
            raise self._wrong(value, f"has more than {self.text_max} characters")
        if self.kind == "string":
            _check_text(self.name, value)
        if self.one_of and value not in self.one_of:
            raise self._wrong(value, f"must be one of {', '.join(self.one_of)}")
        if self.kind == "integer":
            self._check_bounds(value)
        return value

    def _item(self, value: Any) -> Any:
        kinds: Mapping[str, type] = {"string": str, "integer": int, "object": dict}
        if type(value) not in (kinds[self.items],):
            raise self._wrong(value, f"must contain values of the type {self.items}")
        if self.items == "integer":
            self._check_bounds(value)
        if self.items == "string":
            _check_text(self.name, value)
        return value

    def _check_bounds(self, value: int) -> None:
        low = -OFFSET_MAX - 1 if self.at_least is None else self.at_least
        high = OFFSET_MAX if self.at_most is None else self.at_most
        if not low <= value <= high:
            raise self._wrong(value, f"must be from {low} to {high}")

    def _wrong(self, value: object, why: str) -> Exception:
        return invalid(f"{self.name}={str(value)[:_SHOWN]!r} {why}")

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        found: dict[str, Any] = {"type": self.kind}
        bounds: dict[str, Any] = {}
        if self.at_least is not None:
            bounds["minimum"] = self.at_least
        if self.at_most is not None:
            bounds["maximum"] = self.at_most
        if self.kind == "array":
            found["items"] = {"type": self.items, **bounds}
        else:
            found.update(bounds)
        if self.one_of:
            found["enum"] = list(self.one_of)
        if self.default is not None:
            found["default"] = self.default
        if not self.required and self.where == "body":
            found["type"] = [self.kind, "null"]
            if self.one_of:
                found["enum"] = [*self.one_of, None]
        return found


def texts_of(settings: dict[str, Any] | None) -> dict[str, str]:
    """Settings of a body. Raises ApiError."""
    found = settings or {}
    if wrong := [name for name, value in found.items() if not isinstance(value, str)]:
        raise invalid(f"the value of {wrong[0][:80]!r} must be a string, as in server.properties")
    for text in (*found, *found.values()):
        if not text.isprintable():
            raise invalid(f"{text[:80]!r} has characters that no setting has")
    return found


def _number(text: str) -> int:
    word = text.strip()
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise invalid(f"{word[:_SHOWN]!r} must be a whole number")
    return int(word)


def _check_text(name: str, value: str) -> None:
    """Raises for lone surrogates, which JSON can contain and UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(f"{name} is not valid Unicode") from None


def read_query(declared: Sequence[Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of all declared parameters; others are refused, since a mistyped filter would match everything."""
    names = {one.name for one in declared if one.where == "query"}
    if unknown := sorted(set(given) - names):
        raise invalid(f"there is no parameter {unknown[0][:_SHOWN]!r} here; there are: {', '.join(sorted(names))}")
    found: dict[str, Any] = {}
    for one in declared:
        if one.where != "query":
            continue
        if one.name in given and (one.may_be_empty or given[one.name] != ""):
            found[one.name] = one.of_text(given[one.name])
        elif one.required:
            raise invalid(f"the parameter {one.name} is missing")
        else:
            found[one.name] = one.default
    return found


def read_body(declared: Sequence[Parameter], given: Any) -> dict[str, Any]:
    """The same for the fields of a body."""
    fields = [one for one in declared if one.where == "body"]
    if type(given) is not dict:
        raise invalid("the body must be a JSON object")
    if unknown := sorted(set(given) - {one.name for one in fields}):
        raise invalid(f"there is no field {unknown[0][:_SHOWN]!r} here")
    found: dict[str, Any] = {}
    for one in fields:
        if one.name not in given and one.required:
            raise invalid(f"the field {one.name} is missing")
        found[one.name] = one.of_json(given.get(one.name))
    return found


PAGE_SIZE_MAX = 500

Row = dict[str, Any]

LIST_PARAMETERS = (
    Parameter("q", text_max=500, doc="only rows whose names contain this, ignoring case"),
    Parameter("sort", text_max=50, doc="a field; with - before it in descending order"),
    Parameter("page", "integer", 1, at_least=1, at_most=1_000_000),
    Parameter("page_size", "integer", 50, at_least=1, at_most=PAGE_SIZE_MAX),
)


def paged(rows: Iterable[Row], query: Mapping[str, Any], *, sortable: Sequence[str], searched: Sequence[str]) -> Row:
    """A page. Rows without a value of the field come last in both directions."""
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
