"""What came of a pass: it is remembered with its log, summed up, written into the broker's log, and told to whoever
waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.cleaner.cleaning_pass import Ending, Outcome
from kafkalite.cleaner.line import Line
from kafkalite.cleaner.run_request import RunOutcome, RunRequests
from kafkalite.cleaner.standing import DEATHS_MAX, Standing
from kafkalite.cleaner.totals import Sums, told
from kafkalite.common.clock import Clock

logger = logging.getLogger(__name__)


class Outcomes:
    """`fault` is told when whoever waits cannot hear it."""

    def __init__(
        self, line: Line, requests: RunRequests, sums: Sums, clock: Clock, fault: Callable[[str, Exception], None]
    ) -> None:
        self._line = line
        self._requests = requests
        self._sums = sums
        self._clock = clock
        self._fault = fault

    def ended(self, standing: Standing, outcome: Outcome, backoff_ms: int, *, is_partial: bool = False) -> None:
        """A pass of a log ended, or could not begin. One of which only a part is done has another turn first."""
        key = standing.key
        standing.ended(outcome, self._clock.monotonic_ms(), self._clock.wall_ms(), backoff_ms)
        if outcome.result is not None:
            self._sums.add(outcome.result.stats)
            logger.info("%s-%d %s", *key, told(outcome.result))
            if is_partial:
                self._requests.serve_again(key)
            else:
                self.tell(RunOutcome(*key, stats=outcome.result.stats))
        elif outcome.ending is Ending.ABORTED:
            logger.info("compacting %s-%d was given up: %s", *key, outcome.reason)
            self.tell(RunOutcome(*key, error=outcome.reason))
        elif outcome.ending is Ending.DIED and standing.deaths < DEATHS_MAX:
            logger.error("%s; it is tried once more", outcome.reason)
            self._line.put_first(standing)
        else:
            what_next = "it is tried again later" if standing.set_aside is None else "it is set aside"
            if outcome.ending is Ending.DIED:
                what_next += " for an hour"
            logger.error("cannot compact %s-%d: %s; %s", *key, outcome.reason, what_next)
            self.tell(RunOutcome(*key, error=outcome.reason))

    def tell(self, outcome: RunOutcome) -> None:
        """Those whom the pass was to serve."""
        try:
            self._requests.tell(outcome)
        except Exception as error:
            self._fault("telling what came of a run", error)
