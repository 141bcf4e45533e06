"""A search over the partitions of a topic: a scan with filters, as events with its progress.

Every search is bounded: records, bytes, time. Filters are on keys, values and headers; a regular expression has a time
limit for each value.
"""

from __future__ import annotations

import importlib
import json
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import END, LEADER_WAIT_S, TAIL, Limits, Round, Scan, Start
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.common.text import read_json
from kafkalite.console.calls.route import Event
from kafkalite.console.decoders.registry import NotEncoded
from kafkalite.console.messages.expressions import Expression
from kafkalite.console.messages.payload import Format, View, parse_json
from kafkalite.console.request.parameters import ApiError, invalid

CONTAINS, ANY_CASE, EQUALS, REGEX, JSON_PATH = MATCHES = ("contains", "contains_any_case", "equals", "regex", "json")
REGEX_S_MAX = 0.25
_TEXT_BYTES_MAX = 1 << 20
_EXACT_MAX = 10**15  # larger ones may be written as 1e+16
_NAME = r"([A-Za-z_][\w-]*)"
_STEP = re.compile(rf'\.\.{_NAME}|\.{_NAME}|\[(\d{{1,9}})\]|\["([^"]*)"\]|(\[\*\])')

_COMPARISON = re.compile(r"(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)
_ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}

_AT, _EACH, _ANYWHERE = "at", "each", "anywhere"


class _Step(NamedTuple):
    """A step of a path: _AT a name or an index; _EACH item of a list or value of an object, [*]; _ANYWHERE, to every
    field of a name at any depth, ..name."""

    kind: str
    place: str | int = ""


Test = Callable[[bytes], bool]
Filter = Callable[[ScannedRecord], bool]


def test_of(match: str, text: str, shown: Format, side: str) -> Test:
    """The test of a filter. Raises ApiError for an invalid pattern or path."""
    wanted = text.encode()
    if match == EQUALS:
        return lambda data: data == wanted
    if match == REGEX:
        return _regex(text, shown, side)
    if match == JSON_PATH:
        return _json_path(text, shown, side)
    if match == ANY_CASE:
        folded = text.casefold()
        return lambda data: folded in _decoded_text(shown, data).casefold()
    if shown.decode is not None:
        return lambda data: text in _decoded_text(shown, data)
    return lambda data: wanted in data


def _decoded_text(shown: Format, data: bytes) -> str:
    """The rendered text, for filters on it."""
    if shown.decode is None:
        return data[:_TEXT_BYTES_MAX].decode(errors="replace")
    try:
        return shown.decode(data)
    except NotEncoded:
        return data[:_TEXT_BYTES_MAX].decode(errors="replace")
    except ValueError:
        return ""


def _regex(pattern: str, shown: Format, side: str) -> Test:
    regex: Any = importlib.import_module("regex")  # unlike `re` it has a timeout
    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as fault:
        raise invalid(f"{side}: {pattern[:80]!r} is no regular expression: {fault}") from None

    def test(data: bytes) -> bool:
        try:
            return compiled.search(_decoded_text(shown, data), timeout=REGEX_S_MAX, concurrent=True) is not None
        except TimeoutError:
            limit = f"{REGEX_S_MAX:g} s for one value"
            raise ApiError(400, "TIMEOUT", f"{side}: the regular expression takes more than {limit}") from None

    return test


def _json_path(text: str, shown: Format, side: str) -> Test:
    steps, rest = _steps(text.strip(), side)
    found = _COMPARISON.match(rest)
    if found is None:
        raise invalid(f"{side}: {text[:80]!r} must be a path and a comparison, such as $.user.id=7 or $.total>=100")
    compare, wanted_text = found[1], found[2].strip()
    try:
        wanted = parse_json(wanted_text.encode())
    except ValueError:
        wanted = wanted_text  # a word without quotes stands for itself
    if compare in _ORDERS and type(wanted) not in (int, float):
        raise invalid(f"{side}: {compare} compares numbers, and {wanted_text[:80]!r} is none")
    needle = _part_of(wanted) if compare == "=" else ""

    def test(data: bytes) -> bool:
        try:
            try:
                text = None if shown.decode is None else shown.decode(data)
            except NotEncoded:
                text = None
            if text is None:
                value: Any = parse_json(data)
            elif needle not in text:  # 1 us instead of 7 for a record of six fields
                return False
            else:
                value = read_json(text)
        except ValueError:
            return False
        return any(holds(each) for each in _values_at(value, steps))

    def holds(value: Any) -> bool:
        if compare in _ORDERS:
            return type(value) in (int, float) and _ORDERS[compare](value, wanted)
        if compare == "~":
            return wanted_text in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        is_equal = bool(value == wanted and isinstance(value, bool) == isinstance(wanted, bool)) or value == wanted_text
        return is_equal == (compare == "=")

    return test


