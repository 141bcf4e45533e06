"""The number of cores that this process may use: those of its affinity, as far as its control group has time for them.

Source: sched_getaffinity(2); cpu.max of control groups, version 2.
"""

from __future__ import annotations

import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: Path = _CPU_MAX) -> int:
    """At least 1."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota_us, period_us = cpu_max.read_text().split()
        share = int(quota_us) / int(period_us)
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or "max"
        return cores
    return max(1, min(cores, int(share)))
