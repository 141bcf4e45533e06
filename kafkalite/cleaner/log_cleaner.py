"""Which logs are compacted, and when: the part of the cleaner that lives in the broker.

    look      every log.cleaner.backoff.ms all compacted logs are looked at, some in each turn of the loop; those that
              are due wait in a queue, the dirtiest first
    assign    each of log.cleaner.threads workers that is free gets the first of them (`cleaning_pass`)
    over      the next one, or another look at once if this one came forward: the back-off is for when nothing is due

    footing   before a pass: what it relies on is on the disk

What goes wrong is remembered with the log it went wrong with (`standing`) and does not keep the others waiting. What
goes wrong in here is logged and shown (`trouble`), and the next look comes all the same: the cleaner does not stop
without being seen.
Source: kafka.log.LogCleaner, kafka.log.LogCleanerManager (grabFilthiestCompactedLog, doneCleaning).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.worker_messages import FromWorker, LogLine
from kafkalite.cleaner.manager.cleaner_health import CleanerHealth
from kafkalite.cleaner.manager.cleaner_state import CleanerState, CleanerStates, is_compacted
from kafkalite.cleaner.manager.cleaning_queue import Admission, CleaningQueue, Done, RunOutcome, RunRequest, RunRequests
from kafkalite.cleaner.manager.cleaning_results import CleanerSums, CleaningResults
from kafkalite.cleaner.manager.dirty_log_scan import DirtyLogScan
from kafkalite.cleaner.manager.durability_check import DurabilityCheck
from kafkalite.cleaner.manager.job_builder import make_job
from kafkalite.cleaner.manager.status_report import StatusReport
from kafkalite.cleaner.workers.cleaning_task import CleaningTask, Ending, Outcome
from kafkalite.cleaner.workers.worker_pool import WorkerPool, WorkerSlot
from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from kafkalite.cleaner.job.log_to_clean import LogToClean
    from kafkalite.cleaner.workers.worker_process import BeginWorker
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_BACKOFF_MS_MIN = 100
_STOP_S = 5
_BEGINNINGS_PER_TURN = 32  # most of which turn out to have no reason any more: 20 us each


class LogCleaner:
    """Belongs to the owner of the logs. `released` is told of logs that are not busy any more. With
    log.cleaner.enable=false it only answers questions."""

    def __init__(
        self,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        begin_worker: BeginWorker,
        released: Callable[[TopicPartition], object] = lambda key: None,
    ) -> None:
        self.is_enabled = config.log_cleaner_enable
        self._logs = logs
        self._config = config
        self._clock = clock
        self._released = released
        self._crew = WorkerPool(begin_worker, clock, self._heard, self._worker_ended)
        self._standings = CleanerStates(logs)
        self._trouble = CleanerHealth(clock)
        self._own_fault = self._trouble.fault
        self._footing = DurabilityCheck(logs)
        self._admission = Admission(logs, self._standings, clock, self._why_none)
        self._running: dict[TopicPartition, CleaningTask] = {}
        self._requests = RunRequests()
        self._line = CleaningQueue(self._standings, self._requests, self.is_busy)
        self._look: DirtyLogScan | None = None
        self._timer: Timer | None = None
        self._came_forward = False  # a pass since the last look did
        self._is_assigning = self._assigns_later = False
        self._sums = CleanerSums(clock.monotonic_ms())
        self._outcomes = CleaningResults(self._line, self._requests, self._sums, clock, self._own_fault)
        self._overview = StatusReport(
            logs, self._standings, self._running, self._crew, self._sums, clock, self._why_nothing_runs
        )
        self.rows = self._overview.rows
        self.status = self._overview.status
        self.totals = self._overview.totals
        self._is_stopped = False
        self._at_rest = asyncio.Event()

    @property
    def trouble(self) -> str | None:
        """What is wrong with the cleaner as a whole; None while all is well."""
        return self._trouble.text

    # coming and going

    def start(self) -> None:
        """The first look comes after the back-off. Warns if there is something to compact and it may not."""
        if self.is_enabled:
            self._logs.on_log_removed = self._gone
            self._look_later()
        elif any(map(is_compacted, self._logs.logs.values())):
            logger.warning(
                "log.cleaner.enable is false: topics with cleanup.policy=compact, __consumer_offsets among them, are "
                "not compacted, and grow"
            )

    async def stop(self) -> None:
        """Nobody works any more when this returns, or a moment has passed; what was not finished is removed."""
        self._is_stopped = True
        self._logs.on_log_removed = lambda key: None
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.stop()
        try:
            self._requests.give_up("the broker stops")
        except Exception as error:
            self._own_fault("telling that the broker stops", error)
        self._line.clear()
        for cleaning in list(self._running.values()):
            cleaning.abort("the broker stops")
        self._crew.kill_all("the broker stops")
        if not self._is_at_rest:
            try:
                await asyncio.wait_for(self._at_rest.wait(), _STOP_S)
            except TimeoutError:
                logger.warning("the cleaner did not come to rest within %d s; the broker stops all the same", _STOP_S)

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed: what is under way goes on with the old ones."""
        before_ms, self._config = self._backoff_ms, config
        self._crew.shrink(config.log_cleaner_threads)
        if self.is_enabled and self._backoff_ms != before_ms:  # or settings that change all the time would put it off
            self._look_later()

    def is_busy(self, key: TopicPartition) -> bool:
        """Whether the first segments of a log are being compacted, and must be left alone."""
        return key in self._running

    # looking for work

    def look(self) -> None:
        """Look at all compacted logs now, and begin with those that are due."""
        self._look_later()  # first of all: whatever happens here, there is a next time
        if self._look is not None or self._is_stopped or not self.is_enabled:
            return
        try:
            self._came_forward = False
            self._trouble.look_begins()
            self._sums.looked(self._clock.monotonic_ms())
            for cleaning in list(self._running.values()):
                self._watch(cleaning)
            self._look = DirtyLogScan(
                self._logs, self._standings, self._clock, self.is_busy, self._looked, self._own_fault
            )
            self._look.turn()
        except Exception as error:
            self._own_fault("looking for logs", error)

    def _look_later(self, delay_ms: int | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_stopped:
            self._timer = self._clock.call_later(self._backoff_ms if delay_ms is None else delay_ms, self.look)

    @property
    def _backoff_ms(self) -> int:
        return max(_BACKOFF_MS_MIN, self._config.log_cleaner_backoff_ms)

    def _looked(self, due: list[TopicPartition]) -> None:
        self._look = None
        try:
            self._sums.max_dirty_ratio = max((s.plan.dirty_ratio for s in self._standings if s.plan), default=0.0)
            self._line.found(due)
        except Exception as error:
            self._own_fault("what a look has found", error)
        self._trouble.look_ended()
        self._assign()

    # giving work out

    def _assign(self) -> None:
        if self._is_assigning:  # the one that is under way goes on
            return
        self._is_assigning = True
        try:
            for _ in range(_BEGINNINGS_PER_TURN):
                if not self._may_begin() or (key := self._line.next()) is None:
                    break
                self._begin(key)
            else:
                self._assign_later()
        except Exception as error:
            self._own_fault("giving work out", error)
        finally:
            self._is_assigning = False
        if self._came_forward and self._line.is_empty and self._look is None and not self._is_stopped:
            self._came_forward = False
            self._look_later(0)

    def _assign_later(self) -> None:
        if not self._assigns_later:
            self._assigns_later = True
            self._clock.call_later(0, self._assign_after_all)

    def _assign_after_all(self) -> None:
        self._assigns_later = False
        self._assign()

    def _may_begin(self) -> bool:
        is_free = len(self._crew.busy) < self._config.log_cleaner_threads
        return is_free and not self._is_stopped and self._trouble.may_begin

    def _begin(self, key: TopicPartition) -> None:
        """Begin a pass, if there is still reason to."""
        is_asked_for = self._requests.serve(key)
        is_ready = key in self._line.ready
        self._line.ready.discard(key)
        log = self._logs.logs.get(key)
        if log is None or not is_compacted(log):
            self._outcomes.tell(RunOutcome(*key, error="it is gone, or is not compacted any more"))
            return
        standing = self._standings.of(log)
        standing.is_queued = False
        try:
            self._begin_with(log, standing, is_asked_for, is_ready)
        except (OSError, KafkaError) as error:
            self._outcomes.ended(standing, Outcome(Ending.REFUSED, str(error)), self._backoff_ms)
        except Exception as error:  # one log's trouble must not keep all others waiting
            self._own_fault(f"beginning to compact {key[0]}-{key[1]}", error)
            self._outcomes.ended(standing, _of_our_own(error), self._backoff_ms)

    def _begin_with(self, log: PartitionLog, standing: CleanerState, is_asked_for: bool, is_ready: bool) -> None:
        """Raises OSError, KafkaError."""
        key = standing.key
        now_ms = self._clock.wall_ms()
        footing = self._footing.of(log)
        plan = self._standings.make_plan(standing, now_ms, footing if is_ready else None)
        if not plan.is_due and not (plan.dirty_bytes and is_asked_for):
            self._outcomes.tell(RunOutcome(*key, why_not=plan.why_not))
        elif footing < plan.first_uncleanable_offset:
            self._line.step_out(standing)
            self._footing.reach(log, plan.first_uncleanable_offset, lambda why: self._reached(log, standing, why))
        else:
            self._give_out(log, standing, plan, now_ms)

    def _reached(self, log: PartitionLog, standing: CleanerState, why_not: str | None) -> None:
        """The footing of a log has been seen to."""
        self._line.away.discard(standing.key)
        standing.is_queued = False
        if why_not is None or self._logs.logs.get(standing.key) is not log:
            self._line.come_back(standing)
        else:
            self._outcomes.ended(standing, Outcome(Ending.REFUSED, why_not), self._backoff_ms)
        self._assign()

    def _give_out(self, log: PartitionLog, standing: CleanerState, plan: LogToClean, now_ms: int) -> None:
        """Raises OSError, KafkaError."""
        job = make_job(log, plan, self._config, now_ms)
        try:
            seat = self._crew.take()
        except OSError as error:
            why = f"no cleaner process can begin: {error}"
            self._trouble.cannot_begin(why, self._backoff_ms)
            self._outcomes.ended(standing, Outcome(Ending.REFUSED, why), self._backoff_ms)
            return
        cleaning = CleaningTask(log, self._logs.directory_of(standing.key), job, seat.say, self._over)
        cleaning.heard_ms = self._clock.monotonic_ms()
        self._running[standing.key] = cleaning
        try:
            self._crew.begin(seat, cleaning, self._config.log_cleaner_io_max_bytes_per_second)
        except Exception as error:
            self._own_fault(f"giving {cleaning.name} to a worker", error)
            seat.kill(Ending.FAILED, _of_our_own(error).reason)
            cleaning.end_without_worker(_of_our_own(error))

    # while they work

    def _heard(self, seat: WorkerSlot, message: FromWorker) -> None:
        if isinstance(message, LogLine):
            logging.getLogger(message.logger).log(message.level, "%s", message.text)
            return
        self._trouble.has_begun()
        cleaning = seat.running
        if cleaning is None:
            return
        cleaning.heard_ms = self._clock.monotonic_ms()
        try:
            self._watch(cleaning)
            cleaning.hear(message)
        except Exception as error:
            self._own_fault(f"compacting {cleaning.name}", error)
            seat.kill(Ending.FAILED, _of_our_own(error).reason)

    def _watch(self, cleaning: CleaningTask) -> None:
        """Is it still wanted, and does it go on?"""
        if cleaning.is_swapping:
            cleaning.heard_ms = self._clock.monotonic_ms()  # the log is at work, and the worker waits
            return
        log = self._logs.logs.get(cleaning.key)
        if log is not cleaning.log:
            cleaning.abort("the log is gone")
        elif not is_compacted(log):
            cleaning.abort("its cleanup.policy does not contain compact any more")
        elif (reason := cleaning.why_stale()) is not None:
            cleaning.abort(reason)
        self._crew.end_if_silent(cleaning)

    def _gone(self, key: TopicPartition) -> None:
        """A log was let go of."""
        self._standings.forget(key)
        cleaning = self._running.get(key)
        if cleaning is not None:
            cleaning.abort("the log is gone")

    def _worker_ended(self, seat: WorkerSlot, reason: str) -> None:
        cleaning = seat.running
        try:
            outcome, is_death = seat.what_came_of_it(reason)
            self._sums.worker_deaths += is_death
            if outcome.ending is Ending.REFUSED:
                self._trouble.cannot_begin(outcome.reason, self._backoff_ms)
            if cleaning is not None:
                cleaning.end_without_worker(outcome)
            elif is_death:
                logger.error("%s", outcome.reason)
        except Exception as error:
            self._own_fault("the end of a worker", error)
        self._look_whether_at_rest()

    # when it is over

    def _over(self, cleaning: CleaningTask, outcome: Outcome) -> None:
        try:
            self._running.pop(cleaning.key, None)
            for seat in self._crew.busy:
                if seat.running is cleaning:
                    self._crew.release(seat, self._config.log_cleaner_io_max_bytes_per_second)
            self._crew.shrink(self._config.log_cleaner_threads)
            is_partial = False
            if outcome.result is not None:
                came_forward = outcome.result.end_offset > cleaning.job.first_dirty_offset
                self._came_forward |= came_forward
                is_partial = came_forward and not outcome.result.is_complete  # the map was full
            is_here = self._logs.logs.get(cleaning.key) is cleaning.log  # what is gone is not to be remembered again
            standing = self._standings.of(cleaning.log) if is_here else CleanerState(cleaning.log)
            self._outcomes.ended(standing, outcome, self._backoff_ms, is_partial=is_partial)
            self._released(cleaning.key)
        except Exception as error:
            self._own_fault(f"the end of compacting {cleaning.name}", error)
        self._look_whether_at_rest()
        self._assign()

    @property
    def _is_at_rest(self) -> bool:
        return not self._running and not self._crew.seats

    def _look_whether_at_rest(self) -> None:
        if self._is_stopped and self._is_at_rest:
            self._at_rest.set()

    # for people

    def run_now(self, topic: str, partitions: Sequence[int] | None, roll: bool, done: Done) -> None:
        """Compact these partitions (None: all) of a topic as far as they can be, however little is dirty; with `roll`
        also what is in their active segments. `done` hears what came of it when all of it is over."""
        if partitions is None:
            partitions = sorted(index for name, index in self._logs.logs if name == topic)
        keys = [(topic, index) for index in dict.fromkeys(partitions)]
        request = RunRequest(keys, done)

        def decided(key: TopicPartition, refusal: str | None) -> None:
            if refusal is None:
                self._requests.add(key, request)
                self._trouble.try_again()
                return
            try:
                request.tell(RunOutcome(*key, error=refusal))
            except Exception as error:
                self._own_fault("telling what came of a run", error)

        self._admission.take(keys, roll, decided, self._assign)

    def _why_none(self) -> str | None:
        if self._is_stopped:
            return "the broker stops"
        return None if self.is_enabled else "log.cleaner.enable is false"

    def _why_nothing_runs(self) -> str | None:
        return self.trouble if self.is_enabled else "log.cleaner.enable is false"


def _of_our_own(error: Exception) -> Outcome:
    return Outcome(Ending.FAILED, f"the cleaner has a fault of its own: {error!r}")
