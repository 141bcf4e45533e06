"""Responses of a fetch, made from batches, and records to make these of."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.client.fetching import Fetched
from kafkalite.record.batch import NewRecord
from kafkalite.record.batches import whole_batches

NOW_MS = 1_700_000_000_000


def fetched(data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> Fetched:
    return Fetched(list(whole_batches(data)), 1 << 20, 1 << 20, 0, sorted(aborted), len(data))


def some(count: int, first: int = 0) -> list[NewRecord]:
    return [
        NewRecord(b"k%d" % at if at % 3 else None, b"v%d" % at if at % 4 else None, (("h", None),), NOW_MS + at)
        for at in range(first, first + count)
    ]
