"""Output of an inspection: lines of a dump and complaints, and a progress bar on stderr.

A dump prints lines of text as kafka-dump-log does, or one JSON object a line. Lines are gathered and written in large
pieces. Complaints go to stderr at the end, as there; in JSON they stand among the other lines as objects of the type
"complaint". The bar is drawn where stderr is a terminal:

    [#########.....................] 31%  3.1 of 9.9 GiB  1.4 GiB/s
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable, size_text
from kafkalite.config.settings import INT_MAX
from kafkalite.protocol.internal_records import RecordDecoder

_LINES_MAX = 4096

# the order in which Kafka's tool prints the complaints that it gathered; rank 0 ends it at once, so it comes first
OFFSET_MISMATCH, TIME_MISMATCH, TIME_DISORDER, OFFSET_NOT_FOUND, GAPS = 1, 2, 3, 4, 5

Complaint = tuple[int, tuple[str, ...]]  # its rank and its lines


class DumpOptions(NamedTuple):
    """The form of a dump. Of a log: `deep` prints records, too, `decoder` their data; without `metadata` only the data.
    Of an index: `sanity_only` checks only whether Kafka would use it, `verify_only` compares the entries with the log
    and prints none."""

    deep: bool = False
    decoder: RecordDecoder | None = None
    metadata: bool = True
    max_bytes: int = INT_MAX
    sanity_only: bool = False
    verify_only: bool = False


class Printer:
    """`faults` is how many complaints there were about damage; Kafka's tool complains of healthy files, too. `at_end`
    has the complaints that are printed at the end. With `as_json` the lines are JSON objects."""

    def __init__(self, out: BinaryIO | None = None, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.faults = 0
        self.at_end: list[Complaint] = []
        self._out = sys.stdout.buffer if out is None else out
        self._is_terminal = self._out.isatty()
        self._lines: list[str] = []

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

    def show(self, kind: str, text: str, **fields: Any) -> None:
        """One line: `text`, or an object with these fields."""
        if self.as_json:
            self.object(kind, **fields)
        else:
            self.line(text)

    def complain(self, *texts: str, rank: int = 0, is_fault: bool = True) -> None:
        """A complaint about the file: a line, and lines that belong to it. Lower ranks are printed first."""
        self.faults += is_fault
        if self.as_json:
            self.object("complaint", text="\n".join(texts))
        else:
            self.at_end.append((rank, texts))

    def complain_of(self, title: str, details: Sequence[str], rank: int, *, is_fault: bool = True) -> None:
        """A complaint with a line for each of `details`; none without any."""
        if details:
            self.complain(title, *details, rank=rank, is_fault=is_fault)

    def add(self, text: bytes, complaints: list[Complaint]) -> None:
        """Appends the output of another printer."""
        self.flush()
        self._write(text)
        self.at_end += complaints
        self.faults += len(complaints)

    def flush(self) -> None:
        """Raises BrokenPipeError when the reader has closed the pipe."""
        if self._lines:
            self._lines.append("")
            self._write("\n".join(self._lines).encode("utf-8", "surrogateescape"))
            self._lines.clear()
            self._out.flush()

    def _write(self, text: bytes) -> None:
        """Into a pipe or a file the bytes as they are; nothing that a record contains steers a terminal."""
        if self._is_terminal:
            text = printable(text.decode("utf-8", "surrogateescape"), keep="\n\t").encode()
        self._out.write(text)

    def finish(self) -> None:
        self.flush()
        for _, texts in sorted(self.at_end, key=lambda complaint: complaint[0]):
            print(*map(printable, texts), sep="\n", file=sys.stderr)


_WIDTH = 30
_EVERY_SECONDS = 0.1


class Progress:
    """`advance` may be called from several threads; a call costs a lock and an addition."""

    def __init__(self, total_bytes: int, *, shown: bool | None = None) -> None:
        self._total_bytes = max(1, total_bytes)
        self._done_bytes = 0
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._began = time.monotonic()
        self._next = self._began + _EVERY_SECONDS
        self._lock = threading.Lock()
        self._drawn = False

    def advance(self, count_bytes: int) -> None:
        with self._lock:
            self._done_bytes += count_bytes
            if self._shown and time.monotonic() >= self._next:
                self._draw()

    def clear(self) -> None:
        """Removes the bar, before other output and at the end."""
        with self._lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False

    def _draw(self) -> None:
        now = time.monotonic()
        self._next = now + _EVERY_SECONDS
        share = min(1.0, self._done_bytes / self._total_bytes)
        bar = "#" * int(share * _WIDTH)
        speed = size_text(int(self._done_bytes / max(1e-3, now - self._began)))
        sizes = f"{size_text(self._done_bytes)} of {size_text(self._total_bytes)}"
        sys.stderr.write(f"\r\x1b[K[{bar:.<{_WIDTH}}] {share:4.0%}  {sizes}  {speed}/s")
        sys.stderr.flush()
        self._drawn = True
