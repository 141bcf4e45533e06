"""The log cleaner: decides which logs are cleaned and when, and has worker processes clean them.

    scan     every log.cleaner.backoff.ms all compacted logs are scanned, some in each turn of the loop; due ones are
             queued, the filthiest first
    clean    each of log.cleaner.threads workers that is free gets the next log, once its dirty range is on the disk
    done     the outcome is recorded, and the next log is cleaned; if the queue is empty and a cleaning made progress,
             the next scan comes at once: the back-off is for when no log is due

A failure is recorded in the state of its log and does not delay the others. An exception of the cleaner itself is
logged and reported (`CleanerHealth`), and the next scan is still scheduled: the cleaner does not stop unnoticed.
Source: kafka.log.LogCleaner, kafka.log.LogCleanerManager (grabFilthiestCompactedLog, doneCleaning).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.job import Ending, FromWorker, LogLine, Outcome, own_fault
from kafkalite.cleaner.schedule import (
    DEATHS_MAX,
    CleanerState,
    CleanerStates,
    CleaningQueue,
    Done,
    QueueEntry,
    RunOutcome,
    RunRequest,
    is_compacted,
    refusal,
    scan_for_due,
)
from kafkalite.cleaner.status import CLEANING, FLUSHING, QUEUED, CleanerHealth, CleanerTotals, PartitionCleaning
from kafkalite.cleaner.workers.cleaning_task import CleaningTask, durable_offset_of, flush_up_to, make_job
from kafkalite.cleaner.workers.worker_process import WorkerPool, WorkerSlot, start_process
from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from kafkalite.cleaner.job.log_to_clean import LogToClean
    from kafkalite.cleaner.workers.worker_process import StartWorker
    from kafkalite.log.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

_BACKOFF_MS_MIN = 100
_STOP_S = 5
_LOGS_PER_TURN = 32  # most need no cleaning any more: 20 us each


class LogCleaner:
    """Belongs to the owner of the logs. `start_worker` starts a worker; None: a process. `released` is called with each
    log whose cleaning has ended. With log.cleaner.enable=false it only reports the status."""

    def __init__(
        self,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        start_worker: StartWorker | None = None,
        released: Callable[[TopicPartition], object] = lambda key: None,
    ) -> None:
        self.is_enabled = config.log_cleaner_enable
        self._logs = logs
        self._config = config
        self._clock = clock
        self._released = released
        self._states = CleanerStates(logs)
        self._queue = CleaningQueue()
        self._workers = WorkerPool(start_worker or start_process, clock, self._receive, self._worker_ended)
        self._tasks: dict[TopicPartition, CleaningTask] = {}
        self._health = CleanerHealth(clock)
        self._totals = CleanerTotals()
        self._scan: Generator[None, None, list[tuple[float, TopicPartition]]] | None = None
        self._scanned_ms = clock.monotonic_ms()
        self._scan_timer: Timer | None = None
        self._turn_timer: Timer | None = None
        self._is_assigning = False
        self._has_progressed = False  # a cleaning since the last scan has
        self._is_stopped = False
        self._at_rest = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None

    # start and stop

    def start(self) -> None:
        """The first scan comes after the back-off. Warns if there are compacted topics and the cleaner is disabled."""
        if self.is_enabled:
            self._unsubscribe = self._logs.on_log_removed.subscribe(self._log_removed)
            self._schedule_scan(self._backoff_ms)
        elif any(map(is_compacted, self._logs.logs.values())):
            logger.warning(
                "log.cleaner.enable is false: topics with cleanup.policy=compact, __consumer_offsets among them, are "
                "not compacted, and grow"
            )

    async def stop(self) -> None:
        """Workers have ended and unfinished files are removed when this returns, at the latest after 5 s."""
        self._is_stopped = True
        self._unsubscribe()
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        self._scan = None
        with self._health.guard("refusing what is queued"):
            self._queue.clear("the broker stops")
        for task in list(self._tasks.values()):
            task.abort("the broker stops")
        self._workers.kill_all("the broker stops")
        if not self._is_at_rest:
            try:
                await asyncio.wait_for(self._at_rest.wait(), _STOP_S)
            except TimeoutError:
                logger.warning("the cleaner did not come to rest within %d s; the broker stops all the same", _STOP_S)

    def kill(self) -> None:
        """Kills the worker processes, without waiting for anything."""
        self._workers.kill_all("the broker is killed")

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies changed settings; cleanings in progress keep the old ones."""
        before_ms, self._config = self._backoff_ms, config
        self._workers.shrink(config.log_cleaner_threads)
        if self.is_enabled and self._backoff_ms != before_ms:  # or frequent changes would postpone the scan
            self._schedule_scan(self._backoff_ms)

    @property
    def is_at_work(self) -> bool:
        """Whether any log is being cleaned, or a scan is in progress."""
        return bool(self._tasks) or self._scan is not None

    # scan

    def scan(self) -> None:
        """Scans all compacted logs now, and cleans the due ones."""
        self._schedule_scan(self._backoff_ms)  # first, so that the next scan comes even if this one fails
        if self._scan is not None or self._is_stopped or not self.is_enabled:
            return
        with self._health.guard("scanning logs"):
            self._has_progressed = False
            self._health.scan_began()
            self._scanned_ms = self._clock.monotonic_ms()
            for task in list(self._tasks.values()):
                self._watch(task)
            self._scan = scan_for_due(self._logs, self._states, self._clock, self._health)
            self._continue_scan()

    def _continue_scan(self) -> None:
        """Scans some logs now, and the others in later turns of the loop."""
        if self._scan is not None:
            try:
                next(self._scan)
                self._clock.call_later(0, self._continue_scan)
            except StopIteration as end:
                self._scanned(end.value)

    def _schedule_scan(self, delay_ms: int) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        if not self._is_stopped:
            self._scan_timer = self._clock.call_later(delay_ms, self.scan)

    @property
    def _backoff_ms(self) -> int:
        return max(_BACKOFF_MS_MIN, self._config.log_cleaner_backoff_ms)

    def _scanned(self, due: list[tuple[float, TopicPartition]]) -> None:
        self._scan = None
        with self._health.guard("queueing due logs"):
            ratios = (state.plan.dirty_ratio for state in self._states if state.plan)
            self._totals = self._totals._replace(max_dirty_ratio=max(ratios, default=0.0))
            for state in self._states:
                if state.current is QUEUED:
                    state.become_idle()
            for key in self._queue.replace_due(due):
                if (found := self._states.get(key)) is not None:
                    found.enter(QUEUED)
        self._health.scan_ended()
        self._assign()

    # clean

    def _assign(self) -> None:
        """Gives the next logs to the workers that are free."""
        if self._is_assigning:
            return
        self._is_assigning = True
        if self._turn_timer is not None:
            self._turn_timer.cancel()
            self._turn_timer = None
        with self._health.guard("assigning logs to workers"):
            for _ in range(_LOGS_PER_TURN):
                if not self._may_clean or (entry := self._queue.take()) is None:
                    break
                self._clean(entry)
            else:
                self._turn_timer = self._clock.call_later(0, self._assign)
        self._is_assigning = False
        if self._has_progressed and self._queue.is_empty and self._scan is None:
            self._has_progressed = False
            self._schedule_scan(0)

    @property
    def _may_clean(self) -> bool:
        is_free = len(self._workers.busy) < self._config.log_cleaner_threads
        return is_free and not self._is_stopped and self._health.may_start

    def _clean(self, entry: QueueEntry) -> None:
        """Cleans a log, if it is still due or requested."""
        log = self._logs.logs.get(entry.key)
        if log is None or not is_compacted(log) or entry.key in self._logs.moves:
            why = "it is gone, is on the move to another directory, or is not compacted any more"
            self._finish(entry, RunOutcome(*entry.key, error=why))
            return
        state = self._states.of(log)
        if not entry.requests and state.current is not QUEUED:  # a request was served meanwhile
            self._queue.finish(entry)
            return
        try:
            self._flush_or_clean(entry, state)
        except (OSError, KafkaError) as error:
            self._record(entry, state, Outcome(Ending.REFUSED, str(error)))
        except Exception as error:  # a fault with one log must not keep all others waiting
            self._health.fault(f"beginning to compact {log.topic}-{log.partition}", error)
            self._record(entry, state, own_fault(error))

    def _flush_or_clean(self, entry: QueueEntry, state: CleanerState) -> None:
        """Raises OSError, KafkaError."""
        log, now_ms = state.log, self._clock.wall_ms()
        durable_offset = durable_offset_of(self._logs, log)
        plan = self._states.make_plan(state, now_ms, durable_offset if entry.is_durable else None)
        if not plan.is_due and not (plan.dirty_bytes and entry.requests):
            state.become_idle()
            self._finish(entry, RunOutcome(*state.key, why_not=plan.why_not))
        elif durable_offset < plan.first_uncleanable_offset:
            state.enter(FLUSHING)
            flush_up_to(self._logs, log, plan.first_uncleanable_offset, partial(self._flushed, entry, state))
        else:
            self._start_task(entry, state, plan, now_ms)

    def _flushed(self, entry: QueueEntry, state: CleanerState, error: str | None) -> None:
        if error is None or self._logs.logs.get(state.key) is not state.log:
            state.enter(QUEUED)
            self._queue.put_back(entry, is_durable=True)
        else:
            self._record(entry, state, Outcome(Ending.REFUSED, error))
        self._assign()

    def _start_task(self, entry: QueueEntry, state: CleanerState, plan: LogToClean, now_ms: int) -> None:
        """Raises OSError, KafkaError."""
        job = make_job(state.log, plan, self._config, now_ms)
        try:
            slot = self._workers.take()
        except OSError as error:
            reason = f"no cleaner process can begin: {error}"
            self._health.cannot_start(reason, self._backoff_ms)
            self._record(entry, state, Outcome(Ending.REFUSED, reason))
            return
        directory = self._logs.directory_of(state.key)
        task = CleaningTask(state.log, directory, job, slot.send, partial(self._done, entry, state))
        task.last_message_ms = self._clock.monotonic_ms()
        self._tasks[state.key] = task
        self._logs.being_cleaned.add(state.key)
        state.enter(CLEANING)
        try:
            self._workers.begin(slot, task, self._config.log_cleaner_io_max_bytes_per_second)
        except Exception as error:
            self._health.fault(f"giving {task.name} to a worker", error)
            slot.kill(Ending.FAILED, own_fault(error).reason)
            task.end_without_worker(own_fault(error))

    def _receive(self, slot: WorkerSlot, message: FromWorker) -> None:
        if isinstance(message, LogLine):
            logging.getLogger(message.logger).log(message.level, "%s", message.text)
            return
        self._health.has_started()
        task = slot.task
        if task is None:
            return
        task.last_message_ms = self._clock.monotonic_ms()
        try:
            self._watch(task)
            task.receive(message)
        except Exception as error:
            self._health.fault(f"compacting {task.name}", error)
            slot.kill(Ending.FAILED, own_fault(error).reason)

    def _watch(self, task: CleaningTask) -> None:
        """Aborts a task that is no longer wanted, and kills a worker that is silent."""
        if task.is_swapping:
            task.last_message_ms = self._clock.monotonic_ms()  # the worker waits for the log
            return
        log = self._logs.logs.get(task.key)
        if log is not task.log:
            task.abort("the log is gone")
        elif not is_compacted(log):
            task.abort("its cleanup.policy does not contain compact any more")
        elif (reason := task.stale_reason()) is not None:
            task.abort(reason)
        self._workers.kill_if_silent(task)

    def _log_removed(self, key: TopicPartition) -> None:
        self._states.forget(key)
        if (task := self._tasks.get(key)) is not None:
            task.abort("the log is gone")

    def _worker_ended(self, slot: WorkerSlot, reason: str) -> None:
        with self._health.guard("the end of a worker"):
            outcome, is_death = slot.outcome(reason)
            self._totals = self._totals._replace(worker_deaths=self._totals.worker_deaths + is_death)
            if outcome.ending is Ending.REFUSED:
                self._health.cannot_start(outcome.reason, self._backoff_ms)
            if slot.task is not None:
                slot.task.end_without_worker(outcome)
            elif is_death:
                logger.error("%s", outcome.reason)
        self._check_at_rest()

    # done

    def _done(self, entry: QueueEntry, state: CleanerState, task: CleaningTask, outcome: Outcome) -> None:
        with self._health.guard(f"the end of compacting {task.name}"):
            del self._tasks[task.key]
            self._logs.being_cleaned.discard(task.key)
            self._queue.finish(entry)
            self._workers.release(task, self._config.log_cleaner_io_max_bytes_per_second)
            self._workers.shrink(self._config.log_cleaner_threads)
            result = outcome.result
            has_progressed = result is not None and result.end_offset > task.job.first_dirty_offset
            self._has_progressed |= has_progressed
            is_partial = has_progressed and result is not None and not result.is_complete  # the map was full
            self._record(entry, state, outcome, is_partial=is_partial)
            self._released(task.key)
        self._check_at_rest()
        self._assign()

    def _record(self, entry: QueueEntry, state: CleanerState, outcome: Outcome, *, is_partial: bool = False) -> None:
        """A cleaning has ended, or could not begin. A partial one that was requested is repeated first of all."""
        key = state.key
        state.ended(outcome, self._clock.monotonic_ms(), self._clock.wall_ms(), self._backoff_ms)
        if outcome.result is not None:
            self._totals = self._totals.after(outcome.result.stats)
            logger.info("%s-%d %s", *key, outcome.result.summary())
            if unread := outcome.result.stats.unread:
                logger.warning("%s-%d: %s", *key, unread)
            if is_partial and entry.requests:
                self._queue.put_back(entry)
            else:
                self._finish(entry, RunOutcome(*key, stats=outcome.result.stats))
            return
        if outcome.ending is Ending.DIED and state.deaths < DEATHS_MAX:
            logger.error("%s; it is tried once more", outcome.reason)
            state.enter(QUEUED)
            self._queue.put_back(entry)
            return
        if outcome.ending is Ending.ABORTED:
            logger.info("compacting %s-%d was given up: %s", *key, outcome.reason)
        else:
            next_step = "it is tried again later" if state.uncleanable is None else "it is uncleanable"
            if outcome.ending is Ending.DIED:
                next_step += " for an hour"
            logger.error("cannot compact %s-%d: %s; %s", *key, outcome.reason, next_step)
        self._finish(entry, RunOutcome(*key, error=outcome.reason))

    def _finish(self, entry: QueueEntry, outcome: RunOutcome) -> None:
        self._queue.finish(entry)
        with self._health.guard("reporting the outcome of a run"):
            entry.answer(outcome)

    @property
    def _is_at_rest(self) -> bool:
        return not self._tasks and not self._workers.slots

    def _check_at_rest(self) -> None:
        if self._is_stopped and self._is_at_rest:
            self._at_rest.set()

    # requests and status

    def run_now(self, topic: str, partitions: Sequence[int] | None, roll: bool, done: Done) -> None:
        """Cleans these partitions (None: all) of a topic as far as possible, regardless of their dirty ratio; with
        `roll` also the records in their active segments. `done` gets the outcomes when all have ended."""
        if partitions is None:
            partitions = sorted(index for name, index in self._logs.logs if name == topic)
        left = deque((topic, index) for index in dict.fromkeys(partitions))
        request = RunRequest(left, done)

        def turn() -> None:
            for _ in range(min(len(left), 1 if roll else _LOGS_PER_TURN)):  # a new segment takes 1 ms
                self._request(left.popleft(), request, roll)
            if left:
                self._clock.call_later(0, turn)
            self._assign()

        turn()

    def _request(self, key: TopicPartition, request: RunRequest, roll: bool) -> None:
        log = self._logs.logs.get(key)
        error = self._disabled_reason or refusal(log, roll, self._clock.wall_ms())
        if error is None and log is not None:
            self._states.of(log).forgive()
            self._queue.request(key, request)
            self._health.retry_now()
        else:
            with self._health.guard("reporting the outcome of a run"):
                request.add(RunOutcome(*key, error=error))

    @property
    def _disabled_reason(self) -> str | None:
        if self._is_stopped:
            return "the broker stops"
        return None if self.is_enabled else "log.cleaner.enable is false"

    @property
    def problem(self) -> str | None:
        """The problem of the cleaner as a whole, or None."""
        return self._health.text

    def rows(
        self, keys: Iterable[TopicPartition] | None = None, *, as_last_seen: bool = False
    ) -> Iterator[PartitionCleaning]:
        """The rows of compacted logs among `keys` (None: all), each made when the iterator is advanced, so that a
        caller that needs many can pause. `as_last_seen`: the plans of the last scan are used."""
        for key in list(self._logs.logs) if keys is None else keys:
            log = self._logs.logs.get(key)
            if log is None or not is_compacted(log):
                continue
            state = self._states.of(log)
            if state.plan is None or not as_last_seen:
                with contextlib.suppress(OSError, KafkaError):  # the row has the error
                    self._states.make_plan(state, self._clock.wall_ms())
            why_nothing_runs = self.problem if self.is_enabled else "log.cleaner.enable is false"
            yield state.row(why_nothing_runs, self._clock.monotonic_ms())

    def totals(self) -> CleanerTotals:
        uncleanable = [state for state in self._states if state.uncleanable is not None]
        return self._totals._replace(
            workers=len(self._workers.slots),
            workers_busy=len(self._workers.busy),
            uncleanable_partitions=len(uncleanable),
            uncleanable_bytes=sum(state.plan.dirty_bytes for state in uncleanable if state.plan is not None),
            failing_partitions=sum(state.is_failing for state in self._states),
            ms_since_last_run=self._clock.monotonic_ms() - self._scanned_ms,
        )
