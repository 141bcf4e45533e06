"""The machine around a measurement: memory that its host has already given it, and the time that its host took away.

A virtual machine's host gives it a page at the first touch, which takes ten times as long as a touch later, and takes
pages back that were free for two seconds, if the guest's kernel reports them. So touching the memory once is not
enough: a process holds touched memory, and gives it out piece by piece as that of the machine is used.
Source: proc(5), proc_stat(5), madvise(2) (MADV_HUGEPAGE), Linux's mm/page_reporting.c.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator, Mapping
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path

_KEPT_BYTES = 4 << 30
"""What is never held, for everything that runs."""
_HELD_BYTES = 8 << 30
"""More than the work of one sample writes."""
_CHUNK_BYTES = 64 << 20
_HUGE_PAGE_BYTES = 2 << 20
_POLL_S = 0.01
_ADJUSTMENT = "1000"
"""Of the process that holds memory: if memory gets short after all, it is the one to be ended."""


def free_bytes(meminfo: str, field: str = "MemAvailable") -> int:
    """One line of the text of /proc/meminfo, at first the memory that may be used without swapping. Raises KeyError."""
    fields = {key: value for key, _, value in (line.partition(":") for line in meminfo.splitlines())}
    return int(fields[field].split()[0]) * 1024


class BackedMemory:
    """Up to `size_bytes` of touched memory, held by a process of its own while it is not needed."""

    def __init__(self, size_bytes: int = _HELD_BYTES, kept_bytes: int = _KEPT_BYTES) -> None:
        self._ours, theirs = Pipe()
        arguments = (self._ours, theirs, size_bytes, kept_bytes)
        self._process = get_context("fork").Process(target=_hold, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def refill(self) -> str:
        """Hold all of it again; returns in words how much that is. From then on the process gives back as much as the
        free memory of the machine shrinks by."""
        try:
            self._ours.send(True)
            held_bytes: int = self._ours.recv()
        except (OSError, EOFError):
            return "no memory held ready"
        return f"{held_bytes / 1e9:.1f} GB of memory held ready"

    def close(self) -> None:
        self._ours.close()
        self._process.join()


def _hold(other_end: Connection, pipe: Connection, size_bytes: int, kept_bytes: int) -> None:
    other_end.close()  # or the end of the other process would not be noticed
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_ADJUSTMENT)
    held: list[mmap.mmap] = []
    floor_bytes = 0
    with contextlib.suppress(OSError, EOFError, KeyError, ValueError):
        while True:
            if pipe.poll(_POLL_S):
                pipe.recv()
                while len(held) * _CHUNK_BYTES < size_bytes and free_bytes(_meminfo()) > kept_bytes + _CHUNK_BYTES:
                    held.append(_touched(_CHUNK_BYTES))
                floor_bytes = free_bytes(_meminfo(), "MemFree")
                pipe.send(len(held) * _CHUNK_BYTES)
            missing_bytes = floor_bytes - free_bytes(_meminfo(), "MemFree") if held else 0
            while missing_bytes > 0 and held:
                held.pop().close()
                missing_bytes -= _CHUNK_BYTES


def _meminfo() -> str:
    return Path("/proc/meminfo").read_text()


def _touched(size_bytes: int) -> mmap.mmap:
    found = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size_bytes, _HUGE_PAGE_BYTES):
        found[at] = 1
    return found


def stolen_and_all(stat: str) -> tuple[int, int]:
    """Ticks that the host gave to others, and all ticks, of the text of /proc/stat. Raises ValueError."""
    name, *ticks = stat.partition("\n")[0].split()
    if name != "cpu" or len(ticks) < 8:
        raise ValueError("no line of all processors")
    counted = [int(each) for each in ticks[:8]]
    return counted[7], sum(counted)


def frequency_mhz(cpuinfo: str) -> float | None:
    """The mean clock rate of the processors, of the text of /proc/cpuinfo; None where it is not said."""
    rates = [float(line.partition(":")[2]) for line in cpuinfo.splitlines() if line.startswith("cpu MHz")]
    return sum(rates) / len(rates) if rates else None


@contextlib.contextmanager
def watched() -> Iterator[dict[str, str]]:
    """The facts of the block, filled in at its end: the share of stolen time, and the clock rate then."""
    facts: dict[str, str] = {}
    before = _ticks()
    yield facts
    after = _ticks()
    if before is not None and after is not None and after[1] > before[1]:
        facts["stolen"] = f"{(after[0] - before[0]) / (after[1] - before[1]):.1%} of the time stolen"
    with contextlib.suppress(OSError, ValueError):
        rate = frequency_mhz(Path("/proc/cpuinfo").read_text())
        if rate is not None:
            facts["frequency"] = f"{rate:.0f} MHz"


def _ticks() -> tuple[int, int] | None:
    try:
        return stolen_and_all(Path("/proc/stat").read_text())
    except (OSError, ValueError):
        return None


def described(machine: Mapping[str, str]) -> str:
    """The facts of a machine in one line."""
    return ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine.items())
