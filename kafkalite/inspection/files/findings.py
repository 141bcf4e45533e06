"""Faults of a data directory: their places, their severity, and their treatment by a restart.

A check reports a `Fault`; `prediction` adds the outcome of a restart, which makes it a `Finding`.
"""

from __future__ import annotations

from enum import StrEnum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable


class Severity(StrEnum):
    """The severity of a finding, ascending."""

    HARMLESS = "harmless"
    REPAIRED = "a restart repairs it"
    LOSES = "records lost at restart"
    SET_ASIDE = "a restart sets it aside"
    STAYS = "a restart does not repair it"
    REFUSES = "a restart refuses to begin"


class Fault(NamedTuple):
    """`severity` and `restart` (the treatment by a restart) are given where no dry run is needed to know them.

    `restart` without `severity`: the consequence if the restart leaves the fault. `position` is that of a byte of the
    file, or -1. `unwritten`: the bytes were never acknowledged; they are zeros, or the begin of a batch. `overflows`:
    the segment must be split, for its offsets are too far apart.
    """

    path: str
    where: str
    what: str
    severity: Severity | None = None
    restart: str = ""
    position: int = -1
    unwritten: bool = False
    overflows: bool = False


LINK_TO_NOWHERE = "a link that leads nowhere"


def no_file(path: str, kind: str) -> Fault:
    """The fault of anything else in the place of a file that a broker reads or writes when it starts."""
    stops = "the broker does not get past it, and may wait without end until it is removed"
    return Fault(path, "", f"it is {kind}, not a file", Severity.REFUSES, stops)


class Finding(NamedTuple):
    """A fault as it is printed, with the bytes of the log that a restart loses by it."""

    path: str
    where: str
    what: str
    severity: Severity
    restart: str
    lost_bytes: int = 0

    def as_json(self) -> dict[str, str | int]:
        return {
            "type": "finding",
            "path": self.path,
            "where": self.where,
            "what": self.what,
            "gravity": self.severity.name.lower(),
            "restart": self.restart,
            "lostBytes": self.lost_bytes,
        }

    def as_text(self) -> str:
        place = printable(f"{self.path} ({self.where})" if self.where else self.path)
        lost = f", {self.lost_bytes} bytes" if self.lost_bytes else ""
        return f"{place}: {printable(self.what)}\n    {self.severity.value}{lost}: {printable(self.restart)}"
