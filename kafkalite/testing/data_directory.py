"""The directory of a temporary broker: in memory if there is room, and copies of a broker's data.

A killed process leaves its directories behind. The next broker of the machine removes those whose process has ended and
whose lock is free.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from kafkalite.log.storage.file_names import LOCK, META_PROPERTIES

_MEMORY = "/dev/shm"
_ROOM_BYTES_MIN = 256 << 20
_PREFIX = "kafkalite-broker-"
_NOT_COPIED = (".index", ".timeindex", ".deleted", ".cleaned", ".tmp")  # a start rebuilds indexes from the records


def throwaway_path() -> Path:
    """An unused path for the data of a broker of this process."""
    return Path(throwaway_place(), f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")


def is_throwaway(path: Path) -> bool:
    """Whether it is such a path of this process."""
    return path.name.startswith(f"{_PREFIX}{os.getpid()}-")  # the place may be full since then


def is_in_memory(path: Path) -> bool:
    return path.parent == Path(_MEMORY)


def throwaway_place() -> str:
    """The parent of temporary directories: in memory if there is room, else that of temporary files."""
    with suppress(OSError):
        found = os.statvfs(_MEMORY)
        if found.f_bavail * found.f_frsize >= _ROOM_BYTES_MIN and os.access(_MEMORY, os.W_OK):
            return _MEMORY
    import tempfile  # 5 ms

    return tempfile.gettempdir()


def remove_abandoned(place: Path) -> None:
    """Removes the directories in `place` whose process has ended without doing so."""
    own = str(os.getpid())
    for name in os.listdir(place):
        if not name.startswith(_PREFIX):
            continue
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if pid != own and pid.isdigit() and not _is_alive(int(pid)) and not _is_locked(place / name):
            shutil.rmtree(place / name, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_locked(directory: Path) -> bool:
    """Whether a broker uses it, perhaps one whose process is not visible here, such as in another container."""
    import fcntl

    try:
        with open(directory / LOCK, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return _is_empty_or_gone(
            directory
        )  # its broker may be about to create the lock, or was killed while it stopped
    except OSError:
        return True
    return False


def _is_empty_or_gone(directory: Path) -> bool:
    try:
        return not os.listdir(directory)
    except OSError:  # its own broker, or another that starts now, has removed it since it was listed
        return True


def copy_running(source: Path, target: Path) -> None:
    """Copies the data of a running broker, while nothing is appended. `target` is created. Raises FileExistsError if it
    is not empty, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty: a snapshot gets a directory of its own")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=_not_copied)


def _not_copied(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name == LOCK or name.endswith((*_NOT_COPIED, "-delete"))]


def copy_snapshot(source: Path, target: Path) -> None:
    """Copies a snapshot to the data directory of a broker. Raises FileNotFoundError, FileExistsError, OSError."""
    if not (source / META_PROPERTIES).exists():
        raise FileNotFoundError(f"{source} is no snapshot of a broker: it has no {META_PROPERTIES}")
    copy_running(source, target)
