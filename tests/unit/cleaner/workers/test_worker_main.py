"""The worker as a process: what it is given, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kafkalite.cleaner.job.job import (
    Abort,
    Clean,
    CleaningFailed,
    CleanJob,
    CleanResult,
    CleanStats,
    Ending,
    FromWorker,
    LogLine,
    Outcome,
    Rate,
    Ready,
    Swapped,
    ToWorker,
)
from kafkalite.cleaner.workers.worker_main import SocketChannel, perform
from kafkalite.cleaner.workers.worker_process import Frames, WorkerProcess, encode
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

SEGMENT = CleanedSegment(0, (0,), 1, 1, 0, 5, 0)


def job_in(directory: Path, *, rate_of_keys: int = 2) -> CleanJob:
    """A log of one sealed segment of ten records."""
    data = b"".join(
        bytes(build_batch([NewRecord(b"key-%d" % (at % rate_of_keys), b"value %d" % at, (), 1000)], base_offset=at))
        for at in range(10)
    )
    (directory / "00000000000000000000.log").write_bytes(data)
    return CleanJob(
        topic="orders", partition=0, directory=str(directory), first_dirty_offset=0,
        segments=(SourceSegment(0, 10, len(data), 0, 0, 1_000_000_000),), first_uncleanable_offset=10,
        last_records={}, now_ms=10_000, delete_retention_ms=1000, segment_bytes=1 << 20,
        segment_index_bytes=1 << 20, index_interval_bytes=4096,
        dedupe_buffer_bytes=1 << 20, io_buffer_bytes=1 << 16, load_factor=0.9,
    )  # fmt: skip


# in this process


class Channel:
    """The broker's messages in order; a number is a pause, None waits for a request."""

    def __init__(self, *heard: ToWorker | None) -> None:
        self.heard = deque(heard)
        self.said: list[FromWorker] = []
        self.waits: list[float | None] = []

    def send(self, message: FromWorker) -> None:
        self.said.append(message)

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        self.waits.append(timeout_s)
        if self.heard:
            message = self.heard.popleft()
            return self.receive(None) if message is None and timeout_s is None else message
        assert timeout_s is not None
        return None


def told(channel: Channel, clean: Callable[..., CleanResult], job: CleanJob, rate: float = 1e300) -> FromWorker:
    perform(Clean(job, rate), channel, clean, Files())
    return channel.said[-1]


def test_a_job_is_done_and_each_group_waits_for_its_swap(tmp_path: Path) -> None:
    def clean(job: CleanJob, files: Files, swap: Callable[[CleanedSegment], bool], *rest: object) -> CleanResult:
        return CleanResult(7, swap(SEGMENT) and swap(SEGMENT))

    channel = Channel(None, Swapped(True), None, Swapped(True))
    assert told(channel, clean, job_in(tmp_path)) == Outcome(Ending.DONE, result=CleanResult(7, True))
    assert channel.said[:-1] == [SEGMENT] * 2
    channel = Channel(None, Swapped(False), None, Swapped(True))
    assert told(channel, clean, job_in(tmp_path)) == Outcome(Ending.DONE, result=CleanResult(7, False))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CleaningFailed("a torn batch"), Outcome(Ending.FAILED, "a torn batch")),
        (OSError(errno.ENOSPC, "full"), Outcome(Ending.REFUSED, "full", errno.ENOSPC)),
        (MemoryError(), Outcome(Ending.REFUSED, "out of memory", errno.ENOMEM)),
        (ZeroDivisionError("oh"), Outcome(Ending.FAILED, "ZeroDivisionError: oh")),
    ],
)
def test_whose_fault_it_was_is_said(tmp_path: Path, error: Exception, expected: Outcome) -> None:
    def clean(*_: object) -> CleanResult:
        raise error

    channel = Channel()
    assert told(channel, clean, job_in(tmp_path)) == expected
    lines = [message for message in channel.said if isinstance(message, LogLine)]
    assert [line.level for line in lines] == ([logging.ERROR] if isinstance(error, ZeroDivisionError) else [])


@pytest.mark.parametrize("where", ["throttle", "swap"])
def test_a_job_is_given_up_wherever_it_is(tmp_path: Path, where: str) -> None:
    def clean(job: CleanJob, files: Files, swap: object, throttle: object) -> CleanResult:
        {"throttle": throttle, "swap": swap}[where](SEGMENT if where == "swap" else 1)  # type: ignore[operator]
        raise AssertionError("it goes on")

    assert told(Channel(Abort()), clean, job_in(tmp_path)) == Outcome(Ending.ABORTED, "the broker has aborted it")
    if where == "swap":
        assert told(Channel(None, Abort()), clean, job_in(tmp_path)) == Outcome(
            Ending.ABORTED, "the broker has aborted it"
        )


