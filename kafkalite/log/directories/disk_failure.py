"""Tells errors of a whole disk from errors of a single file.

A full disk has not failed: it refuses new data, and recovers. A file that is missing or forbidden says nothing about
the disk either, unless its log directory is missing or forbidden as well.
Source: org.apache.kafka.storage.internals.log.LogDirFailureChannel, where any IOException takes the directory offline.
"""

from __future__ import annotations

import errno
import os

_DISK_ERRORS = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "EROFS", "ENODEV", "ENXIO", "ENOMEDIUM", "EMEDIUMTYPE", "EUCLEAN", "EBADMSG", "ESTALE", "ENOTCONN",
        "EHOSTDOWN", "EREMOTEIO", "ETIMEDOUT", "ESHUTDOWN",
    )
    if hasattr(errno, name)
)  # fmt: skip
_PATH_ERRORS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM))


def is_disk_failure(error: OSError, lock_path: str) -> bool:
    """Whether `error`, from a log directory with its lock file at `lock_path`, makes the whole directory unusable."""
    if error.errno in _DISK_ERRORS:
        return True
    return error.errno in _PATH_ERRORS and not os.access(lock_path, os.R_OK | os.W_OK)
