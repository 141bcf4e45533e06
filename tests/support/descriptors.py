"""Descriptors of this process, by what they lead to: brokers of other tests in it open and close their own."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """The paths of open files below `directory`, one for each descriptor."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # that of the listing itself, or of another thread
            continue
        if path.startswith(f"{directory}/"):
            found.append(path)
    return found
