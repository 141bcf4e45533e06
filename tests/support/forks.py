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
    """A child that sleeps, forked as C code forks: no function of os.register_at_fork is called. It runs no Python: the
    state of the interpreter's lock, which other threads wait for, is copied, and the child has no such threads."""
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 16)  # the child's copy; it grows down from its end
    top = (ctypes.addressof(stack) + len(stack)) & ~0xF
    libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
    return int(libc.clone(sleep, top, signal.SIGCHLD, CHILD_LIMIT_S))


def _python_child() -> int:
    is_there, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(CHILD_LIMIT_S)
            os.close(begins)
            signal.pause()
        finally:
            os._exit(0)
    os.close(begins)
    os.read(is_there, 1)
    os.close(is_there)
    return pid


@contextmanager
def living_child(fork: Fork = os.fork) -> Iterator[int]:
    """A child with all descriptors that it got, until the block ends. Yields its process id."""
    pid = c_fork() if fork is c_fork else _python_child()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def said_by_child(say: Callable[[], str]) -> str:
    """The result of `say` in a child, or the exception that it raises there."""
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
