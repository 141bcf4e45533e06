"""Requests of administrators that the controller decides: elections of leaders, reassignments of replicas.

A single broker is its own controller. In a cluster only the elected controller accepts such requests.
Source: kafka.controller.KafkaController (electLeaders, alterPartitionReassignments, listPartitionReassignments);
KIP-455, KIP-460.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition


class Election(Enum):
    """The kinds of elections that a client may ask for, by their numbers in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A reassignment under way. `replicas` are all of the moment, with those that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionAdmin(Protocol):
    """Answers are in the order of the request, one for each element: None for success, else the refusal.

    `elect_leaders` and `reassign` raise KafkaError when nothing of the request is taken: NOT_CONTROLLER,
    REQUEST_TIMED_OUT.
    """

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        """Elect the preferred leader of each partition, or for UNCLEAN any live replica where no leader lives.
        Refusals: 3 unknown, 17 being deleted, 80 and 83 no candidate lives, 84 the leader is right already."""
        ...

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels a reassignment.
        Refusals: 3 unknown or being deleted, 39 a target that cannot be, 85 nothing to cancel."""
        ...

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        """All reassignments under way."""
        ...
