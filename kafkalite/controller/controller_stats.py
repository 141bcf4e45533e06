"""Numbers of a controller, for its metrics.

Source: kafka.controller.ControllerStats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkalite.controller.controller_store import Step
from kafkalite.controller.pending_changes import StateChange

logger = logging.getLogger(__name__)

_SHOWN_MAX = 10  # partitions in the log


class ControllerStats:
    """Since the start of this broker, which may have been the controller several times. `elections` are partitions that
    got another leader, or the former one under a new epoch; `unclean_elections` those whose leader may lack committed
    records."""

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0

    def count(self, changes: Iterable[StateChange], refused: Iterable[Step]) -> None:
        """Count changes that were written, all but those whose steps were refused, and warn of leaders that may lack
        records."""
        not_written = set(refused)  # of thousands, when the view was stale: a list would take seconds
        written = [change for change in changes if change.step not in not_written]
        self.elections += sum(change.elects for change in written)
        unclean = [change for change in written if change.is_unclean]
        self.unclean_elections += len(unclean)
        for topic, partition, state, *_ in unclean[:_SHOWN_MAX]:
            logger.warning(
                "%s-%d is led by broker %d, which was not in sync: records may be lost", topic, partition, state.leader
            )
        if len(unclean) > _SHOWN_MAX:
            logger.warning("and so are %d other partitions", len(unclean) - _SHOWN_MAX)
