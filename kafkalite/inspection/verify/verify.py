"""`kafkalite log verify`: everything of a data directory, or of one partition, is held against everything else.

First each log is read once, from front to back, with all that lies beside it; several at a time, since reading waits
for the disk. Then the root. Then, for a log with faults, the restart is rehearsed, so that each finding says what will
become of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafkalite.inspection.files.directory_listing import Place, is_locked, look, offsets_of
from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.files.progress import Progress
from kafkalite.inspection.verify.log_dir_check import check_root
from kafkalite.inspection.verify.partition_check import PartitionReport, check_partition
from kafkalite.inspection.verify.recovery_dry_run import Forecast, rehearse
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    LOG_STARTS,
    OFFSET_INDEX,
    RECOVERY_POINTS,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
)

_THREADS = 4


class Verdict(NamedTuple):
    """`clean`: the last stop was orderly. `lost_bytes` is what a restart would cost. `is_running`: a broker has the
    directory now, so what it is writing may look unfinished."""

    root: str
    findings: list[Finding]
    partition_count: int
    log_bytes: int
    clean: bool
    is_running: bool
    lost_bytes: int
    forecasts: dict[str, Forecast]
    """What was rehearsed, by the paths of the partitions."""


def verify(path: str, *, deep: bool = False, now_ms: int | None = None, shown: bool | None = None) -> Verdict:
    """Look at the directory. Raises ConfigError for what is none, OSError when it cannot be read.

    `deep`: unpack every record. `shown`: draw the progress or not; None: where stderr is a terminal.
    """
    place = look(path)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    sizes = sum(one.log_bytes for one in place.partitions)
    progress = Progress(sizes, shown=shown)
    cleaned = offsets_of(place.root, CLEANER_OFFSETS)

    def check(number: int) -> PartitionReport:
        partition = place.partitions[number]
        compacted_to = cleaned.get((partition.topic, partition.partition), 0)
        return check_partition(partition, progress.advance, compacted_to=compacted_to, deep=deep)

    clean = place.root is None or CLEAN_SHUTDOWN in place.names
    try:
        told = _in_threads(check, len(place.partitions))
        faults = check_root(place, told, clean=clean)
    finally:
        progress.clear()
    findings, forecasts = _foretell_all(place, told, clean, now_ms)
    findings += [foretell(fault, None, None) for fault in faults]
    lost_bytes = sum(forecast.lost_bytes for forecast in forecasts.values()) + sum(
        one.partition.log_bytes for one in told for fault in faults if fault.gravity is Severity.LOSES
        and fault.where.endswith(f" {one.partition.name}")
    )  # fmt: skip
    return Verdict(
        place.root or place.partitions[0].path,
        findings,
        len(place.partitions),
        sizes,
        clean,
        place.root is not None and is_locked(place.root),
        lost_bytes,
        forecasts,
    )


def _in_threads(check: Callable[[int], PartitionReport], count: int) -> list[PartitionReport]:
    if count <= 1:
        return [check(number) for number in range(count)]
    with ThreadPoolExecutor(min(_THREADS, count), thread_name_prefix="kafkalite-verify") as pool:
        return list(pool.map(check, range(count)))


def _foretell_all(
    place: Place, told: Sequence[PartitionReport], clean: bool, now_ms: int
) -> tuple[list[Finding], dict[str, Forecast]]:
    """What is said of the partitions' faults, and what was rehearsed to know it."""
    recovery_points = offsets_of(place.root, RECOVERY_POINTS)
    starts = offsets_of(place.root, LOG_STARTS)
    findings: list[Finding] = []
    forecasts: dict[str, Forecast] = {}
    for one in told:
        if not one.faults:
            continue
        forecast = None
        if any(fault.gravity is None for fault in one.faults) and not one.partition.is_kraft:
            key = one.partition.topic, one.partition.partition
            start_offset = starts.get(key, 0)
            options = LoadOptions(
                clean, recovery_points.get(key, 0), start_offset if start_offset <= one.end_offset else 0
            )
            forecast = rehearse(one.partition, options, now_ms)
            forecasts[one.partition.path] = forecast
        findings += [foretell(fault, forecast, one) for fault in one.faults]
    return findings, forecasts


