"""One topic of a test's broker: the broker's methods for it, without its name, and in two forms as the broker has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kafkalite.testing.records.payload import HeadersGiven, Payload
from kafkalite.testing.records.record_pattern import ANYTHING, Wanted
from kafkalite.testing.records.stored_record import READ_UNCOMMITTED, Isolation, StoredRecord

WITHIN_S = 5.0


class RecordKeeper(Protocol):
    """The methods of `kafkalite.Broker` that a handle needs."""

    @property
    def produce(self) -> Callable[..., StoredRecord]: ...
    @property
    def records(self) -> Callable[..., list[StoredRecord]]: ...
    @property
    def wait_for(self) -> Callable[..., list[StoredRecord]]: ...
    @property
    def wait_for_record(self) -> Callable[..., StoredRecord]: ...


class AsyncRecordKeeper(Protocol):
    """The methods of an `AsyncBroker` that a handle needs."""

    @property
    def produce(self) -> Callable[..., Awaitable[StoredRecord]]: ...
    @property
    def records(self) -> Callable[..., list[StoredRecord]]: ...
    @property
    def wait_for(self) -> Callable[..., Awaitable[list[StoredRecord]]]: ...
    @property
    def wait_for_record(self) -> Callable[..., Awaitable[StoredRecord]]: ...


class TopicHandle:
    """`name` may be of a topic that does not exist yet."""

    def __init__(self, broker: RecordKeeper, name: str) -> None:
        self._broker = broker
        self.name = name

    def __repr__(self) -> str:
        return f"TopicHandle({self.name!r})"

    def produce(self, value: Payload, **details: Any) -> StoredRecord:
        """As `AsyncBroker.produce`."""
        return self._broker.produce(self.name, value, **details)

    def records(self, partition: int | None = None, **details: Any) -> list[StoredRecord]:
        """As `AsyncBroker.records`."""
        return self._broker.records(self.name, partition, **details)

    def wait_for(self, count: int = 1, **details: Any) -> list[StoredRecord]:
        """As `AsyncBroker.wait_for`."""
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
        """Assert that the topic has a record that fits (`RecordPattern`), or gets one within that many seconds. Returns
        the first. Raises AssertionError with what is there instead."""
        return self._broker.wait_for_record(
            self.name, key=key, value=value, headers=headers, partition=partition, within=within, isolation=isolation
        )


class AsyncTopicHandle:
    """A `TopicHandle` for coroutines."""

    def __init__(self, broker: AsyncRecordKeeper, name: str) -> None:
        self._broker = broker
        self.name = name

    def __repr__(self) -> str:
        return f"AsyncTopicHandle({self.name!r})"

    async def produce(self, value: Payload, **details: Any) -> StoredRecord:
        return await self._broker.produce(self.name, value, **details)

    def records(self, partition: int | None = None, **details: Any) -> list[StoredRecord]:
        return self._broker.records(self.name, partition, **details)

    async def wait_for(self, count: int = 1, **details: Any) -> list[StoredRecord]:
        return await self._broker.wait_for(self.name, count, **details)

    async def has(
        self,
        *,
        key: Wanted = ANYTHING,
        value: Wanted = ANYTHING,
        headers: HeadersGiven = (),
        partition: int | None = None,
        within: float = WITHIN_S,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> StoredRecord:
        return await self._broker.wait_for_record(
            self.name, key=key, value=value, headers=headers, partition=partition, within=within, isolation=isolation
        )
