"""One topic of a test's broker, with assertions about its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kafkalite.testing.payload import HeadersGiven, Payload, encoded_headers, matches
from kafkalite.testing.stored_record import READ_UNCOMMITTED, Isolation, StoredRecord

WITHIN_S = 5.0
_SHOWN_MAX = 20


class Anything:
    """Equals every key and every value."""

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING = Anything()

Wanted = Payload | Callable[[Any], object] | Anything


class RecordKeeper(Protocol):
    """The methods of `kafkalite.Broker` that a handle needs."""

    @property
    def topics(self) -> dict[str, int]: ...
    @property
    def produce(self) -> Callable[..., StoredRecord]: ...
    @property
    def records(self) -> Callable[..., list[StoredRecord]]: ...
    @property
    def wait_for(self) -> Callable[..., list[StoredRecord]]: ...
    @property
    def wait_until(self) -> Callable[..., list[StoredRecord] | None]: ...


class TopicHandle:
    """`name` may be of a topic that does not exist yet."""

    def __init__(self, broker: RecordKeeper, name: str) -> None:
        self._broker = broker
        self.name = name

    def __repr__(self) -> str:
        return f"TopicHandle({self.name!r})"

    def produce(self, value: Payload, **details: Any) -> StoredRecord:
        """As `Broker.produce`."""
        return self._broker.produce(self.name, value, **details)

    def records(self, partition: int | None = None, **details: Any) -> list[StoredRecord]:
        """As `Broker.records`."""
        return self._broker.records(self.name, partition, **details)

    def wait_for(self, count: int = 1, **details: Any) -> list[StoredRecord]:
        """As `Broker.wait_for`."""
        return self._broker.wait_for(self.name, count, **details)

    def has(
        self,
        *,
        key: Wanted = ANYTHING,
        value: Wanted = ANYTHING,
        headers: HeadersGiven = (),
        partition: int | None = None,
        within: float = WITHIN_S,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> StoredRecord:
        """Assert that the topic has a record like this, or gets one within that many seconds. Returns the first.

        A key or a value is compared as `Broker.produce` would write it, mappings and lists as JSON; a function gets the
        bytes and says. The record has all of `headers`, among others. Raises AssertionError with what is there instead.
        """
        wanted_headers = encoded_headers(headers)

        def is_wanted(record: StoredRecord) -> bool:
            return (
                (partition is None or record.partition == partition)
                and (isinstance(key, Anything) or matches(record.key, key))
                and (isinstance(value, Anything) or matches(record.value, value))
                and all(header in record.headers for header in wanted_headers)
            )

        found = self._broker.wait_until(self.name, lambda records: any(map(is_wanted, records)), within, isolation)
        if found is not None:
            return next(filter(is_wanted, found))
        wanted = f"key={key!r}, value={value!r}" + (f", headers={dict(wanted_headers)!r}" if wanted_headers else "")
        if partition is not None:
            wanted += f", partition={partition}"
        raise AssertionError(f"{self.name} has no record with {wanted} within {within:g} s. {self._shown(isolation)}")

    def _shown(self, isolation: Isolation) -> str:
        if self.name not in self._broker.topics:
            return f"There is no such topic; there are: {', '.join(sorted(self._broker.topics)) or 'none'}"
        records = self.records(isolation=isolation)
        if not records:
            return "It is empty."
        lines = [f"  {r.partition}@{r.offset} key={r.key!r} value={r.value!r}" for r in records[-_SHOWN_MAX:]]
        more = f" (the last {_SHOWN_MAX})" if len(records) > _SHOWN_MAX else ""
        return "\n".join([f"It has {len(records)}{more}:", *lines])
