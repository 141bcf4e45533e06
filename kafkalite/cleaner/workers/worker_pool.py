"""The workers that there are: begun when there is work, dismissed when there was none for a while.

Those that are at work share log.cleaner.io.max.bytes.per.second evenly, and hear of it when their number changes.
Source: kafka.log.LogCleaner (startup, shutdownCleaners).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.throttle import share
from kafkalite.cleaner.job.worker_messages import Clean, FromWorker, Rate, Ready, ToWorker
from kafkalite.cleaner.workers.cleaning_task import CleaningTask, Ending, Outcome
from kafkalite.common.clock import Clock, Timer

if TYPE_CHECKING:
    from kafkalite.cleaner.workers.worker_process import BeginWorker, Worker

IDLE_MS = 30_000
_SILENCE_MS = 600_000  # a worker says something every two seconds
_ABORT_MS = 10_000


class WorkerSlot:
    """One worker's. `is_ready`: it has spoken, so it can work here at all. `is_leaving`: it gets no more work.
    `verdict`: why we made an end of it, if we did, and what that is for the pass that it had."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.is_ready = False
        self.is_leaving = False
        self.verdict: Outcome | None = None
        self.running: CleaningTask | None = None
        self.idle_timer: Timer | None = None

    @property
    def is_free(self) -> bool:
        return self.running is None and not self.is_leaving

    def say(self, message: ToWorker) -> None:
        if self.worker is not None:
            self.worker.send(message)

    def kill(self, ending: Ending, reason: str) -> None:
        """It does not do what it should, or is not needed any more."""
        self.is_leaving = True
        self.verdict = Outcome(ending, reason)
        if self.worker is not None:
            self.worker.kill()

    def what_came_of_it(self, reason: str) -> tuple[Outcome, bool]:
        """Its worker is no more. What that is for the pass that it had, and whether it should have lived."""
        if self.verdict is not None:
            return self.verdict, self.verdict.ending is Ending.DIED
        is_death = not self.is_leaving
        if is_death and not self.is_ready:
            return Outcome(Ending.REFUSED, f"no cleaner process can begin: {reason}"), True
        what = f"it compacted {self.running.name}" if self.running is not None else "it had nothing to do"
        return Outcome(Ending.DIED, f"{reason} while {what}"), is_death


class WorkerPool:
    """`hear` is told what workers say about their jobs, `ended` that one is no more, with the reason."""

    def __init__(
        self,
        begin_worker: BeginWorker,
        clock: Clock,
        hear: Callable[[WorkerSlot, FromWorker], None],
        ended: Callable[[WorkerSlot, str], None],
    ) -> None:
        self.seats: list[WorkerSlot] = []
        self._begin_worker = begin_worker
        self._clock = clock
        self._hear = hear
        self._ended = ended

    @property
    def busy(self) -> list[WorkerSlot]:
        return [seat for seat in self.seats if seat.running is not None]

    def take(self) -> WorkerSlot:
        """A seat whose worker has nothing to do; a new one if need be. Raises OSError."""
        for seat in self.seats:
            if seat.is_free:
                return seat
        seat = WorkerSlot()
        self.seats.append(seat)
        try:
            seat.worker = self._begin_worker(
                lambda message: self._heard(seat, message), lambda reason: self._end(seat, reason)
            )
        except BaseException:
            self.seats.remove(seat)
            raise
        return seat

    def begin(self, seat: WorkerSlot, cleaning: CleaningTask, bytes_per_second: float) -> None:
        if seat.idle_timer is not None:
            seat.idle_timer.cancel()
            seat.idle_timer = None
        seat.running = cleaning
        busy = self.busy
        rate = share(bytes_per_second, len(busy))
        for other in busy:
            if other is not seat:
                other.say(Rate(rate))
        seat.say(Clean(cleaning.job, rate))

    def end_if_silent(self, cleaning: CleaningTask) -> None:
        """Kill the worker that has said nothing for too long."""
        silent_ms = self._clock.monotonic_ms() - cleaning.heard_ms
        if silent_ms > (_SILENCE_MS if cleaning.abort_reason is None else _ABORT_MS):
            for seat in self.busy:
                if seat.running is cleaning:
                    silence = f"the cleaner process said nothing for {silent_ms // 1000} s"
                    seat.kill(Ending.DIED, f"{silence} while it compacted {cleaning.name}, and was killed")

    def release(self, seat: WorkerSlot, bytes_per_second: float) -> None:
        """Its pass is over."""
        seat.running = None
        busy = self.busy
        for other in busy:
            other.say(Rate(share(bytes_per_second, len(busy))))
        if seat.is_free:
            seat.idle_timer = self._clock.call_later(IDLE_MS, lambda: self._dismiss(seat))

    def shrink(self, most: int) -> None:
        """Let those go that are more than `most`, as far as they have nothing to do."""
        staying = [seat for seat in self.seats if not seat.is_leaving]
        for seat in [seat for seat in staying if seat.is_free][: max(0, len(staying) - most)]:
            self._dismiss(seat)

    def kill_all(self, reason: str) -> None:
        for seat in list(self.seats):
            if seat.idle_timer is not None:
                seat.idle_timer.cancel()
            seat.kill(Ending.ABORTED, reason)

    def _dismiss(self, seat: WorkerSlot) -> None:
        if seat.is_free and seat.worker is not None:
            seat.is_leaving = True
            seat.worker.dismiss()

    def _heard(self, seat: WorkerSlot, message: FromWorker) -> None:
        if isinstance(message, Ready):
            seat.is_ready = True
        self._hear(seat, message)

    def _end(self, seat: WorkerSlot, why: str) -> None:
        self.seats.remove(seat)
        if seat.idle_timer is not None:
            seat.idle_timer.cancel()
        self._ended(seat, f"the cleaner process {why}")
