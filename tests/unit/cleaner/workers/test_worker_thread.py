"""A cleaner's worker as a thread: it gets messages, ends when it is told to, and its end is reported once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kafkalite.cleaner.compaction import clean_log
from kafkalite.cleaner.job.job import Abort, Clean, Ending, FromWorker, Outcome, Ready
from kafkalite.cleaner.workers.worker_thread import WorkerThread, start_thread
from tests.support.wait import DEADLINE_S


class Broker:
    """The side of the broker: what a worker has said."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[FromWorker] = asyncio.Queue()
        self.ends: asyncio.Queue[str] = asyncio.Queue()
        self.worker: WorkerThread = start_thread(self.messages.put_nowait, self.ends.put_nowait)

    async def next_message(self) -> FromWorker:
        return await asyncio.wait_for(self.messages.get(), DEADLINE_S)

    async def end(self) -> str:
        reason = await asyncio.wait_for(self.ends.get(), DEADLINE_S)
        assert self.ends.empty()
        assert "kafkalite-cleaner" not in {thread.name for thread in threading.enumerate()}
        return reason


@pytest.mark.parametrize("ending", [WorkerThread.dismiss, WorkerThread.kill])
def test_a_worker_that_waits_ends_when_it_is_told_to(ending: Callable[[WorkerThread], None]) -> None:
    async def story() -> None:
        broker = Broker()
        assert await broker.next_message() == Ready()
        broker.worker.send(Abort())  # of a job that has ended
        ending(broker.worker)
        assert await broker.end() == "ended"

    asyncio.run(story())


@pytest.mark.parametrize("ending", [WorkerThread.dismiss, WorkerThread.kill])
def test_a_job_ends_with_its_worker_at_the_next_look(
    ending: Callable[[WorkerThread], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    def clean(job: object, files: object, swap: object, throttled: Callable[[int], None]) -> None:
        assert may_go_on.wait(DEADLINE_S)
        throttled(1)
        raise AssertionError("it went on")

    monkeypatch.setattr(clean_log, "clean", clean)

    async def story() -> None:
        broker = Broker()
        assert await broker.next_message() == Ready()
        broker.worker.send(Clean(None, 1e9))  # type: ignore[arg-type]
        ending(broker.worker)
        may_go_on.set()
        assert await broker.end() == "ended"
        assert broker.messages.empty()

    asyncio.run(story())


def test_a_job_that_ends_has_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def clean(job: object, files: object, swap: object, throttled: Callable[[int], None]) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(clean_log, "clean", clean)

    async def story() -> None:
        broker = Broker()
        assert await broker.next_message() == Ready()
        broker.worker.send(Clean(None, 1e9))  # type: ignore[arg-type]
        assert await broker.next_message() == Outcome(Ending.REFUSED, "no space", 28)
        broker.worker.dismiss()
        assert await broker.end() == "ended"

    asyncio.run(story())


def test_a_fault_of_its_own_is_the_reason_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(clean_log, "clean")

    async def story() -> str:
        return await Broker().end()

    assert asyncio.run(story()).startswith("failed: ImportError")
