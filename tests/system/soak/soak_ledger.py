"""The records that the clients of a soak keep: which records were acknowledged, and which a group has read.

A record is (writer, partition, number): each writer numbers its records from 0 on for each partition. Ledgers are text
files, a run of numbers to a line, so that millions of records take little: `writer partition first last`. A client
writes before it goes on (before it commits, for a member), so what is in a file is so, even if the client was killed
a moment later. A line that begins with "!" is a fault that the client saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

Stream = tuple[str, int]
"""The records of one writer in one partition."""


class Runs:
    """Numbers as they come, kept as runs until they are written down."""

    def __init__(self) -> None:
        self._runs: dict[Stream, list[list[int]]] = defaultdict(list)

    def add(self, writer: str, partition: int, number: int) -> None:
        runs = self._runs[writer, partition]
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])

    def write(self, file: TextIO) -> None:
        lines = [f"{writer} {p} {first} {last}\n" for (writer, p), runs in self._runs.items() for first, last in runs]
        self._runs.clear()
        if lines:
            file.write("".join(lines))
            file.flush()


class Ledger:
    """The union of some ledger files, as disjoint ascending runs."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.faults: list[str] = []
        self._runs: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
        for path in paths:
            for line in path.read_text().splitlines(keepends=True):
                if line.startswith("!"):
                    self.faults.append(f"{path.stem}: {line[1:].strip()}")
                elif line.endswith("\n"):  # or the writer was killed while it wrote
                    writer, partition, first, last = line.split()
                    self._runs[writer, int(partition)].append((int(first), int(last)))
        for stream, runs in self._runs.items():
            self._runs[stream] = _merged(runs)

    @property
    def count(self) -> int:
        return sum(last - first + 1 for runs in self._runs.values() for first, last in runs)

    def missing_from(self, other: Ledger) -> list[str]:
        """The runs of this ledger that `other` does not hold whole."""
        return [
            f"{stream[0]} partition {stream[1]} {first}-{last}"
            for stream, runs in self._runs.items()
            for first, last in runs
            if not any(start <= first and last <= end for start, end in other._runs.get(stream, ()))
        ]


def _merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
