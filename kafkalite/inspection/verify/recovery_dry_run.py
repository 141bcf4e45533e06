"""Dry run of recovery: loads a log as a restart does, on a shadow of its directory.

The shadow has links in the place of the `.log` files and copies of the small ones. The broker's own recovery runs on it
through `ShadowFiles`, which never write to the target of a link. So the forecast stays right when the rules of recovery
change.
Source: `log_loader`.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.region import OpenFile
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import PartitionDirectory, read_written
from kafkalite.log.recovery.log_loader import LoadOptions, load
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.file_names import LEADER_EPOCHS, LOG, PARTITION_METADATA, parse_segment_file
from kafkalite.log.storage.files import Files

_BATCH_BYTES = 256  # more than a header and a transaction marker have
_LOGGER = logging.getLogger("kafkalite.log")


@dataclass(slots=True)
class Forecast:
    """The outcome of a restart for one log. `refusal`: the reason why it does not start; all else is then unknown.

    `sizes` has every `.log` that is left, by its name, with its bytes; `gone` the files that are deleted; `rewritten`
    those whose content would change.
    """

    clean: bool
    recovery_point: int
    lost_bytes: int = 0
    refusal: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    rewritten: set[str] = field(default_factory=set)


class ShadowFiles(Files):
    """Files that open links for reading only and do not truncate them; the segment object has its new size."""

    def __init__(self) -> None:
        super().__init__()
        self._links: set[int] = set()  # descriptors of files that must not be changed

    def open(self, path: str, flags: int) -> int:
        is_link = self._check_link(path, flags)
        fd = super().open(path, os.O_RDONLY if is_link else flags)
        self._note(fd, is_link)
        return fd

    def open_file(self, path: str, flags: int) -> OpenFile:
        is_link = self._check_link(path, flags)
        file = super().open_file(path, os.O_RDONLY if is_link else flags)
        self._note(file.fd, is_link)
        return file

    def truncate(self, fd: int, size_bytes: int) -> None:
        if fd not in self._links:
            super().truncate(fd, size_bytes)

    def write_range(self, path: str, source: str, start: int, end: int) -> None:
        """Writes the begin of each batch, with holes in between: a split segment may be large."""
        self.create_empty(path)
        source_fd, fd = self.open(source, os.O_RDONLY), self.open(path, os.O_WRONLY)
        try:
            self.truncate(fd, end - start)
            with suppress(Malformed):
                for position, header in iter_headers(source_fd, start, end):
                    begin = self.pread(source_fd, min(header.size_bytes, _BATCH_BYTES), position)
                    self.write_fully(fd, begin, position - start)
        finally:
            self.close(source_fd)
            self.close(fd)

    def fsync(self, fd: int) -> None:
        """Does nothing: a shadow need not be durable."""

    def _check_link(self, path: str, flags: int) -> bool:
        """Whether there is a link at `path`. A link that is opened to be replaced by a new file is removed."""
        if not os.path.islink(path):
            return False
        if flags & os.O_TRUNC:
            os.unlink(path)
            return False
        return True

    def _note(self, fd: int, is_link: bool) -> None:
        self._links.add(fd) if is_link else self._links.discard(fd)


def dry_run(partition: PartitionDirectory, options: LoadOptions, config: TopicConfig, now_ms: int) -> Forecast:
    """Loads a shadow of the partition's log. Raises OSError when the shadow cannot be made."""
    forecast = Forecast(options.clean, options.recovery_point)
    root = os.path.realpath(tempfile.mkdtemp(prefix="kafkalite-dry-run-"))
    try:
        shadow = f"{root}/{partition.name}"
        os.mkdir(shadow)
        _make_shadow(partition, shadow)
        files = ShadowFiles()
        with _muted_log():
            try:
                loaded = load(shadow, config, options, now_ms, files, EXPIRATION_MS)
            except (StorageError, OSError) as error:
                forecast.refusal = str(error).replace(shadow, partition.path)
                return forecast
            forecast.lost_bytes = loaded.lost_bytes
            for segment in loaded.segments:
                forecast.sizes[os.path.basename(segment.path)] = segment.size_bytes
                segment.abandon()
        _compare(partition, shadow, forecast)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return forecast


def _make_shadow(partition: PartitionDirectory, shadow: str) -> None:
    for name in partition.files:
        found = parse_segment_file(name)
        if found is not None and found[1] == LOG:
            os.symlink(f"{partition.path}/{name}", f"{shadow}/{name}")
        elif found is not None or name in (LEADER_EPOCHS, PARTITION_METADATA):
            _copy(f"{partition.path}/{name}", f"{shadow}/{name}")


def _copy(source: str, target: str) -> None:
    """Copies a file; preallocated room that was never written stays a hole."""
    data, size_bytes = read_written(source)
    with open(target, "wb") as file:
        file.write(data)
        file.truncate(size_bytes)


def _compare(partition: PartitionDirectory, shadow: str, forecast: Forecast) -> None:
    left = set(os.listdir(shadow))
    for name in partition.files:
        found = parse_segment_file(name)
        if found is None and name != LEADER_EPOCHS:
            continue
        if name not in left:
            forecast.gone.add(name)
        elif not os.path.islink(f"{shadow}/{name}") and _content(f"{shadow}/{name}") != _content(
            f"{partition.path}/{name}"
        ):
            forecast.rewritten.add(name)
    forecast.rewritten |= {name for name in left if name not in partition.files}


def _content(path: str) -> bytes:
    """The content of a file without the preallocated room at its end."""
    return read_written(path)[0].rstrip(b"\0")


@contextmanager
def _muted_log() -> Iterator[None]:
    """Keeps warnings about the shadow from the handlers of a running process."""
    handler = logging.NullHandler()
    propagate = _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.propagate = propagate
