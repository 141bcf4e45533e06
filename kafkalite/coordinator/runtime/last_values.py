"""The last value of each key of a log, in tables of the keys that differ in their last four bytes alone.

The keys of a group's committed offsets in one topic are such keys, and commits of several partitions stand behind each
other in the log. So a run of them costs one look-up of the bytes before: for 5 million keys 0.9 s instead of 2.6 with
one table.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.common.named_tuple import NamedTuple

TAIL_BYTES = 4

Entry = tuple[bytes, int]
"""A value, and its order in the log."""

Table = dict[int, Entry]
"""By the last four bytes of the key, as a signed number."""

Part = tuple[bytes, list[tuple[int, Entry]]]
"""Entries of one table, with the bytes before the last four of their keys."""


class Runs(NamedTuple):
    """Records one after the other, in runs whose keys share all but their last four bytes: `prefixes` and `bounds` are
    those of the runs, `tails` and `entries` those of the records. The value of a tombstone is None."""

    prefixes: list[bytes]
    bounds: list[tuple[int, int]]
    tails: list[int]
    entries: list[tuple[bytes | None, int]]


class LastValues:
    """Invariant: no table is empty. Keys of less than four bytes are the caller's to refuse."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: dict[bytes, Table] = {}

    def put(self, key: bytes, entry: Entry) -> None:
        prefix, tail = split(key)
        self.tables.setdefault(prefix, {})[tail] = entry

    def put_runs(self, runs: Runs) -> None:
        """Put all records; none of them is a tombstone."""
        tables, tails, entries = self.tables, runs.tails, runs.entries
        for prefix, (start, end) in zip(runs.prefixes, runs.bounds, strict=True):
            table = tables.get(prefix)
            if table is None:
                table = tables[prefix] = {}
            if end - start == 1:
                table[tails[start]] = entries[start]  # type: ignore[assignment]
            else:
                table.update(zip(tails[start:end], entries[start:end], strict=True))  # type: ignore[arg-type]

    def pop(self, prefix: bytes, tail: int) -> None:
        table = self.tables.get(prefix)
        if table is not None and table.pop(tail, None) is not None and not table:
            del self.tables[prefix]

    def merge(self, later: LastValues) -> None:
        """Put the entries of `later` that are of a higher order than those here."""
        for prefix, entries in later.tables.items():
            table = self.tables.setdefault(prefix, {})
            for tail, entry in entries.items():
                known = table.get(tail)
                if known is None or known[1] < entry[1]:
                    table[tail] = entry

    def take_parts(self, most: int) -> Iterator[list[Part]]:
        """Remove the tables, `most` entries at a time: some of them may come in several parts."""
        taken: list[Part] = []
        room = most
        for prefix in list(self.tables):
            entries = list(self.tables.pop(prefix).items())
            start = 0
            while len(entries) - start >= room:
                yield [*taken, (prefix, entries[start : start + room])]
                start += room
                taken, room = [], most
            if start < len(entries):
                taken.append((prefix, entries[start:]))
                room -= len(entries) - start
        if taken:
            yield taken


def split(key: bytes) -> tuple[bytes, int]:
    return key[:-TAIL_BYTES], int.from_bytes(key[-TAIL_BYTES:], signed=True)


def join(prefix: bytes, tail: int) -> bytes:
    return prefix + tail.to_bytes(TAIL_BYTES, signed=True)
