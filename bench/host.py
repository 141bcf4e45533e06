"""The machine around a measurement: its free memory, touched once, and the time that its host took away.

Guest memory that was never used is filled by the host at the first touch, which takes ten times as long as a touch
later: whatever is measured first pays for it. So all free memory is touched before the first sample.
Source: proc(5), proc_stat(5), mmap(2) (MAP_POPULATE).
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator, Mapping
from multiprocessing import get_context
from pathlib import Path

_KEPT_BYTES = 1 << 30
"""What stays free meanwhile, for everything else that runs."""
_CHUNK_BYTES = 256 << 20
_ADJUSTMENT = "1000"
"""Of the process that touches: if memory gets short after all, it is the one to be ended."""


def free_bytes(meminfo: str) -> int:
    """The memory that may be used without swapping, of the text of /proc/meminfo. Raises KeyError."""
    fields = {key: value for key, _, value in (line.partition(":") for line in meminfo.splitlines())}
    return int(fields["MemAvailable"].split()[0]) * 1024


def touch_free_memory(kept_bytes: int = _KEPT_BYTES) -> str:
    """Touch every page of free memory but `kept_bytes`, in a process of its own; returns in words what was done."""
    try:
        size_bytes = free_bytes(Path("/proc/meminfo").read_text()) - kept_bytes
    except (OSError, KeyError, ValueError):
        return "memory not touched: /proc/meminfo cannot be read"
    if size_bytes <= 0:
        return f"memory not touched: less than {kept_bytes / 1e9:.1f} GB are free"
    started = time.perf_counter()
    process = get_context("fork").Process(target=_touch, args=(size_bytes,), daemon=True)
    process.start()
    process.join()
    if process.exitcode:
        return f"memory not touched: refused after {time.perf_counter() - started:.0f} s"
    return f"{size_bytes / 1e9:.1f} GB of memory touched in {time.perf_counter() - started:.0f} s"


def _touch(size_bytes: int) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_ADJUSTMENT)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held = []
    while size_bytes > 0:
        held.append(mmap.mmap(-1, min(size_bytes, _CHUNK_BYTES), flags=flags))
        size_bytes -= _CHUNK_BYTES


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
