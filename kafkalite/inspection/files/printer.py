"""Where a dump goes: lines of text as kafka-dump-log prints them, or one JSON object a line.

Lines are gathered and written in large pieces. What is wrong goes to stderr at the end, as there; in JSON it stands
among the rest as an object of the type "complaint".
"""

from __future__ import annotations

import json
import sys
from typing import Any, BinaryIO

_LINES_MAX = 4096

# in which order Kafka's tool tells what it gathered; what ends it at once comes first
OFFSET_MISMATCH, TIME_MISMATCH, TIME_DISORDER, OFFSET_NOT_FOUND, GAPS = 1, 2, 3, 4, 5

Complaint = tuple[int, tuple[str, ...]]  # when it is told, and its lines


class Printer:
    """`complaints` is how many there were, `told` what is told at the end. With `as_json` callers give objects."""

    def __init__(self, out: BinaryIO | None = None, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.complaints = 0
        self._out = sys.stdout.buffer if out is None else out
        self._lines: list[str] = []
        self.told: list[Complaint] = []

    def line(self, text: str) -> None:
        self._lines.append(text)
        if len(self._lines) >= _LINES_MAX:
            self.flush()

    def lines(self, texts: list[str]) -> None:
        self._lines += texts
        if len(self._lines) >= _LINES_MAX:
            self.flush()

    def object(self, kind: str, **fields: Any) -> None:
        self.line(json.dumps({"type": kind, **fields}, separators=(",", ":")))

    def complain(self, *texts: str, rank: int = 0) -> None:
        """What is wrong with what was dumped: a line, and lines that belong to it. Lower ranks are told first."""
        self.complaints += 1
        if self.as_json:
            self.object("complaint", text="\n".join(texts))
        else:
            self.told.append((rank, texts))

    def add(self, text: bytes, told: list[Complaint]) -> None:
        """What another printer has gathered, behind what this one has written."""
        self.flush()
        self._out.write(text)
        self.told += told
        self.complaints += len(told)

    def flush(self) -> None:
        """Raises BrokenPipeError when nobody reads on."""
        if self._lines:
            self._lines.append("")
            self._out.write("\n".join(self._lines).encode("utf-8", "surrogateescape"))
            self._lines.clear()
            self._out.flush()

    def finish(self) -> None:
        self.flush()
        for _, texts in sorted(self.told, key=lambda told: told[0]):
            print(*texts, sep="\n", file=sys.stderr)
