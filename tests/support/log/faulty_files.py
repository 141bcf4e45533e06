"""A door to a disk that forgets: the twin of `files.Files` for tests.

The process sees a real directory, so reading, mapping and sending work as ever. Beside it the twin keeps what a power
cut may leave of it: for each file every content that it had since its last fsync, for each directory the entries at its
last fsync and every change since. `power_cut` writes one of the states that are possible then into another directory;
`kill` takes nothing away, for the page cache outlives a process.

    content   each block of some size holds what it held at the last fsync or at any moment since; the size is one that
              the file had, or one in between (zeros where no data came); a torn append ends at any byte
    links     a file has one content under all of its names, and each name is a change of its own directory
    names     `ordered`: the changes took place in order up to some moment, and any fsync brings all of them to the
              disk, as a journal does; otherwise only the fsync of their own directory does, and each takes place or
              not, except that changes of the same name keep their order, and so do those of one directory that take
              names away from files which are on the disk: no file system is known that forgets the first and keeps
              the last
    a failed  fsync leaves what was dirty marked as clean: no later fsync brings it to the disk

On demand any call fails (`fail`), writes come out short, the disk is full (`free_bytes`), or everything ends in the
middle of an operation (`end_at`): from then on no call does anything, as when the process is gone.
Source: the manual pages of fsync(2), write(2), ftruncate(2); Pillai et al., All File Systems Are Not Created Equal
(OSDI 2014); Rebello et al., Can Applications Recover from fsync Failures? (ATC 2020).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kafkalite.common.region import OpenFile
from kafkalite.log.storage.files import DescriptorCache, Files

_PAGE_BYTES = 4096
_FILE_BYTES_MAX = 1 << 22  # every version of a file is kept whole: no place for large ones
_BLOCK_SIZES = (16, 64, 128, 512, _PAGE_BYTES)  # small ones stand for large files in small tests


class Ended(BaseException):
    """The process is gone, or the power. No `except Exception` survives that."""


class PowerCut(Ended):
    pass


class Killed(Ended):
    pass


class SigBus(AssertionError):
    """A write through a map where the disk had promised no room: a full disk would have killed the process."""


@dataclass
class Fault:
    """`what` fails on paths that contain `where`, `times` times after having been let through `after` times.

    A write with `short_bytes` takes that many bytes instead of failing.
    """

    what: str
    where: str
    errno: int
    times: int = 1
    after: int = 0
    short_bytes: int | None = None
    came: int = 0

    def strikes(self, what: str, path: str) -> bool:
        if self.times <= 0 or what != self.what or self.where not in path:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        self.came += 1
        return True


@dataclass(eq=False)
class _File:
    """`directory` and `name`: one of its names, of which `others` are the rest.
    `versions`: the contents since the last fsync, the first one is on the disk; empty until somebody had to know.

    `clean_by_mistake`: pages that a failed fsync left behind: as they were in memory, and what the disk may hold;
    `dirty_again` are those of them that were written since.
    `allocated`: the pages that the disk has given.
    """

    directory: _Directory | None
    name: str
    others: list[tuple[_Directory, str]] = field(default_factory=list)
    versions: list[bytes] = field(default_factory=list)
    mapped: bool = False
    clean_by_mistake: dict[int, tuple[bytes, list[bytes]]] = field(default_factory=dict)
    dirty_again: set[int] = field(default_factory=set)
    allocated: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _Directory:
    directory: _Directory | None
    name: str
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)


class _Change(NamedTuple):
    """`node` goes from the name `source` (None: it is new) to the name `target` (None: it is gone)."""

    directory: _Directory
    node: _File | _Directory
    source: str | None
    target: str | None

    def touches(self) -> Iterator[tuple[_Directory, str]]:
        for name in (self.source, self.target):
            if name is not None:
                yield self.directory, name

    def apply(self, entries: dict[str, _File | _Directory]) -> None:
        if self.source is not None and entries.get(self.source) is self.node:
            del entries[self.source]
        if self.target is not None:
            entries[self.target] = self.node


class FaultyFiles(Files):
    """Everything below the directory `root` goes through it; what is there already is on the disk.

    Fields: `calls` counts what changes or syncs something; after call number `end_at` the process is gone by `end_by`.
    `free_bytes` None: as much as it likes. `refusals` counts the calls that failed. `log` has every call as (what, path
    from the root).
    """

    def __init__(
        self, root: str, *, ordered: bool = False, block_bytes: int = _PAGE_BYTES, open_segments: int = 256
    ) -> None:
        super().__init__(DescriptorCache(open_segments))
        self.root = root
        self.ordered = ordered
        self.calls = 0
        self.end_at = 0
        self.end_by: type[Ended] = PowerCut
        self.torn_bytes: int | None = None  # how much of the last write a kill leaves; None: all
        self.ended: type[Ended] | None = None
        self.free_bytes: int | None = None
        self.log: list[tuple[str, str]] = []
        self.refusals = 0
        self._block_bytes = block_bytes
        self._faults: list[Fault] = []
        self._by_fd: dict[int, tuple[_File | _Directory, str]] = {}
        self._own_fds: set[int] = set()
        self._changes: list[_Change] = []
        self._root = _Directory(None, "")
        self._adopt(self._root, root)

    def _adopt(self, directory: _Directory, path: str, known: dict[int, _File] | None = None) -> None:
        known = {} if known is None else known
        for entry in os.scandir(path):
            node: _File | _Directory
            if entry.is_dir():
                node = _Directory(directory, entry.name)
                self._adopt(node, entry.path, known)
            elif (linked := known.get(entry.inode())) is not None:
                node = linked
                node.others.append((directory, entry.name))
            else:
                node = known[entry.inode()] = _File(directory, entry.name)
                node.allocated = set(range(-(-entry.stat().st_size // self._block_bytes)))
            directory.entries[entry.name] = directory.durable[entry.name] = node

    # what a test asks for

    def fail(self, what: str, where: str = "", number: int = errno.EIO, *, times: int = 1, after: int = 0) -> Fault:
        """`what` is the name of a method of the system's group, such as "fsync"."""
        fault = Fault(what, where, number, times, after)
        self._faults.append(fault)
        return fault

    def write_short(self, where: str, count: int, *, after: int = 0) -> Fault:
        fault = Fault("pwrite", where, 0, 1, after, count)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """No more faults, and room enough."""
        self._faults.clear()
        self.free_bytes = None

    # the system

    def open(self, path: str, flags: int) -> int:
        node = self._open(path, flags)
        fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self._own_fds.add(fd)
        self._opened(fd, path, node, flags)
        return fd

    def open_file(self, path: str, flags: int) -> OpenFile:
        node = self._open(path, flags)
        file = OpenFile(path, flags)
        self._opened(file.fd, path, node, flags)
        return file

    def _open(self, path: str, flags: int) -> _File | _Directory | None:
        self._refuse("open", path)
        node = self._find(path)
        if node is None and flags & os.O_CREAT:
            self._begin("create", path)
        elif node is not None and flags & os.O_TRUNC:
            assert isinstance(node, _File)
            self._begin("truncate", path)
            self._look(node)
        return node

    def _opened(self, fd: int, path: str, node: _File | _Directory | None, flags: int) -> None:
        if node is None:
            directory, name = self._place(path)
            node = _File(directory, name, versions=[b""])
            self._change(directory, node, None, name)
            self._by_fd[fd] = node, path
            self._end()
            return
        self._by_fd[fd] = node, path
        if flags & os.O_TRUNC:
            assert isinstance(node, _File)
            self._set(node, b"")
            self._free(node, 0)
            self._end()

    def close(self, fd: int) -> None:  # type: ignore[override]
        self._by_fd.pop(fd, None)
        self._own_fds.discard(fd)
        os.close(fd)

    def _close_all(self) -> None:
        """The descriptors of a process that is gone, but for those of `OpenFile`, which its garbage closes."""
        while self._own_fds:
            os.close(self._own_fds.pop())

    def __del__(self) -> None:
        self._close_all()

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        found = self._by_fd.get(fd)
        self._refuse("pread", found[1] if found else "")
        return os.pread(fd, size, position)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:  # type: ignore[override]
        node, path = self._by_fd[fd]
        assert isinstance(node, _File)
        self._begin("pwrite", path)
        view = memoryview(data).cast("B")
        before = self._look(node)
        for fault in self._faults:
            if fault.short_bytes is not None and fault.strikes("pwrite", path):
                view = view[: fault.short_bytes]
        view = view[: self._allocate(node, position, len(view))]
        if self.calls == self.end_at and self.end_by is Killed and self.torn_bytes is not None:
            view = view[: self.torn_bytes]
        written = os.pwrite(fd, view, position)
        assert written == len(view)
        if written:
            node.dirty_again.update(range(position // _PAGE_BYTES, -(-(position + written) // _PAGE_BYTES)))
            self._set(node, before[:position].ljust(position, b"\0") + bytes(view) + before[position + written :])
        self._end()
        return written

    def truncate(self, fd: int, size_bytes: int) -> None:
        node, path = self._by_fd[fd]
        assert isinstance(node, _File)
        self._begin("truncate", path)
        before = self._look(node)
        assert size_bytes <= _FILE_BYTES_MAX, f"{path} is too large for this disk"
        os.ftruncate(fd, size_bytes)
        self._set(node, before[:size_bytes].ljust(size_bytes, b"\0"))
        self._free(node, size_bytes)
        self._end()

    def fsync(self, fd: int) -> None:
        node, path = self._by_fd[fd]
        try:
            self._begin("fsync", path)
        except OSError:
            if isinstance(node, _File):
                self._lose(node)
            raise
        if isinstance(node, _File):
            self._look(node)
            self._keep(node)
        if self.ordered or isinstance(node, _Directory):
            left = []
            for change in self._changes:
                if self.ordered or change.directory is node:
                    change.apply(change.directory.durable)
                else:
                    left.append(change)
            self._changes = left
        self._end()

    def map(self, fd: int, size_bytes: int) -> mmap.mmap:
        node, path = self._by_fd[fd]
        assert isinstance(node, _File)
        self._refuse("map", path)
        self._look(node)
        node.mapped = True
        return super().map(fd, size_bytes)

    def mkdir(self, path: str) -> None:  # type: ignore[override]
        self._begin("mkdir", path)
        os.mkdir(path)
        directory, name = self._place(path)
        self._change(directory, _Directory(directory, name), None, name)
        self._end()

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        self._begin("rmdir", path)
        os.rmdir(path)
        directory, name = self._place(path)
        self._change(directory, directory.entries[name], name, None)
        self._end()

    def unlink(self, path: str) -> None:  # type: ignore[override]
        node = self._find(path)
        if node is not None:
            self._begin("unlink", path)
            assert isinstance(node, _File)
            self._look(node)
        os.unlink(path)
        assert isinstance(node, _File)
        if not node.others:
            self._free(node, 0)
        directory, name = self._place(path)
        self._change(directory, node, name, None)
        self._end()

    def rename(self, path: str, target: str) -> None:  # type: ignore[override]
        node = self._find(path)
        if node is not None:
            self._begin("rename", path)
            if isinstance(node, _File):
                self._look(node)
            replaced = self._find(target)
            if isinstance(replaced, _File):
                self._look(replaced)
                if not replaced.others:
                    self._free(replaced, 0)
        os.rename(path, target)
        assert node is not None
        directory, name = self._place(path)
        beside, new_name = self._place(target)
        assert beside is directory, "a log renames within a directory only"
        self._change(directory, node, name, new_name)
        self._end()

    def link(self, path: str, target: str) -> None:  # type: ignore[override]
        node = self._find(path)
        if isinstance(node, _File):
            self._begin("link", target)
            self._look(node)
        os.link(path, target)
        assert isinstance(node, _File)
        directory, name = self._place(target)
        self._change(directory, node, None, name)
        self._end()

    # the ends of a process

    def kill(self) -> FaultyFiles:
        """The process is gone, the machine runs on: the same disk for the next process."""
        self.check()
        self._close_all()
        self._by_fd.clear()
        self.ended = None
        self.end_at = 0
        self.heal()
        return self

    def power_cut(self, root: str, random: Random, contents: Mapping[str, bytes] | None = None) -> FaultyFiles:
        """One state that a power cut now may leave, in the new directory `root`.

        `contents` says what certain files (by their name) hold, where the test wants no chance in it.
        """
        self.check()
        bias = random.choice(("old", "new", "mixed", "mixed", "mixed"))
        happened = self._happened(random, bias)
        os.mkdir(root)
        self._write_out(self._root, root, happened, random, bias, contents or {}, {})
        return FaultyFiles(root, ordered=self.ordered, block_bytes=self._block_bytes)

    def _happened(self, random: Random, bias: str) -> dict[int, list[_Change]]:
        """Which changes of names took place, by directory."""
        changes = self._changes
        if bias == "old":
            happened = []
        elif bias == "new":
            happened = changes
        elif self.ordered:
            happened = changes[: random.randint(0, len(changes))]
        else:
            happened = []
            needed: set[tuple[int, str]] = set()
            share = random.random()
            gone: set[int] = set()
            for change in reversed(changes):
                old = change.source is not None and change.node in change.directory.durable.values()
                touched = {(id(directory), name) for directory, name in change.touches()}
                if touched & needed or (old and id(change.directory) in gone) or random.random() < share:
                    happened.append(change)
                    needed |= touched
                    if old:
                        gone.add(id(change.directory))
            happened.reverse()
        by_directory: dict[int, list[_Change]] = {}
        for change in happened:
            by_directory.setdefault(id(change.directory), []).append(change)
        return by_directory

    def _write_out(
        self, directory: _Directory, path: str, happened: dict[int, list[_Change]], random: Random, bias: str,
        contents: Mapping[str, bytes], written: dict[int, str],
    ) -> None:  # fmt: skip
        entries = directory.durable.copy()
        for change in happened.get(id(directory), ()):
            change.apply(entries)
        for name, node in sorted(entries.items()):
            below = f"{path}/{name}"
            if isinstance(node, _Directory):
                os.mkdir(below)
                self._write_out(node, below, happened, random, bias, contents, written)
                continue
            if (linked := written.setdefault(id(node), below)) != below:
                os.link(linked, below)
                continue
            content = contents.get(name)
            if content is None:
                self._look(node)
                content = self._left_of(node, random, bias)
            fd = os.open(below, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            os.write(fd, content)
            os.close(fd)

    def _left_of(self, node: _File, random: Random, bias: str) -> bytes:
        versions = node.versions
        content = versions[0]
        if len(versions) > 1 and bias != "old":
            how = "new" if bias == "new" else random.choice(("old", "new", "at", "torn", "blocks", "blocks"))
            if how == "new":
                content = versions[-1]
            elif how == "at":
                content = random.choice(versions)
            elif how == "torn":
                at = random.randrange(1, len(versions))
                content = _torn(versions[at - 1], versions[at], random, zeros=not self.ordered)
            elif how == "blocks":
                content = _mixed(versions, random, zeros=not self.ordered)
        for page, (seen, candidates) in node.clean_by_mistake.items():
            if _page(content, page) == seen and random.random() < 0.7:
                content = _with_page(content, page, random.choice(candidates))
        return content

    def check(self) -> None:
        """That nothing went past the door: the directory is what the calls made of it."""
        self._check(self._root, self.root)

    def _check(self, directory: _Directory, path: str) -> None:
        there = set(os.listdir(path))
        assert there == set(directory.entries), f"{path}: {sorted(there ^ set(directory.entries))} went past the door"
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                self._check(node, f"{path}/{name}")
            elif node.versions and not node.mapped:
                content = _content(f"{path}/{name}")
                assert content == node.versions[-1], f"{path}/{name} was changed past the door"

    # what is known of files

    def _look(self, node: _File) -> bytes:
        """The content of the file now."""
        if node.directory is not None and (node.mapped or not node.versions):
            content = _content(self._path(node))
            if not node.versions:
                node.versions.append(content)
            elif content != node.versions[-1]:
                size = self._block_bytes
                for block in range(-(-len(content) // size)):
                    if block not in node.allocated and any(content[block * size : (block + 1) * size]):
                        raise SigBus(f"{self._path(node)}: block {block} was written through a map but not claimed")
                node.versions.append(content)
        return node.versions[-1]

    def _set(self, node: _File, content: bytes) -> None:
        assert len(content) <= _FILE_BYTES_MAX, f"{node.name} is too large for this disk"
        if content != node.versions[-1]:
            node.versions.append(content)

    def _keep(self, node: _File) -> None:
        """An fsync that succeeded."""
        content = node.versions[-1]
        for page, (seen, _) in list(node.clean_by_mistake.items()):
            if page in node.dirty_again or _page(content, page) != seen:
                del node.clean_by_mistake[page]
        node.dirty_again.clear()
        node.versions = [content]

    def _lose(self, node: _File) -> None:
        """An fsync that failed: what was dirty is clean now, in memory only."""
        content = self._look(node)
        for page in range(-(-len(content) // _PAGE_BYTES)):
            seen = _page(content, page)
            node.dirty_again.discard(page)
            candidates = [_page(version, page) for version in node.versions]
            if page in node.clean_by_mistake and node.clean_by_mistake[page][0] == seen:
                continue
            if any(candidate != seen for candidate in candidates):
                node.clean_by_mistake[page] = seen, candidates

    # room

    def _allocate(self, node: _File, position: int, size: int) -> int:
        """How many of `size` bytes find room. Raises OSError(ENOSPC) when none does."""
        unit = self._block_bytes
        for block in range(position // unit, -(-(position + size) // unit)):
            if block in node.allocated:
                continue
            if self.free_bytes is not None:
                if self.free_bytes < unit:
                    fits = max(0, block * unit - position)
                    self.refusals += not fits
                    if not fits:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path(node))
                    return fits
                self.free_bytes -= unit
            node.allocated.add(block)
        return size

    def _free(self, node: _File, size_bytes: int) -> None:
        keep = -(-size_bytes // self._block_bytes)
        gone = [block for block in node.allocated if block >= keep]
        node.allocated.difference_update(gone)
        if self.free_bytes is not None:
            self.free_bytes += len(gone) * self._block_bytes

    # names

    def _place(self, path: str) -> tuple[_Directory, str]:
        assert path.startswith(self.root + "/"), f"{path} is not on this disk"
        *above, name = path[len(self.root) + 1 :].split("/")
        directory = self._root
        for part in above:
            below = directory.entries.get(part)
            if not isinstance(below, _Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            directory = below
        return directory, name

    def _find(self, path: str) -> _File | _Directory | None:
        if path == self.root:
            return self._root
        try:
            directory, name = self._place(path)
        except FileNotFoundError:
            return None
        return directory.entries.get(name)

    def _path(self, node: _File | _Directory) -> str:
        return self.root if node.directory is None else f"{self._path(node.directory)}/{node.name}"

    def _change(self, directory: _Directory, node: _File | _Directory, source: str | None, target: str | None) -> None:
        replaced = directory.entries.get(target) if target is not None else None
        if target is not None and replaced is not None and replaced is not node:
            _take_name(replaced, directory, target)
        change = _Change(directory, node, source, target)
        change.apply(directory.entries)
        self._changes.append(change)
        if source is not None:
            _take_name(node, directory, source)
        if target is not None:
            _give_name(node, directory, target)

    # every call

    def _refuse(self, what: str, path: str) -> None:
        if self.ended is not None:
            raise self.ended
        for fault in self._faults:
            if fault.short_bytes is None and fault.strikes(what, path):
                self.refusals += 1
                raise OSError(fault.errno, os.strerror(fault.errno), path)

    def _begin(self, what: str, path: str) -> None:
        if self.ended is not None:
            raise self.ended
        self.calls += 1
        self.log.append((what, path[len(self.root) + 1 :]))
        try:
            self._refuse(what, path)
        except OSError:
            self._end()
            raise

    def _end(self) -> None:
        if self.calls == self.end_at:
            self.ended = self.end_by
            raise self.end_by


def _give_name(node: _File | _Directory, directory: _Directory, name: str) -> None:
    if isinstance(node, _File) and node.directory is not None and (node.directory, node.name) != (directory, name):
        node.others.append((directory, name))
    else:
        node.directory, node.name = directory, name


def _take_name(node: _File | _Directory, directory: _Directory, name: str) -> None:
    if isinstance(node, _File) and (directory, name) in node.others:
        node.others.remove((directory, name))
    elif isinstance(node, _File) and node.others:
        node.directory, node.name = node.others.pop()
    else:
        node.directory = None


def _content(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        assert size <= _FILE_BYTES_MAX, f"{path} is too large for this disk"
        return os.read(fd, size)
    finally:
        os.close(fd)


def _page(content: bytes, page: int) -> bytes:
    return content[page * _PAGE_BYTES : (page + 1) * _PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")


def _with_page(content: bytes, page: int, data: bytes) -> bytes:
    at = page * _PAGE_BYTES
    return (content[:at] + data + content[at + _PAGE_BYTES :])[: len(content)]


def _torn(before: bytes, after: bytes, random: Random, *, zeros: bool) -> bytes:
    """The way from `before` to `after` was stopped at some byte; with `zeros` the new size may be there already."""
    size = max(len(before), len(after))
    old, new = before.ljust(size, b"\0"), after.ljust(size, b"\0")
    first = next((i for i in range(size) if old[i] != new[i]), size)
    at = random.randint(min(first, size), size)
    torn = new[:at] + old[at:]
    if zeros and random.random() < 0.5:
        return torn[: random.choice((len(before), len(after), size))]
    if len(after) >= len(before):
        return torn[: max(len(before), at)]
    return torn[: random.choice((len(before), len(after)))]


def _mixed(versions: list[bytes], random: Random, *, zeros: bool) -> bytes:
    """Each block is of some moment, and so is the size."""
    unit = random.choice(_BLOCK_SIZES)
    sizes = [len(version) for version in versions]
    size = random.choice((sizes[0], sizes[-1], random.choice(sizes), random.randint(min(sizes), max(sizes))))
    out = bytearray()
    newest = len(versions) - 1
    share = random.random()
    for at in range(0, size, unit):
        if (at >= sizes[0] and not zeros) or random.random() < share:
            moment = newest
        else:
            moment = random.choice((0, random.randint(0, newest)))
        out += versions[moment][at : at + unit].ljust(unit, b"\0")
    return bytes(out[:size])
