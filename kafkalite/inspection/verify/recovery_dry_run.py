"""Dry run of recovery, and the prediction for each fault: repaired, lost, or left as it is.

The log is loaded as a restart does, on a shadow of its directory: links in the place of the `.log` files and copies of
the small ones. The broker's own recovery runs on it through `ShadowFiles`, which never write to the target of a link.
So the forecast stays right when the rules of recovery change. A prediction is a pure function of fault and forecast.
Source: `log_loader`.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.region import OpenFile
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import PartitionDirectory, read_written
from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.verify.partition_check import PartitionReport
from kafkalite.log.recovery.log_loader import LoadOptions, load
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage import file_names
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
        found = file_names.parse_segment_file(name)
        if found is not None and found[1] == file_names.LOG:
            os.symlink(f"{partition.path}/{name}", f"{shadow}/{name}")
        elif found is not None or name in (file_names.LEADER_EPOCHS, file_names.PARTITION_METADATA):
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
        found = file_names.parse_segment_file(name)
        if found is None and name != file_names.LEADER_EPOCHS:
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


def predict(fault: Fault, forecast: Forecast | None, report: PartitionReport | None) -> Finding:
    """The fault with its outcome at the next start. `report` is None for a fault of the root."""
    outcome: tuple[Severity, str] | tuple[Severity, str, int]
    name = os.path.basename(fault.path)
    if fault.severity is not None:
        lost = report.partition.log_bytes if report is not None and fault.severity is Severity.LOSES else 0
        outcome = fault.severity, fault.restart, lost
    elif forecast is None or report is None:
        outcome = Severity.STAYS, "a log of KRaft: kafkalite leaves it alone"
    elif forecast.refusal:
        outcome = Severity.REFUSES, f"the broker does not start: {forecast.refusal}"
    elif name in report.partition.files and name.endswith(file_names.LOG):
        outcome = _predict_segment(fault, forecast, report, name)
    else:
        outcome = _predict_file(forecast, name)
    return Finding(fault.path, fault.where, fault.what, *outcome)


def _predict_segment(fault: Fault, forecast: Forecast, report: PartitionReport, name: str) -> tuple[Severity, str, int]:
    size = report.partition.files[name]
    if name not in forecast.sizes:
        if size == 0:
            return Severity.REPAIRED, "the empty segment is deleted", 0
        return Severity.LOSES, "the whole segment is deleted: it lies behind damage", size
    parts = _parts_of(name, forecast, report)
    left = sum(parts)
    cut = size - left
    if fault.unwritten and left == fault.position:
        return Severity.REPAIRED, f"the last {cut} bytes are cut off; no whole batch is among them", 0
    if left < size and left <= max(fault.position, 0):
        behind = [base for base in report.partition.bases if f"{base:020d}{file_names.LOG}" > name]
        more = f", and {len(behind)} segments behind it are deleted" if behind else ""
        return Severity.LOSES, f"the log is cut at position {left}{more}", cut
    if left < size:
        what = f"the batch stays, and the log is cut behind it, at position {left}: what follows does not fit to it"
        return Severity.LOSES, what, cut
    if fault.overflows and len(parts) > 1:
        return Severity.REPAIRED, f"the segment is split: its batches go to {len(parts)} segments", 0
    if fault.restart:
        return Severity.STAYS, fault.restart, 0
    if forecast.clean:
        return Severity.STAYS, "the last stop was orderly, so it is not read again: it stays, and is served as it is", 0
    point = forecast.recovery_point
    bases = [base for base in report.partition.bases if base <= point]
    if int(name.split(".")[0]) >= (bases[-1] if bases else 0):
        return Severity.STAYS, "it is read again and taken as it is: a restart does not ask for that", 0
    below = f"it lies below the recovery point, {point}, so it is not read again: it stays, and is served as it is"
    return Severity.STAYS, below, 0


def predict_unexplained(
    findings: Sequence[Finding], forecast: Forecast | None, report: PartitionReport
) -> Iterator[Finding]:
    """The bytes that a restart cuts off although no finding says so."""
    if forecast is None or forecast.refusal:
        return
    explained = {finding.path for finding in findings if finding.severity in (Severity.LOSES, Severity.REPAIRED)}
    for base in report.partition.bases:
        path = report.partition.file(base, file_names.LOG)
        left = sum(_parts_of(os.path.basename(path), forecast, report))
        cut = report.partition.segment_bytes(base) - left
        if cut > 0 and path not in explained:
            what = "recovery does not accept what is here"
            yield Finding(path, f"position {left}", what, Severity.LOSES, f"the log is cut at position {left}", cut)


def _parts_of(name: str, forecast: Forecast, report: PartitionReport) -> list[int]:
    """The sizes of the segments that are in the place of that one after a restart: several, if it is split."""
    behind = [base for base in report.partition.bases if f"{base:020d}{file_names.LOG}" > name]
    end = f"{behind[0]:020d}{file_names.LOG}" if behind else "~"
    return [size for other, size in forecast.sizes.items() if name <= other < end]


def _predict_file(forecast: Forecast, name: str) -> tuple[Severity, str]:
    stem, suffix, leftover = file_names.parse_segment_file(name) or (0, name, "")
    if name in forecast.gone:
        if leftover == file_names.SWAP:
            live = name.removesuffix(file_names.SWAP)
            took_place = live in forecast.sizes or live in forecast.rewritten
            return Severity.REPAIRED, "it takes its place" if took_place else "it is deleted"
        is_awaited = leftover == file_names.DELETED  # a stop does not wait for file.delete.delay.ms
        return Severity.HARMLESS if is_awaited else Severity.REPAIRED, "it is deleted"
    if name in forecast.rewritten:
        return Severity.REPAIRED, "it is made again from the log"
    if suffix in (file_names.OFFSET_INDEX, file_names.TIME_INDEX):
        return Severity.STAYS, (
            "it stays: reads that it leads astray begin at the segment's own begin; "
            f"delete {stem:020d}{file_names.OFFSET_INDEX}, and a restart makes both indexes again"
        )
    if suffix == file_names.SNAPSHOT:
        return Severity.HARMLESS, "it is not used: a newer one, or the log itself, says more"
    if suffix == file_names.LEADER_EPOCHS:
        return Severity.STAYS, "what can be read of it counts; the epochs in the batches are not asked"
    if suffix == file_names.TXN_INDEX:
        return Severity.STAYS, "it stays: consumers with read_committed may be shown what was aborted, or miss records"
    return Severity.STAYS, "it stays as it is"
