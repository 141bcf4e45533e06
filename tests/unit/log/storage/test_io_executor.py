"""Jobs for other threads: in order within a queue, side by side in different ones, told on the owner's thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from kafkalite.log.storage.files import Done, Job
from kafkalite.log.storage.io_executor import FlushThreadPool, SerialExecutor
from tests.support.wait import DEADLINE_S


class Workers:
    """Jobs that were handed out and that nobody has begun with."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.woken = 0
        self.told: list[str] = []
        self.work = SerialExecutor(self.jobs.append, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def do(self) -> None:
        self.jobs.pop(0)()

    def note(self, word: str) -> Done:
        return lambda error: self.told.append(word if error is None else f"{word}: {error}")

    def job(self, word: str) -> Job:
        return lambda: self.told.append(f"({word})")


def fails() -> None:
    raise OSError("no")


def test_the_jobs_of_a_queue_run_in_their_order_and_those_of_others_beside_them() -> None:
    workers = Workers()
    one, other = workers.work.serial_queue(), workers.work.serial_queue()
    for word in "abc":
        one(workers.job(word), workers.note(word))
    other(workers.job("x"), workers.note("x"))
    assert len(workers.jobs) == 2  # the first of each queue
    workers.jobs.pop()()
    workers.work.run_completions()
    assert workers.told == ["(x)", "x"]
    while workers.jobs:
        workers.do()
        workers.work.run_completions()
    assert workers.told[2:] == ["(a)", "a", "(b)", "b", "(c)", "c"]
    assert workers.work.pending == 0


def test_the_next_job_waits_until_the_end_of_the_last_one_was_heard() -> None:
    workers = Workers()
    queue = workers.work.serial_queue()
    queue(workers.job("a"), workers.note("a"))
    queue(workers.job("b"), workers.note("b"))
    workers.do()
    assert (workers.told, workers.woken, workers.jobs) == (["(a)"], 1, [])
    workers.work.run_completions()
    assert workers.told == ["(a)", "a"] and len(workers.jobs) == 1


def test_what_a_job_raised_is_told_and_the_queue_goes_on() -> None:
    workers = Workers()
    queue = workers.work.serial_queue()
    queue(fails, workers.note("a"))
    queue(workers.job("b"), workers.note("b"))
    workers.do()
    workers.work.run_completions()
    workers.do()
    workers.work.run_completions()
    assert workers.told == ["a: no", "(b)", "b"]


def test_who_hears_of_an_end_may_ask_for_more_in_the_same_queue() -> None:
    workers = Workers()
    queue = workers.work.serial_queue()

    def again(error: Exception | None) -> None:
        workers.told.append("a")
        queue(workers.job("c"), workers.note("c"))

    queue(workers.job("a"), again)
    queue(workers.job("b"), workers.note("b"))
    for _ in range(3):
        workers.do()
        workers.work.run_completions()
    assert workers.told == ["(a)", "a", "(b)", "b", "(c)", "c"]
    queue(workers.job("d"), again)  # and when nothing else was waiting
    for _ in range(2):
        workers.do()
        workers.work.run_completions()
    assert workers.told[6:] == ["(d)", "a", "(c)", "c"]
    assert not workers.jobs and workers.work.pending == 0


@pytest.mark.parametrize("run", [None, "threads"])
def test_waiting_hears_of_everything_that_was_handed_out(run: str | None) -> None:
    hands = FlushThreadPool(3, "test")
    work = SerialExecutor(hands.run if run else None)
    told: list[int] = []
    done_in: set[str] = set()

    def job(gate: threading.Event) -> Job:
        return lambda: gate.set()

    def done(number: int) -> Callable[[Exception | None], None]:
        def tell(error: Exception | None) -> None:
            told.append(number)
            done_in.add(threading.current_thread().name)

        return tell

    queues = [work.serial_queue() for _ in range(3)]
    gates = [threading.Event() for _ in range(12)]
    for number, gate in enumerate(gates):
        queues[number % 3](job(gate), done(number))
    work.wait()
    assert all(gate.is_set() for gate in gates) and sorted(told) == list(range(12))
    assert [number for number in told if number % 3 == 0] == [0, 3, 6, 9]
    assert done_in == {threading.main_thread().name}
    hands.close()


def test_jobs_run_side_by_side_up_to_so_many_and_one_that_fails_harms_nobody() -> None:
    class Held:
        """An object that a job holds."""

    hands = FlushThreadPool(2, "test-hands")
    both = threading.Barrier(2, timeout=DEADLINE_S)
    held = Held()
    is_gone = threading.Event()
    weakref.finalize(held, is_gone.set)
    names: set[str] = set()

    def job(held: Held | None = None) -> None:
        both.wait()
        names.add(threading.current_thread().name)

    hands.run(fails)
    hands.run(partial(job, held))
    del held
    for _ in range(5):
        hands.run(job)
    assert is_gone.wait(DEADLINE_S), "nothing is held longer than it is needed"
    hands.close()
    assert names == {"test-hands_0", "test-hands_1"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-hands")]