def foretell(fault: Fault, forecast: Forecast | None, told: PartitionReport | None) -> Finding:
    """What becomes of a fault at the next start."""

    def finding(gravity: Severity, restart: str, lost_bytes: int = 0) -> Finding:
        return Finding(fault.path, fault.where, fault.what, gravity, restart, lost_bytes)

    if fault.gravity is not None:
        lost = told.partition.log_bytes if told is not None and fault.gravity is Severity.LOSES else 0
        return finding(fault.gravity, fault.restart, lost)
    if forecast is None or told is None:
        return finding(Severity.STAYS, "a log of KRaft: kafkalite leaves it alone")
    if forecast.refusal:
        return finding(Severity.REFUSES, f"the broker does not start: {forecast.refusal}")
    name = os.path.basename(fault.path)
    if name in told.partition.files and name.endswith(LOG):
        return finding(*_foretell_log(fault, forecast, told, name))
    return finding(*_foretell_file(forecast, name))


def _foretell_log(fault: Fault, forecast: Forecast, told: PartitionReport, name: str) -> tuple[Severity, str, int]:
    size = told.partition.files[name]
    if name not in forecast.sizes:
        if size == 0:
            return Severity.REPAIRED, "the empty segment is deleted", 0
        return Severity.LOSES, "the whole segment is deleted: it lies behind damage", size
    left = forecast.sizes[name]
    cut = size - left
    if fault.unwritten and left == fault.position:
        return Severity.REPAIRED, f"the last {cut} bytes are cut off; no whole batch is among them", 0
    if left < size and left <= max(fault.position, 0):
        behind = [base for base in told.partition.bases if f"{base:020d}{LOG}" > name]
        more = f", and {len(behind)} segments behind it are deleted" if behind else ""
        return Severity.LOSES, f"the log is cut at position {left}{more}", cut
    if left < size and left > fault.position:
        what = f"the batch stays, and the log is cut behind it, at position {left}: what follows does not fit to it"
        return Severity.LOSES, what, cut
    if fault.restart:
        return Severity.STAYS, fault.restart, 0
    if forecast.clean:
        return Severity.STAYS, "the last stop was orderly, so it is not read again: it stays, and is served as it is", 0
    bases = [base for base in told.partition.bases if base <= forecast.recovery_point]
    if int(name.split(".")[0]) >= (bases[-1] if bases else 0):
        return Severity.STAYS, "it is read again and taken as it is: a restart does not ask for that", 0
    point = forecast.recovery_point
    below = f"it lies below the recovery point, {point}, so it is not read again: it stays, and is served as it is"
    return Severity.STAYS, below, 0


def _foretell_file(forecast: Forecast, name: str) -> tuple[Severity, str]:
    found = parse_segment_file(name)
    if name in forecast.gone:
        if found is not None and found[2] == ".swap":
            return Severity.REPAIRED, "it takes its place" if _took_place(forecast, name) else "it is deleted"
        is_awaited = found is not None and found[2] == DELETED  # a stop does not wait for file.delete.delay.ms
        return Severity.HARMLESS if is_awaited else Severity.REPAIRED, "it is deleted"
    if name in forecast.rewritten:
        return Severity.REPAIRED, "it is made again from the log"
    suffix = found[1] if found is not None else name
    if suffix in (OFFSET_INDEX, TIME_INDEX):
        stem = name.split(".")[0]
        return Severity.STAYS, (
            "it stays: reads that it leads astray begin at the segment's own begin; "
            f"delete {stem}{OFFSET_INDEX}, and a restart makes both indexes again"
        )
    if suffix == SNAPSHOT:
        return Severity.HARMLESS, "it is not used: a newer one, or the log itself, says more"
    if suffix == LEADER_EPOCHS:
        return Severity.STAYS, "what can be read of it counts; the epochs in the batches are not asked"
    if suffix == TXN_INDEX:
        return Severity.STAYS, "it stays: consumers with read_committed may be shown what was aborted, or miss records"
    return Severity.STAYS, "it stays as it is"


def _took_place(forecast: Forecast, name: str) -> bool:
    return name.removesuffix(".swap") in forecast.sizes or name.removesuffix(".swap") in forecast.rewritten
