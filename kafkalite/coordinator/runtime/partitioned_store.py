"""The values of a coordinator by id, in the partitions of its topic that this broker leads.

An id belongs to the partition that it hashes to, and is served while that partition is `owned`. While the partition is
`loading`, requests for its ids get COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import partition_for_id
from kafkalite.coordinator.runtime.effects import Owner
from kafkalite.coordinator.runtime.partition_loader import PartitionLoader

V = TypeVar("V", bound=Owner)
L = TypeVar("L", bound=PartitionLoader)


class PartitionedStore(ABC, Generic[V, L]):
    """Values by id. An id may get another value, such as a group of another kind.

    Invariant: the partition of each value is owned, and no partition is owned and loading.
    """

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count  # of the topic, which may differ from the configuration
        self.by_id: dict[str, V] = {}
        self.owned: set[int] = set()
        self.loading: set[int] = set()
        self.is_closed = False

    def __iter__(self) -> Iterator[V]:
        """Over a copy: values may be removed during the iteration."""
        return iter(list(self.by_id.values()))

    def partition_for(self, identity: str) -> int:
        """The partition of the topic that keeps this id."""
        return partition_for_id(identity, self.partition_count)

    def error_without_value(self, identity: str) -> ErrorCode:
        """The error for an id without a value: NONE if this broker owns its partition, so that it is not in use."""
        if self.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_for(identity)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.owned else ErrorCode.NOT_COORDINATOR

    def values_of(self, partition: int) -> list[V]:
        return [value for value in self.by_id.values() if value.partition == partition]

    def add_loading_partition(self, partition: int) -> None:
        """Requests for the partition's ids get COORDINATOR_LOAD_IN_PROGRESS until it is loaded, instead of
        NOT_COORDINATOR."""
        if not self.is_closed:
            self.loading.add(partition)

    def load(self, partition: int, loader: L) -> None:
        """Own the partition with the values that `loader` has read."""
        if self.is_closed:
            return
        if partition in self.owned:
            self.unload(partition)
        self.loading.discard(partition)
        self.owned.add(partition)
        self._add_loaded(partition, loader)

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition: drops its values, which another coordinator has."""
        is_owned = partition in self.owned
        self.owned.discard(partition)
        self.loading.discard(partition)
        for value in self.values_of(partition) if is_owned else ():
            self._drop(value, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """Every waiting and later request gets COORDINATOR_NOT_AVAILABLE. A second call has no effect."""
        self.is_closed = True
        for value in self:
            self._drop(value, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.owned.clear()
        self.loading.clear()

    @abstractmethod
    def _add_loaded(self, partition: int, loader: L) -> None:
        """Add the values that were read from the partition."""

    @abstractmethod
    def _drop(self, value: V, error: ErrorCode) -> None:
        """Remove the value; its waiting requests get `error`."""
