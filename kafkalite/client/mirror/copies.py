"""Copies at the target, as the copier writes them: in transactions, or with the offsets of the source.

Source: none; `OpenTransaction` and `PreservedCopies` are the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kafkalite.client.fetching import Fetched
from kafkalite.client.group_member import Membership
from kafkalite.client.mirror.copied_partition import CopiedPartition

B = TypeVar("B")
"""A batch on its way: of `CommittedBatch`, or `PreservedBatch`."""


class Copies(Protocol[B]):
    """Raises WriteFailed, Unanswered if the target refuses or is away for too long; the object is of no use then.

    `began_s` is the time at which something was added that is not committed yet, None if there is nothing; `size_bytes`
    are its records, if it `has_records`."""

    began_s: float | None
    size_bytes: int
    has_records: bool

    def begin(self, partitions: Sequence[CopiedPartition], member: Membership) -> None:
        """Sets the position of each partition to the end of its copy, or gives it a fault."""

    def batches(self, fetched: Fetched, position: int) -> tuple[list[B], int]:
        """The batches of a response that are to be added, and the offset behind it. Raises Malformed."""

    def add(self, copied: CopiedPartition, batches: list[B]) -> None:
        """Queues batches of a partition, whose position is behind them."""

    def send(self) -> None:
        """Sends batches that are queued, without waiting for the last answers."""

    def commit(self, member: Membership) -> None:
        """Returns when all that was added is committed; notifies the partitions."""
