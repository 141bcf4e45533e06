"""Numbers of a controller, for its metrics.

Source: kafka.controller.ControllerStats.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable

from kafkalite.controller.controller_store import Step
from kafkalite.controller.pending_changes import PendingDeletions, StateChange

logger = logging.getLogger(__name__)

_SHOWN_MAX = 10  # partitions in the log
_DURATIONS_MAX = 100  # that are kept


class Durations:
    """How often something was done, and how long it took the latest hundred times."""

    def __init__(self) -> None:
        self.count = 0
        self._latest_ms: deque[int] = deque(maxlen=_DURATIONS_MAX)

    def add(self, duration_ms: int) -> None:
        self.count += 1
        self._latest_ms.append(duration_ms)

    def quantile_ms(self, quantile: float) -> int | None:
        """How long at most this share of the latest times took; None if there was none."""
        ordered = sorted(self._latest_ms)
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] if ordered else None


class ControllerStats:
    """Since the start of this broker, which may have been the controller several times. `elections` are partitions that
    got another leader, or the former one under a new epoch; `unclean_elections` those whose leader may lack committed
    records. `election_rounds` are the times that leaders were elected, one or thousands together, because brokers came
    or went: Kafka's LeaderElectionRateAndTimeMs. `balances` are the times that it was looked whether leadership has to
    return to preferred replicas: AutoLeaderBalanceRateAndTimeMs. `deletions` are those of now, while it is the
    controller.
    """

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.election_rounds = Durations()
        self.balances = Durations()
        self.deletions = PendingDeletions()

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
