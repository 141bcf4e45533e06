"""Numbers of a controller, for its metrics.

Source: kafka.controller.ControllerStats.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.controller.pending_changes import StateChange


class ControllerStats:
    """Since the start of this broker, which may have been the controller several times. `elections` are partitions that
    got another leader, or the former one under a new epoch; `unclean_elections` those whose leader may lack committed
    records."""

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0

    def count(self, changes: Sequence[StateChange]) -> None:
        """Count changes that were written."""
        self.elections += sum(change.elects for change in changes)
        self.unclean_elections += sum(change.is_unclean for change in changes)
