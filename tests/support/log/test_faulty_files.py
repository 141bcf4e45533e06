"""The disk that forgets is a disk while it is not made to forget, and forgets no more than disks do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafkalite.log.storage.files import SyncFailed
from tests.support.log.faulty_files import FaultyFiles, Killed, PowerCut, SigBus

Left = Callable[..., set[object]]


@pytest.fixture
def disk(tmp_path: Path) -> FaultyFiles:
    (tmp_path / "disk").mkdir()
    return FaultyFiles(str(tmp_path / "disk"))


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """The distinct states, as seen by `look`, that 300 power cuts leave of a disk."""
    cuts = iter(range(10**6))

    def left(disk: FaultyFiles, look: Callable[[Path], object]) -> set[object]:
        found = set()
        for _ in range(300):
            number = next(cuts)
            root = tmp_path / f"left-{number}"
            disk.power_cut(str(root), Random(number))
            found.add(look(root))
        return found

    return left


def content(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).read_bytes() if (root / name).exists() else None


def names(root: Path) -> object:
    return tuple(sorted(path.name for path in root.iterdir()))


def test_what_was_synced_stays(disk: FaultyFiles, left: Left) -> None:
    path = f"{disk.root}/a"
    disk.write_new(path, b"12345")
    disk.sync(path)
    disk.sync(disk.root)
    assert left(disk, content("a")) == {b"12345"}


def test_a_file_that_was_synced_may_have_no_name(disk: FaultyFiles, left: Left, tmp_path: Path) -> None:
    disk.write_new(f"{disk.root}/a", b"12345")
    disk.sync(f"{disk.root}/a")
    assert left(disk, content("a")) == {b"12345", None}
    (tmp_path / "journal").mkdir()
    journal = FaultyFiles(str(tmp_path / "journal"), ordered=True)
    journal.write_new(f"{journal.root}/a", b"12345")
    journal.sync(f"{journal.root}/a")
    assert left(journal, content("a")) == {b"12345"}, "a journal brings the name along"


def test_an_append_is_torn_at_every_byte_or_leaves_zeros(disk: FaultyFiles, left: Left) -> None:
    disk.write_atomically(f"{disk.root}/a", b"abc")
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    disk.write_fully(fd, b"defg", 3)
    found = left(disk, content("a"))
    assert {b"abc", b"abcd", b"abcde", b"abcdef", b"abcdefg", b"abc\0\0\0\0", b"abcd\0\0\0"} <= found
    assert all(isinstance(one, bytes) and one.startswith(b"abc") and len(one) <= 7 for one in found)
    disk.close(fd)


def test_blocks_are_written_in_any_order(disk: FaultyFiles, left: Left) -> None:
    disk.write_atomically(f"{disk.root}/a", b"a" * 48)
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    disk.write_fully(fd, b"b" * 48)
    found = left(disk, content("a"))
    assert b"a" * 16 + b"b" * 16 + b"a" * 16 in found
    assert b"b" * 16 + b"a" * 16 + b"b" * 16 in found
    disk.fsync(fd)
    assert left(disk, content("a")) == {b"b" * 48}
    disk.close(fd)


def test_mapped_pages_reach_the_disk_when_they_like(disk: FaultyFiles, left: Left) -> None:
    disk.write_atomically(f"{disk.root}/a", bytes(32))
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    data = disk.map(fd, 32)
    data[:] = b"x" * 32
    assert {bytes(32), b"x" * 32, b"x" * 16 + bytes(16)} <= left(disk, content("a"))
    disk.fsync(fd)
    assert left(disk, content("a")) == {b"x" * 32}
    data.close()
    disk.close(fd)


def test_names_change_in_any_order_or_in_that_of_the_journal(disk: FaultyFiles, left: Left, tmp_path: Path) -> None:
    for name in "ab":
        disk.create_empty(f"{disk.root}/{name}")
    assert left(disk, names) == {(), ("a",), ("b",), ("a", "b")}
    disk.sync(disk.root)
    disk.unlink(f"{disk.root}/a")
    assert left(disk, names) == {("a", "b"), ("b",)}
    (tmp_path / "journal").mkdir()
    journal = FaultyFiles(str(tmp_path / "journal"), ordered=True)
    for name in "ab":
        journal.create_empty(f"{journal.root}/{name}")
    assert left(journal, names) == {(), ("a",), ("a", "b")}


def test_a_rename_takes_place_as_a_whole(disk: FaultyFiles, left: Left) -> None:
    path = f"{disk.root}/a"
    disk.write_atomically(path, b"old")
    disk.write_atomically(path, b"new", durable=False)
    assert {b"old", b"new", b""} <= left(disk, content("a")), "without an fsync the content may come later"
    disk.write_atomically(path, b"newer")
    assert left(disk, content("a")) == {b"newer"}
    assert left(disk, names) == {("a",)}


def test_directories_come_and_go_with_their_parents(disk: FaultyFiles, left: Left) -> None:
    disk.mkdir(f"{disk.root}/d")
    disk.write_new(f"{disk.root}/d/a", b"1")
    for path in ("d/a", "d"):
        disk.sync(f"{disk.root}/{path}")
    assert left(disk, names) == {(), ("d",)}
    disk.sync(disk.root)
    disk.rename(f"{disk.root}/d", f"{disk.root}/e")
    assert left(disk, names) == {("d",), ("e",)}
    disk.remove_directory(f"{disk.root}/e")
    assert left(disk, names) == {("d",), ("e",), ()}
    disk.sync(disk.root)
    assert left(disk, names) == {()}


def test_what_a_failed_fsync_left_is_not_saved_by_the_next(disk: FaultyFiles, left: Left) -> None:
    path = f"{disk.root}/a"
    disk.write_atomically(path, b"old")
    fd = disk.open(path, os.O_RDWR)
    disk.write_fully(fd, b"new")
    fault = disk.fail("fsync")
    with pytest.raises(SyncFailed):
        disk.sync_open(fd, path)
    disk.fsync(fd)
    assert fault.came == 1
    assert left(disk, content("a")) == {b"old", b"new"}
    disk.write_fully(fd, b"again")
    disk.fsync(fd)
    assert left(disk, content("a")) == {b"again"}, "what is written again is dirty again"
    disk.close(fd)


def test_a_full_disk_takes_what_fits_and_recovers(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = FaultyFiles(str(tmp_path / "disk"), block_bytes=64)
    disk.create_empty(f"{disk.root}/a")
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    disk.free_bytes = 100
    assert disk.pwrite(fd, b"x" * 100, 0) == 64
    with pytest.raises(OSError) as full:
        disk.pwrite(fd, b"x" * 36, 64)
    assert full.value.errno == errno.ENOSPC
    disk.truncate(fd, 0)
    assert disk.free_bytes == 100
    assert disk.pwrite(fd, b"x", 0) == 1
    disk.unlink(f"{disk.root}/a")
    assert disk.free_bytes == 100
    disk.close(fd)


def test_writing_through_a_map_needs_room_that_was_claimed(disk: FaultyFiles) -> None:
    disk.create_empty(f"{disk.root}/a")
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    disk.truncate(fd, 8192)
    disk.pwrite(fd, bytes(8), 0)
    data = disk.map(fd, 8192)
    data[4000] = 1
    disk.fsync(fd)
    data[5000] = 1
    with pytest.raises(SigBus):
        disk.fsync(fd)
    data.close()
    disk.close(fd)


def test_faults_on_demand(disk: FaultyFiles) -> None:
    disk.fail("open", "b", errno.EMFILE, after=1)
    disk.create_empty(f"{disk.root}/b")
    with pytest.raises(OSError) as refused:
        disk.open(f"{disk.root}/b", os.O_RDONLY)
    assert refused.value.errno == errno.EMFILE
    fd = disk.open(f"{disk.root}/b", os.O_RDWR)
    disk.write_short("b", 2)
    assert disk.pwrite(fd, b"1234", 0) == 2
    assert disk.pwrite(fd, b"34", 2) == 2
    disk.fail("truncate", "b", errno.EIO)
    with pytest.raises(OSError):
        disk.truncate(fd, 0)
    assert disk.read(f"{disk.root}/b") == b"1234"
    disk.close(fd)


def test_after_the_end_nothing_has_an_effect(disk: FaultyFiles, left: Left) -> None:
    disk.end_at = disk.calls + 2
    with pytest.raises(PowerCut):
        disk.write_atomically(f"{disk.root}/a", b"new")
    with pytest.raises(PowerCut):
        disk.unlink(f"{disk.root}/a.tmp")
    assert left(disk, names) == {(), ("a.tmp",)}


def test_a_kill_leaves_what_was_written_even_half_a_write(disk: FaultyFiles) -> None:
    disk.create_empty(f"{disk.root}/a")
    fd = disk.open(f"{disk.root}/a", os.O_RDWR)
    disk.end_at, disk.end_by, disk.torn_bytes = disk.calls + 1, Killed, 3
    with pytest.raises(Killed):
        disk.pwrite(fd, b"12345", 0)
    assert disk.kill().read(f"{disk.root}/a") == b"123"


def test_who_goes_past_the_door_is_noticed(disk: FaultyFiles, tmp_path: Path) -> None:
    (tmp_path / "disk" / "stranger").touch()
    with pytest.raises(AssertionError, match="stranger"):
        disk.check()


def test_two_names_have_one_content_and_each_its_own_fate(disk: FaultyFiles, left: Left) -> None:
    disk.mkdir(f"{disk.root}/here")
    disk.mkdir(f"{disk.root}/there")
    disk.write_new(f"{disk.root}/here/a", b"12345")
    disk.sync_all([f"{disk.root}/here/a", f"{disk.root}/here", disk.root])
    disk.link(f"{disk.root}/here/a", f"{disk.root}/there/b")
    disk.unlink(f"{disk.root}/here/a")
    disk.check()

    def look(root: Path) -> object:
        return content("here/a")(root), content("there/b")(root)

    assert left(disk, look) == {(b"12345", None), (b"12345", b"12345"), (None, None), (None, b"12345")}
    disk.sync(f"{disk.root}/there")
    assert left(disk, look) == {(b"12345", b"12345"), (None, b"12345")}


def test_links_are_links_after_a_power_cut(disk: FaultyFiles, tmp_path: Path) -> None:
    disk.write_new(f"{disk.root}/a", b"12345")
    disk.link(f"{disk.root}/a", f"{disk.root}/b")
    disk.sync_all([f"{disk.root}/a", disk.root])
    after = disk.power_cut(str(tmp_path / "after"), Random(1))
    assert os.stat(f"{after.root}/a").st_ino == os.stat(f"{after.root}/b").st_ino
    after.unshare(f"{after.root}/a")
    after.write_new(f"{after.root}/a", b"other")
    after.check()
    assert Path(after.root, "b").read_bytes() == b"12345"
