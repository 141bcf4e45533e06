"""The consumption of a process and all its children: CPU seconds, user and system apart, and resident memory.

Source: proc(5). The kernel reports ticks of 10 ms, so a figure per request needs a second of work or more. The sum is
the time that really ran; the split into user and system is, on most kernels, estimated over the process's whole life.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.user_s - other.user_s, self.system_s - other.system_s)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in bytes, summed over processes: what is counted twice makes it an upper bound."""

    resident_bytes: int
    own_bytes: int
    """Of it, not backed by a file: heap and stacks, without mapped segments, indexes, libraries and jars."""
    peak_bytes: int


def parse_stat(line: str) -> Cpu:
    """utime and stime of a /proc/PID/stat line, with cutime and cstime: what its ended children had taken. The command
    in it may hold blanks and brackets."""
    fields = line[line.rindex(")") + 2 :].split()
    user, system, user_of_ended, system_of_ended = (int(field) / _TICKS for field in fields[11:15])
    return Cpu(user + user_of_ended, system + system_of_ended)


def parse_status(text: str) -> Memory:
    """VmRSS, RssAnon and VmHWM of a /proc/PID/status text."""
    found = {key: value for key, _, value in (line.partition(":") for line in text.splitlines())}
    resident, own, peak = (int(found[key].split()[0]) * 1024 for key in ("VmRSS", "RssAnon", "VmHWM"))
    return Memory(resident, own, peak)


class ProcessTree:
    """A process by its id, with its descendants. One that has ended counts for CPU, as soon as its parent knows."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        found, todo = [], [self.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    todo.extend(int(child) for child in children.read_text().split())
        return found

    def cpu(self) -> Cpu:
        total = Cpu()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += parse_stat(Path(f"/proc/{pid}/stat").read_text())
        return total

    def memory(self) -> Memory:
        resident = own = peak = 0
        for pid in self.pids():
            with contextlib.suppress(OSError, KeyError):
                one = parse_status(Path(f"/proc/{pid}/status").read_text())
                resident += one.resident_bytes
                own += one.own_bytes
                peak += one.peak_bytes
        return Memory(resident, own, peak)
