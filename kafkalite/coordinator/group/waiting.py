"""A rebalance that waits: for whom, and for how long at most, as a value and as a sentence for people."""

from __future__ import annotations

from typing import NamedTuple

JOIN, SYNC = "join", "sync"
_NAMED_MAX = 5


class Waiting(NamedTuple):
    """`phase` is JOIN or SYNC. `names` are those of the members that are waited for, by client id where they have told
    one; without any the group waits for members to come. `left_ms` is None where no timer ends the wait."""

    phase: str
    member_ids: tuple[str, ...]
    names: tuple[str, ...]
    left_ms: int | None

    def sentence(self, group_id: str, waited_ms: int) -> str:
        """One line, such as for a log."""
        what = "to join again" if self.phase == JOIN else "to ask for their assignment"
        whom = f"members that may still come ({group_id} was empty)"
        if self.names:
            more = f" and {len(self.names) - _NAMED_MAX} more" if len(self.names) > _NAMED_MAX else ""
            whom = f"{', '.join(self.names[:_NAMED_MAX])}{more} {what}"
        until = "" if self.left_ms is None else f", for {max(0, self.left_ms) / 1000:.0f} s more at most"
        return f"group {group_id} has waited {waited_ms / 1000:.0f} s for {whom}{until}"
