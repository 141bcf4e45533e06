"""What is wrong with a data directory: where, what, how grave, and what a restart would do about it.

A check knows what is wrong (`Fault`); what becomes of it is known when the restart was rehearsed (`Finding`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """From the lightest to the gravest."""

    HARMLESS = "harmless"
    REPAIRED = "a restart repairs it"
    LOSES = "records lost at restart"
    SET_ASIDE = "a restart sets it aside"
    STAYS = "a restart does not repair it"
    REFUSES = "a restart refuses to begin"


class Fault(NamedTuple):
    """`position` is a byte of the file, -1 where there is none to name. `gravity` is given only where no rehearsal is
    needed to know it; `restart` then, or as what it means when the fault stays."""

    path: str
    where: str
    what: str
    position: int = -1
    unwritten: bool = False  # nothing that was ever acknowledged: zeros, or a batch that was not written to its end
    gravity: Severity | None = None
    restart: str = ""


LINK_TO_NOWHERE = "a link that leads nowhere"


def no_file(path: str, kind: str) -> Fault:
    """Of something in the place of a file that a broker reads or writes before it serves anybody."""
    stops = "the broker does not get past it, and may wait for it for ever, until it is taken away"
    return Fault(path, "", f"it is {kind}, not a file", gravity=Severity.REFUSES, restart=stops)


class Finding(NamedTuple):
    path: str
    where: str
    what: str
    gravity: Severity
    restart: str
    lost_bytes: int = 0

    def as_json(self) -> dict[str, str | int]:
        return {
            "type": "finding",
            "path": self.path,
            "where": self.where,
            "what": self.what,
            "gravity": self.gravity.name.lower(),
            "restart": self.restart,
            "lostBytes": self.lost_bytes,
        }

    def as_text(self) -> str:
        place = f"{self.path} ({self.where})" if self.where else self.path
        lost = f", {self.lost_bytes} bytes" if self.lost_bytes else ""
        return f"{place}: {self.what}\n    {self.gravity.value}{lost}: {self.restart}"