def test_what_is_too_fast_waits_and_hears_of_a_new_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 50.0
    monkeypatch.setattr("kafkalite.cleaner.workers.worker_main.monotonic_s", lambda: now_s)

    class Waiting(Channel):
        def receive(self, timeout_s: float | None = None) -> ToWorker | None:
            nonlocal now_s
            now_s += timeout_s or 0
            return super().receive(timeout_s)

    def clean(job: CleanJob, files: Files, swap: object, throttle: Callable[[int], None], *rest: object) -> CleanResult:
        throttle(10_000)
        return CleanResult(7, True)

    channel = Waiting()
    monkeypatch.setattr("kafkalite.cleaner.workers.worker_main.time.sleep", None)
    from kafkalite.cleaner.workers import worker_main

    throttle_of = worker_main.Throttle
    monkeypatch.setattr(worker_main, "Throttle", lambda rate, sleep: throttle_of(rate, lambda: now_s, sleep))
    finished = told(channel, clean, job_in(tmp_path), rate=1000)
    assert isinstance(finished, Outcome) and finished.result and round(finished.result.stats.throttled_seconds) == 10
    assert max(wait or 0 for wait in channel.waits) <= 2, "it shows that it is alive"
    channel = Waiting(None, None, Rate(1e9))
    finished = told(channel, clean, job_in(tmp_path), rate=1000)
    assert isinstance(finished, Outcome) and finished.result and round(finished.result.stats.throttled_seconds) <= 4


def test_messages_travel_in_pieces(tmp_path: Path) -> None:
    messages: list[ToWorker | FromWorker] = [
        Clean(job_in(tmp_path), 5.0), Swapped(True), Ready(), SEGMENT,
        Outcome(Ending.DONE, result=CleanResult(7, True)),
        Outcome(Ending.FAILED, "x" * 70_000), LogLine(20, "a", "b"),
    ]  # fmt: skip
    stream = b"".join(map(encode, messages))
    for step in (1, 7, 4096, len(stream)):
        frames = Frames()
        found = [one for at in range(0, len(stream), step) for one in frames.feed(stream[at : at + step])]
        assert found == messages


