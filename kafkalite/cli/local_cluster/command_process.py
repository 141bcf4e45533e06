"""Commands of kafkalite in processes of their own, which begin with the modules that this process has imported.

A new Python process takes 0.1 s for imports before it does anything. A fork of this one does without, and shares the
memory of the modules with it. In the child

    other descriptors     refer to /dev/null: objects of this process that exist there, too, may close the numbers
    signals               have no handlers of this process; they are blocked until then, since a handler would wake the
                          event loop of this process through the socket that both have
    event loop            is a new one, made by the command. The old one never resumes
    ends                  by _exit, so that nothing of this process is finished twice

A lock that another thread holds while this process is forked would stay locked in the child. So with a second thread,
and where there is no pidfd, the command runs in a new Python process, and likewise from `renounce_forks` on.
Source: fork(2), pidfd_open(2); multiprocessing.forkserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from kafkalite.common.named_tuple import NamedTuple

_TASKS = "/proc/self/task"
_OPEN = "/proc/self/fd"
_NAME = "/proc/self/comm"
_NAME_CHARS = 15

RunCommand = Callable[[Sequence[str]], int]
"""Runs a command line, such as ["serve", "--port", "9092"], in this process. Returns its exit code."""


class ForkedProcess:
    """A child, as far as it is used like `asyncio.subprocess.Process`. `stdout` is a pipe from it."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        """Raises OSError when the system has no descriptor for it."""
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = _reaped(self.pid)
        self._ended.set_result(self.returncode)

    async def wait(self) -> int:
        """The exit code; the negative number of the signal that has killed it."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Does nothing when it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


CommandProcess = ForkedProcess | asyncio.subprocess.Process


class CommandStarter:
    """Starts commands. `run` is what a fork calls; without it there are none."""

    def __init__(self, run: RunCommand | None = None) -> None:
        self._run = run

    def renounce_forks(self) -> None:
        """From now on commands run in new Python processes, which read the modules from the disk, as of a new version
        of this package."""
        self._run = None

    async def start(
        self, arguments: Sequence[str], name: str, keep_open: Sequence[int], import_modules: Callable[[], None]
    ) -> CommandProcess:
        """`arguments`: the command and its options. `name`: for lists of processes. `keep_open`: the descriptors that
        it has besides the standard ones. `import_modules`: called in this process before a fork. Raises OSError."""
        if self._run is not None and _may_fork():
            return await _forked(self._run, arguments, name, keep_open, import_modules)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kafkalite", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the process that started it, which stops the children in order
            pass_fds=keep_open,
        )


def _may_fork() -> bool:
    try:
        return hasattr(os, "pidfd_open") and len(os.listdir(_TASKS)) == 1
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """An environment in which a child finds every module that this process finds. A broker has its settings in its
    plan."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}
    paths = [os.path.abspath(path) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if os.pathsep not in path)
    return environment


async def _forked(
    run: RunCommand, arguments: Sequence[str], name: str, keep_open: Sequence[int], import_modules: Callable[[], None]
) -> ForkedProcess:
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader()
    reading, writing = os.pipe()
    forked: asyncio.Future[ForkedProcess] = loop.create_future()

    def fork() -> None:
        if forked.cancelled():
            return
        try:
            import_modules()
            pid = _Child(run, arguments, name, keep_open, writing).fork()
            forked.set_result(_watched(pid, stdout))
        except OSError as error:
            forked.set_exception(error)

    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb", 0))
        loop.call_soon(fork)  # in no task: the loop of the child could not enter one while another is in progress
        return await forked
    except asyncio.CancelledError:
        if forked.done() and not forked.cancelled() and forked.exception() is None:
            forked.result().kill()
        raise
    finally:
        os.close(writing)


def _watched(pid: int, stdout: asyncio.StreamReader) -> ForkedProcess:
    try:
        return ForkedProcess(pid, stdout)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        _reaped(pid)
        raise


def _reaped(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


class _Child(NamedTuple):
    """A command that is to run in a fork. `stdout` is the end of a pipe."""

    run: RunCommand
    arguments: Sequence[str]
    name: str
    keep_open: Sequence[int]
    stdout: int

    def fork(self) -> int:
        """The child's process id. Raises OSError."""
        _flush_output()  # or both processes would write it
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if not pid:
                self._run_to_end(mask)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _run_to_end(self, mask: Iterable[int]) -> NoReturn:
        code = 1
        try:
            self._leave_parent()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = self.run(self.arguments)
        except SystemExit as error:  # of wrong options
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # nothing may return to the event loop of the parent
            traceback.print_exc()
        finally:
            _flush_output()
            os._exit(code)

    def _leave_parent(self) -> None:
        """Makes the fork like a new process."""
        os.setsid()  # Ctrl-C is for the parent, which stops the children in order
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.dup2(self.stdout, 1)
        kept = {0, 1, 2, nothing, *self.keep_open}
        for descriptor in map(int, os.listdir(_OPEN)):
            if descriptor not in kept:
                with contextlib.suppress(OSError):  # that of the list itself is gone
                    os.fstat(descriptor)
                    os.dup2(nothing, descriptor, inheritable=False)
        environment = _environment()
        os.environ.clear()
        os.environ.update(environment)
        logging.getLogger().handlers.clear()  # the command makes its own
        with contextlib.suppress(OSError), open(_NAME, "w") as file:
            file.write(self.name[:_NAME_CHARS])
