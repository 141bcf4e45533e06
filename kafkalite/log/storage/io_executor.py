"""Background jobs: those of one queue run in the order they came, those of different queues side by side.

A job gets only paths, descriptors and bytes. Its outcome waits in a queue until the owner's thread runs the completion
(`run_completions`, `wait`), and only then does the queue's next job begin: so the owner knows how a job ended before
the next one has an effect. `wake` is called on the worker's thread when there is a completion to run.
Source: kafka.utils.KafkaScheduler, for flushes, checkpoints and deletions.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable

from kafkalite.log.storage.files import Background, Done, Job, outcome_of

logger = logging.getLogger(__name__)

RunInBackground = Callable[[Job], object]
_WAIT_SECONDS = 60


class SerialExecutor:
    """Belongs to one thread, which alone calls its methods. `run` hands a job to a worker; None runs it at once."""

    def __init__(self, run: RunInBackground | None = None, wake: Callable[[], object] | None = None) -> None:
        self._run = run
        self._wake = wake or (lambda: None)
        self._finished: queue.SimpleQueue[tuple[_SerialQueue, Exception | None]] = queue.SimpleQueue()
        self.pending = 0

    def serial_queue(self) -> Background:
        """A new queue: a function that takes a job and its completion."""
        return _SerialQueue(self)

    def run_completions(self) -> None:
        """Runs the completions of the jobs that have ended so far."""
        while not self._finished.empty():
            self._complete(*self._finished.get())

    def wait(self) -> None:
        """Waits for every job and runs its completion. Gives up, with a line in the log, when one takes a minute."""
        try:
            while self.pending:
                self._complete(*self._finished.get(timeout=_WAIT_SECONDS))
        except queue.Empty:
            logger.error("%d background jobs never ended", self.pending)

    def _begin(self, serial: _SerialQueue) -> None:
        job, done = serial.jobs[0]
        if self._run is None:
            serial.jobs.popleft()
            done(outcome_of(job))
            return
        self.pending += 1
        self._run(lambda: self._work(serial, job))

    def _work(self, serial: _SerialQueue, job: Job) -> None:
        self._finished.put((serial, outcome_of(job)))
        self._wake()

    def _complete(self, serial: _SerialQueue, error: Exception | None) -> None:
        self.pending -= 1
        _, done = serial.jobs.popleft()
        if serial.jobs:
            self._begin(serial)
        done(error)


class _SerialQueue:
    """Invariant: the first of `jobs` is with a worker."""

    __slots__ = ("_work", "jobs")

    def __init__(self, work: SerialExecutor) -> None:
        self._work = work
        self.jobs: deque[tuple[Job, Done]] = deque()

    def __call__(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))
        if len(self.jobs) == 1:
            self._work._begin(self)


class FlushThreadPool:
    """A thread pool that grows on demand, up to `threads_max` threads. Belongs to one thread.

    20 us from a job to its completion; 35 us with a ThreadPoolExecutor and its futures. A produce that waits for its
    flush takes 343 us (p50) instead of 382 (bench: flushed-produce-1).
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, job: Job) -> None:
        """Runs `job` on some thread. Raises RuntimeError when not even one thread can be started."""
        self._jobs.put(job)
        count = len(self._threads)
        if count < self._threads_max and self._jobs.qsize():
            thread = threading.Thread(target=self._work, name=f"{self._name}_{count}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # then the threads that there are take the job in their turn
                if not count:
                    raise
            else:
                self._threads.append(thread)

    def close(self) -> None:
        """Waits until every job is done and the threads have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # for example, the loop to be woken is closed
                logger.exception("a job failed")
            del job  # or its references would live until the next job comes
