"""The record that a test wants, to compare records with and to say that there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.testing.records.payload import Payload, matches
from kafkalite.testing.records.stored_record import StoredRecord

_SHOWN_MAX = 20


class Anything:
    """Stands for every key and every value."""

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING = Anything()

Wanted = Payload | Callable[[Any], object] | Anything


class RecordPattern(NamedTuple):
    """A record fits with this key and value, in this partition if one is given, and with all of `headers`, among
    others. Keys and values are compared as `Broker.produce` would write them, mappings and lists as JSON; a function
    gets the bytes and decides."""

    key: Wanted
    value: Wanted
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None

    def fits(self, record: StoredRecord) -> bool:
        return (
            (self.partition is None or record.partition == self.partition)
            and (isinstance(self.key, Anything) or matches(record.key, self.key))
            and (isinstance(self.value, Anything) or matches(record.value, self.value))
            and all(header in record.headers for header in self.headers)
        )

    def first(self, records: Iterable[StoredRecord]) -> StoredRecord | None:
        """The first record that fits."""
        return next(filter(self.fits, records), None)

    def __str__(self) -> str:
        parts = [f"key={self.key!r}", f"value={self.value!r}"]
        if self.headers:
            parts.append(f"headers={dict(self.headers)!r}")
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        return ", ".join(parts)

    def missing(self, topic: str, within_s: float, topics: Mapping[str, int], records: list[StoredRecord]) -> str:
        """The message of a test that fails because no record has come: `topics` and `records` are there instead."""
        message = f"{topic} has no record with {self} within {within_s:g} s. "
        if topic not in topics:
            return message + f"There is no such topic; there are: {', '.join(sorted(topics)) or 'none'}"
        if not records:
            return message + "It is empty."
        more = f" (the last {_SHOWN_MAX})" if len(records) > _SHOWN_MAX else ""
        lines = [f"  {r.partition}@{r.offset} key={r.key!r} value={r.value!r}" for r in records[-_SHOWN_MAX:]]
        return message + "\n".join([f"It has {len(records)}{more}:", *lines])
