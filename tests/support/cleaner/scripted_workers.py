"""Workers that are no processes: they do the real work in this one, or nothing until a test says what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import Abort, Clean, CleanJob, Ending, FromWorker, Outcome, Rate, Ready, ToWorker
from kafkalite.cleaner.workers.worker_main import CleanFunction, perform
from kafkalite.log.storage.files import Files


class Worker:
    """`said` is what it was told. One that is `lazy` takes a job and does nothing: the test speaks for it (`hear`)."""

    def __init__(self, staff: Staff, hear: Callable[[FromWorker], None], ended: Callable[[str], None]) -> None:
        self.hear = hear
        self.said: list[ToWorker] = []
        self.is_alive = True
        self._staff = staff
        self._ended = ended
        self._inbox: deque[ToWorker] = deque()

    @property
    def job(self) -> CleanJob:
        """The last it was given."""
        return next(message.job for message in reversed(self.said) if isinstance(message, Clean))

    @property
    def rates(self) -> list[float]:
        return [message.bytes_per_second for message in self.said if isinstance(message, (Clean, Rate))]

    def send(self, message: ToWorker) -> None:
        self.said.append(message)
        if not self.is_alive:
            return
        if isinstance(message, Clean):
            self._inbox.clear()
            if not self._staff.is_lazy:
                perform(message, self._channel(), self._staff.clean, self._staff.files)
        elif isinstance(message, Abort) and self._staff.is_lazy and self._staff.obeys:
            self.hear(Outcome(Ending.ABORTED))
        else:
            self._inbox.append(message)

    def work(self) -> None:
        """Does the jobs that a lazy worker has been given."""
        order = next(message for message in reversed(self.said) if isinstance(message, Clean))
        perform(order, self._channel(), self._staff.clean, self._staff.files)

    def _channel(self) -> _Channel:
        return _Channel(self, self._inbox)

    def dismiss(self) -> None:
        self.die("ended with code 0")

    def kill(self) -> None:
        self.die("was killed by signal 9 (SIGKILL)")

    def die(self, reason: str) -> None:
        if self.is_alive:
            self.is_alive = False
            self._staff.alive.remove(self)
            self._ended(reason)


class _Channel:
    def __init__(self, worker: Worker, inbox: deque[ToWorker]) -> None:
        self._worker = worker
        self._inbox = inbox

    def send(self, message: FromWorker) -> None:
        self._worker.hear(message)

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        if self._inbox:
            return self._inbox.popleft()
        assert timeout_s is not None, "the worker would wait for ever"
        return None


class Staff:
    """Begins workers: a `BeginWorker`. `broken`: why none can be begun; `stillborn`: why each ends before it speaks."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.clean: CleanFunction = clean
        self.is_lazy = False
        self.obeys = True
        self.broken: OSError | None = None
        self.stillborn: str | None = None
        self.begun: list[Worker] = []
        self.alive: list[Worker] = []

    def __call__(self, hear: Callable[[FromWorker], None], ended: Callable[[str], None]) -> Worker:
        if self.broken is not None:
            raise self.broken
        worker = Worker(self, hear, ended)
        self.begun.append(worker)
        self.alive.append(worker)
        if self.stillborn is None:
            hear(Ready())
        return worker
