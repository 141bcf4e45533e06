"""Work for other threads: jobs of one lane run in the order they came, those of different lanes side by side.

A job gets only paths, descriptors and bytes. What became of it waits in a queue until the owner's thread hears it
(`hear`, `wait`), and only then does the lane's next job begin: whoever asked knows how the last one ended before the
next one counts. `wake` is called on the worker's thread when there is something to hear.
Source: kafka.utils.KafkaScheduler, as far as it flushes, checkpoints and deletes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable

from kafkalite.log.storage.files import Background, Done, Job

logger = logging.getLogger(__name__)

RunInBackground = Callable[[Job], object]
_WAIT_SECONDS = 60


class SerialExecutor:
    """Belongs to one thread, which alone calls its methods. `run` hands a job to a worker; None runs it at once."""

    def __init__(self, run: RunInBackground | None = None, wake: Callable[[], object] | None = None) -> None:
        self._run = run
        self._wake = wake or (lambda: None)
        self._finished: queue.SimpleQueue[tuple[_Lane, Exception | None]] = queue.SimpleQueue()
        self.pending = 0

    def lane(self) -> Background:
        """A new lane: call it with a job and with what is to be told of its end."""
        return _Lane(self)

    def run_completions(self) -> None:
        """Tell those who asked what became of their jobs so far."""
        while not self._finished.empty():
            self._ended(*self._finished.get())

    def wait(self) -> None:
        """Hear of every job that was handed out. Gives up, with a line in the log, when one takes a minute."""
        try:
            while self.pending:
                self._ended(*self._finished.get(timeout=_WAIT_SECONDS))
        except queue.Empty:
            logger.error("%d background jobs never ended", self.pending)

    def _begin(self, lane: _Lane) -> None:
        job, done = lane.jobs[0]
        if self._run is None:
            lane.jobs.popleft()
            error: Exception | None = None
            try:
                job()
            except Exception as fault:
                error = fault
            done(error)
            return
        self.pending += 1
        self._run(lambda: self._work(lane, job))

    def _work(self, lane: _Lane, job: Job) -> None:
        error: Exception | None = None
        try:
            job()
        except Exception as fault:
            error = fault
        self._finished.put((lane, error))
        self._wake()

    def _ended(self, lane: _Lane, error: Exception | None) -> None:
        self.pending -= 1
        _, done = lane.jobs.popleft()
        if lane.jobs:
            self._begin(lane)
        done(error)


class _Lane:
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
    """Threads that do what they are given, begun when needed, at most `most` of them. Belongs to one thread.

    20 us from a job to who hears of its end; 35 us with a ThreadPoolExecutor and its futures. What a producer that
    waits for each flush hears of: p50 343 us instead of 382 (bench: flushed-produce-1).
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, job: Job) -> None:
        """Have `job` done. Raises RuntimeError when not one thread can be had."""
        self._jobs.put(job)
        count = len(self._threads)
        if count < self._most and self._jobs.qsize():
            thread = threading.Thread(target=self._work, name=f"{self._name}_{count}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # then those that there are take it in their turn
                if not count:
                    raise
            else:
                self._threads.append(thread)

    def close(self) -> None:
        """Wait until everything is done, and the threads have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # such as that the loop which is to be woken is closed
                logger.exception("a job failed")
            del job  # or what it holds would be held until the next one comes
