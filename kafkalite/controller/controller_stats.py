"""Numbers of a controller, for its metrics.

Source: kafka.controller.ControllerStats.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable

from kafkalite.controller.controller_store import Step
from kafkalite.controller.pending_changes import StateChange

logger = logging.getLogger(__name__)

_SHOWN_MAX = 10  # partitions in the log
_ROUNDS_MAX = 100  # of which the durations are kept


class ControllerStats:
    """Since the start of this broker, which may have been the controller several times. `elections` are partitions that
    got another leader, or the former one under a new epoch; `unclean_elections` those whose leader may lack committed
    records. `election_rounds` are the times that leaders were elected, one or thousands together, because brokers came
    or went: Kafka's LeaderElectionRateAndTimeMs. `topics_to_delete` are those of now, while it is the controller, and
    `ineligible_topics` those among them that wait for a broker that is away.
    """

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.election_rounds = 0
        self.topics_to_delete = 0
        self.ineligible_topics = 0
        self._round_ms: deque[int] = deque(maxlen=_ROUNDS_MAX)

    def add_round(self, duration_ms: int) -> None:
        self.election_rounds += 1
        self._round_ms.append(duration_ms)

    def round_ms(self, quantile: float) -> int | None:
        """How long at most this share of the latest rounds took; None if there was none."""
        ordered = sorted(self._round_ms)
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] if ordered else None

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
