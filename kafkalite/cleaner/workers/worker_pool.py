"""Workers on demand: started when there is work, dismissed after some time without work.

Busy workers share log.cleaner.io.max.bytes.per.second evenly, and get a new rate when their number changes.
Source: kafka.log.LogCleaner (startup, shutdownCleaners).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.worker_messages import Clean, Ending, FromWorker, Outcome, Rate, Ready, ToWorker
from kafkalite.cleaner.workers.cleaning_task import CleaningTask
from kafkalite.common.clock import Clock, Timer

if TYPE_CHECKING:
    from kafkalite.cleaner.workers.worker_process import StartWorker, Worker

IDLE_MS = 30_000
_SILENCE_MS = 600_000  # a worker sends a message every two seconds
_ABORT_MS = 10_000


class WorkerSlot:
    """The place of one worker. `is_ready`: it has sent a message, so it can work here at all. `is_leaving`: it gets no
    more work. `verdict`: why the broker killed it, if it did, as the outcome of its task."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.is_ready = False
        self.is_leaving = False
        self.verdict: Outcome | None = None
        self.task: CleaningTask | None = None
        self.idle_timer: Timer | None = None

    @property
    def is_free(self) -> bool:
        return self.task is None and not self.is_leaving

    def send(self, message: ToWorker) -> None:
        if self.worker is not None:
            self.worker.send(message)

    def kill(self, ending: Ending, reason: str) -> None:
        self.is_leaving = True
        self.verdict = Outcome(ending, reason)
        if self.worker is not None:
            self.worker.kill()

    def stop_idle_timer(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    def outcome(self, reason: str) -> tuple[Outcome, bool]:
        """The outcome of its task after its worker has ended, and whether the end was unexpected."""
        if self.verdict is not None:
            return self.verdict, self.verdict.ending is Ending.DIED
        is_death = not self.is_leaving
        if is_death and not self.is_ready:
            return Outcome(Ending.REFUSED, f"no cleaner process can begin: {reason}"), True
        what = f"it compacted {self.task.name}" if self.task is not None else "it had nothing to do"
        return Outcome(Ending.DIED, f"{reason} while {what}"), is_death


class WorkerPool:
    """`on_message` gets the messages of workers, `on_end` the reason when one has ended."""

    def __init__(
        self,
        start_worker: StartWorker,
        clock: Clock,
        on_message: Callable[[WorkerSlot, FromWorker], None],
        on_end: Callable[[WorkerSlot, str], None],
    ) -> None:
        self.slots: list[WorkerSlot] = []
        self._start_worker = start_worker
        self._clock = clock
        self._on_message = on_message
        self._on_end = on_end

    @property
    def busy(self) -> list[WorkerSlot]:
        return [slot for slot in self.slots if slot.task is not None]

    def take(self) -> WorkerSlot:
        """The slot of a free worker, which is started if need be. Raises OSError."""
        for slot in self.slots:
            if slot.is_free:
                return slot
        slot = WorkerSlot()
        self.slots.append(slot)
        try:
            slot.worker = self._start_worker(
                lambda message: self._receive(slot, message), lambda reason: self._ended(slot, reason)
            )
        except BaseException:
            self.slots.remove(slot)
            raise
        return slot

    def begin(self, slot: WorkerSlot, task: CleaningTask, bytes_per_second: float) -> None:
        """Give the task to the worker of a free slot."""
        slot.stop_idle_timer()
        self._share(bytes_per_second, len(self.busy) + 1)
        slot.task = task
        slot.send(Clean(task.job, bytes_per_second / len(self.busy)))

    def release(self, task: CleaningTask, bytes_per_second: float) -> None:
        """The task has ended."""
        for slot in self.busy:
            if slot.task is task:
                slot.task = None
                self._share(bytes_per_second, len(self.busy))
                if slot.is_free:
                    slot.idle_timer = self._clock.call_later(IDLE_MS, partial(self._dismiss, slot))

    def _share(self, bytes_per_second: float, busy_count: int) -> None:
        for slot in self.busy:
            slot.send(Rate(bytes_per_second / busy_count))

    def kill_if_silent(self, task: CleaningTask) -> None:
        """Kill a worker that has not sent a message for too long."""
        silent_ms = self._clock.monotonic_ms() - task.last_message_ms
        if silent_ms > (_SILENCE_MS if task.abort_reason is None else _ABORT_MS):
            for slot in self.busy:
                if slot.task is task:
                    silence = f"the cleaner process said nothing for {silent_ms // 1000} s"
                    slot.kill(Ending.DIED, f"{silence} while it compacted {task.name}, and was killed")

    def shrink(self, max_count: int) -> None:
        """Dismiss free workers beyond `max_count`."""
        staying = [slot for slot in self.slots if not slot.is_leaving]
        for slot in [slot for slot in staying if slot.is_free][: max(0, len(staying) - max_count)]:
            self._dismiss(slot)

    def kill_all(self, reason: str) -> None:
        for slot in list(self.slots):
            slot.stop_idle_timer()
            slot.kill(Ending.ABORTED, reason)

    def _dismiss(self, slot: WorkerSlot) -> None:
        if slot.is_free and slot.worker is not None:
            slot.is_leaving = True
            slot.worker.dismiss()

    def _receive(self, slot: WorkerSlot, message: FromWorker) -> None:
        if isinstance(message, Ready):
            slot.is_ready = True
        self._on_message(slot, message)

    def _ended(self, slot: WorkerSlot, reason: str) -> None:
        self.slots.remove(slot)
        slot.stop_idle_timer()
        self._on_end(slot, f"the cleaner process {reason}")
