"""The acknowledgement of records by a member of a share group (KIP-932), and its types.

Source: org.apache.kafka.clients.consumer.AcknowledgeType.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.replication.share.in_flight import Run

GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4


class Acknowledgement(NamedTuple):
    """The word of a member about the offsets `first` to `last` (inclusive): one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def cut(self, run: Run) -> Iterator[tuple[Run, int]]:
        """The parts of a run that are acknowledged alike, each with its type."""
        if len(self.types) == 1:
            yield run, self.types[0]
            return
        first = run.first
        low = first - self.first
        for kind, alike in groupby(self.types[low : low + run.last - first + 1]):
            last = first + sum(1 for _ in alike) - 1
            yield run._replace(first=first, last=last), kind
            first = last + 1
