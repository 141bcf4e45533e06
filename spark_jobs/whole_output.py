"""A directory that is replaced as a whole: what is under its name is complete, the old one or the new one.

    users/                  what readers see; it has a state file, by which the next run knows it as its own
    .users.staging-.../     the new one while it is written
    .users.replaced-.../    the old one between two renames

A directory cannot be renamed over another one, so there is a moment between the two renames without `users`, and a
process that is killed in it leaves it so until the next run, which begins by giving the old one its name back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable

from kafkalite.common.errors import ConfigError
from spark_jobs.load_output import sync, sync_tree


def replace_whole(path: str, state_file: str, write: Callable[[str], None]) -> None:
    """Have `write` fill a new directory, with `state_file` in it, and give it the name `path`.

    Raises ConfigError if `path` is something else than such a directory, or if another process replaces it.
    """
    if "://" in path:
        raise ConfigError(f"--output {path} must be a directory in the file system; it is replaced by renaming")
    parent, name = os.path.split(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    with open(os.path.join(parent, f".{name}.lock"), "w") as lock:  # released by the system when this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another job is replacing {path}; wait for its end") from None
        _clear(parent, name)
        if os.path.lexists(path) and not os.path.isfile(os.path.join(path, state_file)):
            raise ConfigError(f"--output {path} was not made by this job and is left as it is; choose another name")
        staging = os.path.join(parent, f".{name}.staging-{uuid.uuid4().hex}")
        try:
            write(staging)
            sync_tree(staging)
            if os.path.lexists(path):
                os.rename(path, os.path.join(parent, f".{name}.replaced-{uuid.uuid4().hex}"))
            os.rename(staging, path)
            sync(parent)  # before the old one is removed
        finally:
            _clear(parent, name)


def _clear(parent: str, name: str) -> None:
    """Give a directory that was replaced by nothing its name back, and remove what is left of killed runs."""
    path = os.path.join(parent, name)
    for entry in sorted(os.listdir(parent)):
        if entry.startswith(f".{name}.replaced-"):
            if not os.path.lexists(path):
                os.rename(os.path.join(parent, entry), path)
            else:
                shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)
        elif entry.startswith(f".{name}.staging-"):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)