def test_a_job_stays_what_it_was(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    assert pickle.loads(pickle.dumps(job)) == job
    stats = CleanStats(bytes_read=5)
    assert pickle.loads(pickle.dumps(CleanResult(1, True, stats))) == CleanResult(1, True, stats)


# the process


class Conversation:
    """With one process. `said` is what it said; `end` why it is no more."""

    def __init__(self) -> None:
        self.said: list[FromWorker] = []
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._something = asyncio.Event()
        self.process = WorkerProcess(asyncio.get_running_loop(), self._hear, self.end.set_result)

    def _hear(self, message: FromWorker) -> None:
        self.said.append(message)
        self._something.set()

    async def hear(self, kind: type[FromWorker]) -> FromWorker:
        """The first message of that kind, the ones before it included."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self._something.clear()
                found = next((message for message in self.said if isinstance(message, kind)), None)
                if found is not None:
                    return found
                await self._something.wait()

    async def ended(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await self.end


def converse(story: Callable[[Conversation], Awaitable[None]]) -> None:
    async def run() -> None:
        conversation = Conversation()
        try:
            await story(conversation)
        finally:
            conversation.process.kill()
            await conversation.ended()

    asyncio.run(run())


def read(path: str) -> str:
    return Path(path).read_text()


def test_a_process_compacts_and_goes_when_it_is_dismissed(tmp_path: Path) -> None:
    async def story(worker: Conversation) -> None:
        await worker.hear(Ready)
        worker.process.send(Clean(job_in(tmp_path), 1e300))
        cleaned = await worker.hear(CleanedSegment)
        assert isinstance(cleaned, CleanedSegment) and cleaned.record_count == 2
        assert (tmp_path / "00000000000000000000.log.cleaned").stat().st_size == cleaned.size_bytes
        worker.process.send(Swapped(True))
        finished = await worker.hear(Outcome)
        assert isinstance(finished, Outcome) and finished.result and finished.result.end_offset == 10
        worker.process.dismiss()
        assert await worker.ended() == "ended with code 0"

    converse(story)


def test_it_gives_way_to_everybody_and_has_no_event_loop(tmp_path: Path) -> None:
    async def story(worker: Conversation) -> None:
        await worker.hear(Ready)
        pid = worker.process.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        if sys.platform == "linux":
            assert os.sched_getscheduler(pid) == os.SCHED_BATCH
            assert read(f"/proc/{pid}/oom_score_adj") == "500\n"
            open_files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            assert len(open_files) <= 4, f"nothing of ours but the socket, stdin and stderr: {open_files}"

    converse(story)
    script = "import kafkalite.cleaner.workers.worker_main, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    names = set(loaded.split())
    assert not names & {"asyncio", "uvloop", "kafkalite.server.broker", "kafkalite.log.partition.partition_log"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_for_the_broker_do_not_end_it(tmp_path: Path, number: int) -> None:
    async def story(worker: Conversation) -> None:
        await worker.hear(Ready)
        os.kill(worker.process.pid, number)
        worker.process.send(Clean(job_in(tmp_path), 1e300))
        await worker.hear(CleanedSegment)

    converse(story)


def test_a_kill_is_noticed_at_once_and_named() -> None:
    async def story(worker: Conversation) -> None:
        await worker.hear(Ready)
        os.kill(worker.process.pid, signal.SIGKILL)
        assert await worker.ended() == "was killed by signal 9 (SIGKILL, perhaps because memory ran out)"
        worker.process.send(Abort())  # to nobody

    converse(story)


def test_a_broker_without_stdin_has_workers_too() -> None:
    """Its sockets may have the numbers of what a worker has otherwise."""
    script = (
        "import asyncio, os\n"
        "from kafkalite.cleaner.workers.worker_process import WorkerProcess\n"
        "async def main():\n"
        "    for number in range(3): os.close(number)\n"
        "    said = asyncio.get_running_loop().create_future()\n"
        "    worker = WorkerProcess(asyncio.get_running_loop(), said.set_result, said.set_result)\n"
        "    os._exit(7 if type(await said).__name__ == 'Ready' else 8)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=DEADLINE_S).returncode == 7


def test_its_socket_may_have_a_high_number() -> None:
    """As many logs as the broker has open, for the number is the one that it had there."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Connection(fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 1024)) as high:
        assert SocketChannel(high).receive(0) is None
        ours.sendall(encode(Abort()))
        assert SocketChannel(high).receive(DEADLINE_S) == Abort()


def test_what_cannot_be_understood_is_the_end_of_it(tmp_path: Path) -> None:
    """Another version of this program may have been installed meanwhile."""

    async def story(worker: Conversation) -> None:
        await worker.hear(Ready)
        worker.process._frames.feed = _refuse  # type: ignore[method-assign]
        worker.process.send(Clean(job_in(tmp_path), 1e300))
        assert await worker.ended() == (
            "said what cannot be understood (AttributeError('Finished')); was kafkalite replaced while the broker runs?"
        )

    converse(story)


def _refuse(data: bytes) -> list[ToWorker | FromWorker]:
    raise AttributeError("Finished")


def test_its_last_words_are_part_of_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ImportError('it is broken')")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])

    async def story(worker: Conversation) -> None:
        assert await worker.ended() == "ended with code 1: ImportError: it is broken"

    converse(story)


def test_it_ends_with_the_broker(tmp_path: Path) -> None:
    """Killed, so that nobody can tell it; also while it waits for its throttle."""
    script = (
        "import asyncio, sys\n"
        "from kafkalite.cleaner.workers.worker_process import WorkerProcess\n"
        "from kafkalite.cleaner.job.job import Ready\n"
        "async def main():\n"
        "    ready = asyncio.Event()\n"
        "    hear = lambda message: ready.set()\n"
        "    worker = WorkerProcess(asyncio.get_running_loop(), hear, print)\n"
        "    await ready.wait()\n"
        "    print(worker.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        parent.kill()
    try:
        ends = select.poll()  # select.select takes no descriptor above 1023, and a long run of tests has as many open
        ends.register(watch, select.POLLIN)
        assert ends.poll(DEADLINE_S * 1_000), "it is still there"
    finally:
        os.close(watch)


def test_the_same_modules_are_found_whatever_python_was_told(tmp_path: Path) -> None:
    """From a source tree that is only on sys.path, with -P, -I, and another working directory."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import asyncio\n"
        "from kafkalite.cleaner.workers.worker_process import WorkerProcess\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    heard = loop.create_future()\n"
        "    worker = WorkerProcess(loop, heard.set_result, heard.set_result)\n"
        "    print(await heard)\n"
        "    worker.kill()\n"
        "asyncio.run(main())\n"
    )
    for options in ([], ["-P"], ["-I"]):
        ran = subprocess.run(
            [sys.executable, *options, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE_S
        )
        assert ran.stdout == "Ready()\n", (options, ran.stdout, ran.stderr)
