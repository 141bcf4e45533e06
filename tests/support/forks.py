"""Children of this process that are forked, by Python or behind its back, and live for a while."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Fork = Callable[[], int]
CHILD_LIMIT_S = 60


def c_fork() -> int:
    """As C code forks: no function of os.register_at_fork is called."""
    return int(ctypes.PyDLL(None).fork())  # the child holds the interpreter's lock, as the parent does


@contextmanager
def living_child(fork: Fork = os.fork) -> Iterator[int]:
    """A child with all descriptors that it got, until the block ends. Yields its process id."""
    is_there, begins = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            signal.alarm(CHILD_LIMIT_S)
            os.close(begins)
            signal.pause()
        finally:
            os._exit(0)
    os.close(begins)
    try:
        os.read(is_there, 1)
        os.close(is_there)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def said_by_child(say: Callable[[], str]) -> str:
    """What `say` returns in a child, or the exception that it raises there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(CHILD_LIMIT_S)
            try:
                said = say()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said
