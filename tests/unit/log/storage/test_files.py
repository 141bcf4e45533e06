from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.log.storage import file_names
from kafkalite.log.storage.descriptor_cache import DescriptorCache, capacity_for_limit
from kafkalite.log.storage.files import Files, SyncFailed, storage_error


class Held:
    def __init__(self) -> None:
        self.used = False
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_the_least_recently_used_gives_its_descriptors_back() -> None:
    ring = DescriptorCache(2)
    a, b, c, d = (Held() for _ in range(4))
    ring.opened(a)
    ring.opened(b)
    a.used = False  # nobody asked for it lately
    ring.opened(c)
    assert (a.released, b.released, c.released) == (1, 0, 0)
    b.used = c.used = False
    b.used = True
    ring.opened(d)
    assert (b.released, c.released) == (0, 1)
    ring.closed(d)
    assert len(ring) == 1
    assert capacity_for_limit(1024) == 170


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


def test_names() -> None:
    assert file_names.parse_segment_file("00000000000000000042.log.deleted") == (42, ".log", ".deleted")
    assert file_names.parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex", "")
    assert file_names.parse_segment_file("42.log") is None
    assert file_names.parse_partition_directory("a-b-12") == ("a-b", 12)
    assert file_names.parse_partition_directory("a-01") is None
    for no_topic in ("with space-1", "bad\udcff-1", "a-2147483648", "x" * 250 + "-0"):
        assert file_names.parse_partition_directory(no_topic) is None, "its checkpoint could not be read again"
    assert file_names.parse_partition_directory("orders-0.0123456789abcdef0123456789abcdef-delete") is None
    for suffix in (file_names.DELETE_DIRECTORY, file_names.STRAY_DIRECTORY):
        gone = file_names.renamed_directory("x" * 249, 12, suffix)
        assert len(gone) == 255
        assert gone.endswith(suffix)
        assert file_names.parse_partition_directory(gone) is None


def test_only_an_fsync_that_failed_is_final(tmp_path: Path) -> None:
    Files().sync(str(tmp_path / "gone"))
    with pytest.raises(OSError) as raised:
        Files().sync(str(tmp_path / ("x" * 300)))
    assert not isinstance(raised.value, SyncFailed), "it could not be opened: nothing is lost"
    with pytest.raises(SyncFailed, match="Input/output error") as failed:
        BrokenDisk().sync(str(tmp_path))
    assert failed.value.errno == errno.EIO
