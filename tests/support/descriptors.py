"""Open descriptors of this process that belong to one test.

Brokers and clients of other tests in the process open and close descriptors of their own at any time, so a test counts
only those that lead to its directory or to its ports.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection
from pathlib import Path


def open_files() -> dict[int, str]:
    """The path, or the kind and inode, behind each descriptor."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself, or of another thread
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def open_below(directory: Path) -> list[str]:
    """The paths of open files below `directory`, one for each descriptor."""
    return [path for path in open_files().values() if path.startswith(f"{directory}/")]


def open_sockets(ports: Collection[int] = ()) -> set[str]:
    """The internet sockets that have one of `ports` at either end, or no port (any more), by their inodes; without
    `ports` all of them. A socket without a port may be anyone's: subtract those that were there before."""
    found = set()
    for fd, name in open_files().items():
        if name.startswith("socket:"):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as each:
                if each.family != socket.AF_UNIX and (not ports or _ports(each) & {0, *ports}):
                    found.add(name)
    return found


def _ports(each: socket.socket) -> set[int]:
    ports = {each.getsockname()[1]}
    with contextlib.suppress(OSError):  # it listens, or its peer is gone
        ports.add(each.getpeername()[1])
    return ports
