"""Output in the form that all commands share: complaints on stderr, tables, lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence


def complain(*messages: str) -> int:
    """Print each message on stderr. Returns the exit code for a command that failed."""
    for message in messages:
        print(f"kafkalite: {message}", file=sys.stderr)
    return 1


def print_all(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def aligned(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    """Lines of a table; the columns in `left` are aligned to the left, the others to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def json_line(values: object) -> str:
    """Compact JSON."""
    import json

    return json.dumps(values, separators=(",", ":"))
