"""The table of `docs/compatibility.md`: one row for each client, version and script, as the last runs left it.

A run replaces the rows of what it ran and keeps the others; a skipped script gets a row only where there is none yet,
so that a machine without Go does not wipe out what a machine with Go has shown. Rows are sorted by ecosystem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

PASSED = "passed"
FAILED = "FAILED"
NOT_RUN = "not run: "  # and why
INTRODUCTION = """\
# Compatibility

Clients that nobody here wrote for kafkalite, unmodified, against a broker process (`python -m kafkalite serve`). Each
row is one script of `tests/compatibility/interop`: it checks counts and contents, then the broker is stopped, its log
may hold no traceback and no complaint about a client, and Apache Kafka's own `kafka-dump-log` must accept every file
it leaves.

This page is generated. To run everything and bring it up to date (what a machine lacks is skipped, and keeps the row
it has; for a page that forgets scripts which are gone, remove it first):

    ./dev interop --write-compatibility

With `--reference 3.9.1` the scripts that use one broker run on that version of Apache Kafka instead, which proves that
what they expect is right; the page stays as it is then.
"""
HEADINGS = ("Ecosystem", "Client", "Version", "What was run", "Result")


@dataclass(frozen=True, slots=True)
class Row:
    ecosystem: str
    client: str
    version: str
    what: str
    result: str

    @property
    def script(self) -> tuple[str, str, str]:
        """The key that rows of one script share, whatever the version."""
        return self.ecosystem, self.client, self.what

    def ended(self, result: str) -> Row:
        return replace(self, result=result)

    def failed(self) -> Row:
        return self.ended(FAILED)

    @property
    def was_run(self) -> bool:
        return not self.result.startswith(NOT_RUN)


def merge(known: Iterable[Row], told: Iterable[Row]) -> list[Row]:
    """The rows to keep after a run, in the order of the page."""
    rows = {(row.script, row.version): row for row in known}
    for row in told:
        if row.was_run:
            for other in [key for key, old in rows.items() if key[0] == row.script and not old.was_run]:
                del rows[other]
            rows[row.script, row.version] = row
        elif all(script != row.script for script, _ in rows):
            rows[row.script, row.version] = row
    return sorted(rows.values(), key=lambda row: (row.ecosystem, row.client, _numbers(row.version), row.what))


def render(rows: Iterable[Row]) -> str:
    lines = [INTRODUCTION, _line(HEADINGS), _line(["---"] * len(HEADINGS))]
    lines += [_line((row.ecosystem, row.client, row.version, row.what, row.result)) for row in rows]
    return "\n".join(lines) + "\n"


def parse(page: str) -> list[Row]:
    """The rows of a page that `render` wrote."""
    rows = []
    for line in page.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == len(HEADINGS) and tuple(cells) != HEADINGS and set(cells) != {"---"}:
            rows.append(Row(*cells))
    return rows


def update(path: Path, told: Iterable[Row]) -> None:
    known = parse(path.read_text()) if path.exists() else []
    path.parent.mkdir(exist_ok=True)
    path.write_text(render(merge(known, told)))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