def _values_at(value: Any, steps: Sequence[_Step]) -> Iterator[Any]:
    """The values that a path leads to. There is at most one _ANYWHERE, so it visits each part of the value once."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step.kind == _AT:
        if not isinstance(value, dict | list):
            return
        place: Any = step.place
        try:
            found = value[place]
        except (LookupError, TypeError):
            return
        yield from _values_at(found, rest)
    elif step.kind == _EACH:
        for each in _children(value):
            yield from _values_at(each, rest)
    else:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict) and step.place in one:
                yield from _values_at(one[step.place], rest)
            waiting += _children(one)


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _part_of(wanted: Any) -> str:
    """A substring of every decoded text that contains this value; "" if none is known."""
    if isinstance(wanted, bool) or wanted is None:
        return json.dumps(wanted)
    if isinstance(wanted, int) and abs(wanted) < _EXACT_MAX:
        return str(wanted)  # also in the text of 7.0
    return wanted if isinstance(wanted, str) and json.dumps(wanted, ensure_ascii=False) == f'"{wanted}"' else ""


def _steps(text: str, side: str) -> tuple[list[_Step], str]:
    """The steps of the path that a text begins with, and the rest of the text. Raises ApiError."""
    steps: list[_Step] = []
    position = 1
    if not text.startswith("$"):
        raise invalid(f"{side}: a path begins with $, such as $.user.id=7")
    while (found := _STEP.match(text, position)) is not None:
        anywhere, name, index, quoted, _ = found.groups()
        if anywhere is not None:
            steps.append(_Step(_ANYWHERE, anywhere))
        elif index is not None:
            steps.append(_Step(_AT, int(index)))
        elif name is not None or quoted is not None:
            steps.append(_Step(_AT, quoted if name is None else name))
        else:
            steps.append(_Step(_EACH))
        position = found.end()
    if sum(step.kind == _ANYWHERE for step in steps) > 1:
        raise invalid(f"{side}: a path may have one ..name")
    rest = text[position:].strip()
    if rest and rest[0] in ".[":
        raise invalid(f"{side}: {rest[:40]!r} is not a valid step of a path such as $.orders[0].id")
    return steps, rest


def filters_of(query: dict[str, Any], key: Format, value: Format) -> list[Filter]:
    """The filters of a query; a record matches if all hold. Raises ApiError."""
    found: list[Filter] = []
    if query["key"] is not None:
        of_key = test_of(query["key_match"], query["key"], key, "key")
        found.append(lambda one: one.key is not None and of_key(one.key))
    if query["value"] is not None:
        of_value = test_of(query["value_match"], query["value"], value, "value")
        found.append(lambda one: one.value is not None and of_value(one.value))
    if query["header"] is not None:
        found.append(_header_filter(query["header"], query["header_match"]))
    return found


def _header_filter(text: str, match: str) -> Filter:
    """The filter on headers: NAME=TEXT for the value of a header of this name, TEXT alone for a name or a value."""
    name, equals, wanted = text.partition("=")
    test = test_of(match, wanted if equals and match != JSON_PATH else text, Format(), "header")

    def values(one: ScannedRecord) -> Iterable[bytes]:
        for each, value in one.headers:
            if equals and match != JSON_PATH:
                if each == name:
                    yield value or b""
            else:
                yield each.encode()
                yield value or b""

    return lambda one: any(map(test, values(one)))


_PROGRESS_S = 0.25
_ASK_S = 15.0
_TAIL_WAIT_S = 1.0  # its page says that it is interrupted, and resumes it


class Wanted(NamedTuple):
    """A requested search. `limit` is None for a tail."""

    topic: str
    partitions: list[int]
    start: Start
    limit: int | None = 50
    committed_only: bool = False
    markers: bool = False
    filters: Sequence[Filter] = ()
    limits: Limits = Limits(100_000, 256 << 20, 60.0)
    expression: Expression | None = None


class Search:
    """One search. `events` does the work, in the thread that iterates over it."""

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: Wanted,
        view: View,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises Unanswered for a partition that cannot be searched; a query may name the others."""
        self._wanted = wanted
        self._view = view
        self._monotonic_s = monotonic_s
        self._reported_s = monotonic_s()
        self._matched = self._deleted = 0
        self._scan = Scan(
            cluster,
            [(wanted.topic, index) for index in wanted.partitions],
            wanted.start,
            self._filter,
            self._on_gap,
            timeout_s=_ASK_S,
            committed_only=wanted.committed_only,
            limits=wanted.limits,
            leader_wait_s=_TAIL_WAIT_S if wanted.start.place == TAIL else LEADER_WAIT_S,
            monotonic_s=monotonic_s,
        )
        spans = self._scan.spans.items()
        self._next = {index: span.high if self._is_backwards else span.low for (_, index), span in spans}
        self._total = sum(span.high - span.low for _, span in spans)

    def events(self) -> Iterator[Event]:
        """Yields records, progress now and then, and `done` at the end. A tail ends only when it is closed. Raises
        Unanswered, ConfigError, ApiError."""
        if self._wanted.start.place == TAIL:
            yield from self._tail()
            return
        reason = "limit" if self._wanted.limit == 0 else None
        for one in self._rounds() if reason is None else ():
            records = self._in_order(one)
            self._view.expect(records[: self._left])
            for record in records:
                yield Event("record", self._view.of(record))
                self._matched += 1
                self._next[record.partition] = record.offset if self._is_backwards else record.offset + 1
                if self._matched == self._wanted.limit:
                    reason = "limit"
                    break
            else:
                self._next.update({index: end for (_, index), end in one.ends.items()})
                yield from self._progress()
                continue
            break
        reason = reason or self._scan.end_reason
        following = None if reason == "end" else self._positions()
        yield Event("done", {"reason": reason, **self._numbers(), "next": following})

    def records(self) -> Iterator[ScannedRecord]:
        """The records that match, for an export."""
        for one in self._rounds():
            for record in self._in_order(one):
                yield record
                self._matched += 1
                if self._matched == self._wanted.limit:
                    return

    @property
    def _is_backwards(self) -> bool:
        return self._wanted.start.place == END

    @property
    def _is_filtered(self) -> bool:
        return bool(self._wanted.filters) or self._wanted.expression is not None

    @property
    def _left(self) -> int:
        """How many records are still to be found, if there is a limit."""
        return (self._wanted.limit or 0) - self._matched

    def _rounds(self) -> Iterator[Round]:
        if not self._is_backwards:
            return self._scan.forwards()
        limit = self._wanted.limit or 0
        return self._scan.backwards(0 if self._is_filtered else limit, limit * 2, limit)

    def _in_order(self, one: Round) -> list[ScannedRecord]:
        return one.by_time(backwards=self._is_backwards)

    def _filter(self, records: list[ScannedRecord]) -> list[ScannedRecord]:
        if self._wanted.filters:
            self._view.expect(records)
        found = [one for one in records if self._matches(one)]
        return found if self._wanted.expression is None else self._wanted.expression.matching(found)

    def _matches(self, one: ScannedRecord) -> bool:
        if one.marker is not None and not self._wanted.markers:
            return False
        return all(each(one) for each in self._wanted.filters)

    def _tail(self) -> Iterator[Event]:
        yield self._progress_event()
        for one in self._scan.tail():
            for records in one.found.values():
                self._view.expect(records)
                for record in records:
                    self._matched += 1
                    yield Event("record", self._view.of(record))
            self._next.update({index: end for (_, index), end in one.ends.items()})
            yield from self._progress()

    # reports

    def _on_gap(self, _: TopicPartition, offset: int, position: int) -> None:
        self._deleted += position - offset

    def _progress(self) -> Iterator[Event]:
        now_s = self._monotonic_s()
        if now_s - self._reported_s >= _PROGRESS_S:
            self._reported_s = now_s
            yield self._progress_event()

    def _progress_event(self) -> Event:
        spans = self._scan.spans.values()
        done = sum(one.low >= one.high for one in spans)
        row = {**self._numbers(), "partitions_done": done, "partitions": len(spans)}
        if self._wanted.start.place == TAIL:
            row["next"] = self._positions()
        return Event("progress", row)

    def _positions(self) -> dict[str, int]:
        """The offset of each partition at which another search continues this one."""
        return {str(index): at for index, at in sorted(self._next.items())}

    def _numbers(self) -> dict[str, Any]:
        """The counters of the search. `total` is the number of offsets from its start to its end, `deleted` that of
        offsets that retention deleted before they were read."""
        return {
            "total": self._total,
            "scanned": self._scan.scanned,
            "matched": self._matched,
            "scanned_bytes": self._scan.size_bytes,
            "deleted": self._deleted,
            "elapsed_ms": int(self._scan.elapsed_s * 1000),
            **self._faults(),
        }

    def _faults(self) -> dict[str, Any]:
        """The number of records for which the expression failed, and the last reason."""
        expression = self._wanted.expression
        if expression is None or not expression.faults:
            return {}
        return {"filter_faults": expression.faults, "filter_fault": expression.fault}
