from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.log.storage.files import Files, SyncFailed, storage_error


class FullDisk(Files):
    def pwrite(self, fd: int, data: object, position: int) -> int:  # type: ignore[override]
        raise OSError(errno.ENOSPC, "No space left on device")


class BrokenDisk(Files):
    def fsync(self, fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    Files().write_atomically(str(path), b"old")
    with pytest.raises(OSError):
        FullDisk().write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_a_full_disk_is_told_by_the_directory() -> None:
    error = storage_error("cannot append to orders-0", "/data/orders-0", OSError(errno.ENOSPC, "x"))
    assert str(error).startswith("cannot append to orders-0: no space left in /data/orders-0")


def test_only_an_fsync_that_failed_is_final(tmp_path: Path) -> None:
    Files().sync(str(tmp_path / "gone"))
    with pytest.raises(OSError) as raised:
        Files().sync(str(tmp_path / ("x" * 300)))
    assert not isinstance(raised.value, SyncFailed), "it could not be opened: nothing is lost"
    with pytest.raises(SyncFailed, match="Input/output error") as failed:
        BrokenDisk().sync(str(tmp_path))
    assert failed.value.errno == errno.EIO
