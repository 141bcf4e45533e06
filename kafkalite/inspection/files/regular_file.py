"""Opening a path to be inspected, without trusting that it is a file.

Opening a FIFO waits for a writer, perhaps for ever, and a device may do anything. So files are opened with O_NONBLOCK,
and anything but a regular file is refused.
Source: open(2) (O_NONBLOCK), inode(7).
"""

from __future__ import annotations

import errno
import os
import stat

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str) -> int:
    """A descriptor for reading. Raises OSError, also for anything but a regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise OSError(errno.EINVAL, f"it is {kind_of(path)}, not a file", path) from None
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise OSError(errno.EINVAL, f"it is {_KINDS[stat.S_IFMT(mode)]}, not a file", path)
    return fd


def read_file(path: str) -> bytes:
    """The content of a regular file. Raises OSError as `open_regular` does."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def kind_of(path: str) -> str | None:
    """The kind of anything but a regular file; None for one. Raises FileNotFoundError, also for a link that leads
    nowhere."""
    mode = os.stat(path).st_mode
    return None if stat.S_ISREG(mode) else _KINDS[stat.S_IFMT(mode)]
