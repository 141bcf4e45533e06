"""Output in the form that all commands share: complaints on stderr, sentences, tables, lines of JSON.

Names come from clients and brokers, so control characters are escaped in text for people. JSON escapes them by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from kafkalite.common.text import printable


def complain(*messages: str) -> int:
    """Print each message on stderr. Returns the exit code for a command that failed."""
    for message in messages:
        print(f"kafkalite: {printable(message)}", file=sys.stderr)
    return 1


def say(*sentences: str) -> None:
    """Print each sentence on one line; control characters in its names are escaped."""
    for sentence in sentences:
        print(printable(sentence))


def print_all(lines: Iterable[str]) -> None:
    """Print lines of JSON, and others that are printable as they are."""
    for line in lines:
        print(line)


def aligned(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    """Lines of a table; the columns in `left` are aligned to the left, the others to the right."""
    lines = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    as_json: bool,
    left: Sequence[int] = (0,),
    unknown: str = "-",
    empty: str = "",
    identifiers: Collection[str] = (),
) -> None:
    """Print a table, or a JSON object for each row. None is `unknown` in a table, and whole numbers have commas there,
    but for those that name something: the columns in `identifiers`."""
    if as_json:
        names = [column.replace("-", "_").replace(" ", "_") for column in columns]
        print_all(json_line(dict(zip(names, row, strict=True))) for row in rows)
    else:

        def text(column: str, cell: object) -> str:
            is_count = type(cell) is int and column not in identifiers
            return unknown if cell is None else f"{cell:,}" if is_count else str(cell) or empty

        cells = [list(map(text, columns, row)) for row in rows]
        print_all(aligned([columns, *cells], left))


def json_line(values: object) -> str:
    """Compact JSON."""
    import json

    return json.dumps(values, separators=(",", ":"))


def version() -> str:
    """Of the installed package."""
    from importlib import metadata

    try:
        return metadata.version("kafkalite")
    except metadata.PackageNotFoundError:
        return "(not installed)"
