"""`kafkalite log verify`: checks a data directory, or one partition, against itself.

Each log is read once from front to back, together with the files beside it; several logs at a time, because a read
waits for the disk. The root of the data directory comes next. For each log with faults recovery is run on a shadow of
its directory, so that a finding says what a restart does about it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafkalite.inspection.files.directory_listing import PartitionDirectory, checkpoint_offsets, list_directory
from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.files.progress import Progress
from kafkalite.inspection.verify.log_dir_check import check_root
from kafkalite.inspection.verify.partition_check import PartitionReport, check_partition
from kafkalite.inspection.verify.prediction import predict
from kafkalite.inspection.verify.recovery_dry_run import Forecast, dry_run
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN, CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS

_THREADS = 4


class Verdict(NamedTuple):
    """The outcome. `clean`: the last shutdown was clean. `is_running`: a broker has the directory now, so the end of
    a log may look unfinished. A restart loses `lost_bytes`. `forecasts`: the dry runs, by path."""

    root: str
    findings: list[Finding]
    partition_count: int
    log_bytes: int
    clean: bool
    is_running: bool
    lost_bytes: int
    forecasts: dict[str, Forecast]


def verify(path: str, *, deep: bool = False, now_ms: int | None = None, shown: bool | None = None) -> Verdict:
    """Checks the directory. Raises ConfigError if the path is no data directory, OSError if it cannot be read.

    `deep`: decode every record. `shown`: draw the progress or not; None: where stderr is a terminal.
    """
    listing = list_directory(path)
    log_bytes = sum(one.log_bytes for one in listing.partitions)
    progress = Progress(log_bytes, shown=shown)
    cleaned = checkpoint_offsets(listing.root, CLEANER_OFFSETS)

    def check(partition: PartitionDirectory) -> PartitionReport:
        return check_partition(partition, progress.advance, compacted_to=cleaned.get(partition.key, 0), deep=deep)

    clean = listing.root is None or CLEAN_SHUTDOWN in listing.names
    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalite-verify") as pool:
            reports = list(pool.map(check, listing.partitions))
        root_faults = check_root(listing, reports, clean=clean)
    finally:
        progress.clear()
    recovery_points = checkpoint_offsets(listing.root, RECOVERY_POINTS)
    starts = checkpoint_offsets(listing.root, LOG_STARTS)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    findings: list[Finding] = []
    forecasts: dict[str, Forecast] = {}
    for report in reports:
        partition = report.partition
        if any(fault.severity is None for fault in report.faults) and not partition.is_kraft:
            start_offset = starts.get(partition.key, 0)
            known_start = start_offset if start_offset <= report.end_offset else 0
            options = LoadOptions(clean, recovery_points.get(partition.key, 0), known_start)
            forecasts[partition.path] = dry_run(partition, options, now_ms)
        findings += [predict(fault, forecasts.get(partition.path), report) for fault in report.faults]
    findings += [predict(fault, None, None) for fault in root_faults]
    lost_bytes = sum(forecast.lost_bytes for forecast in forecasts.values()) + _bytes_of_lost(reports, root_faults)
    return Verdict(listing.place, findings, len(reports), log_bytes, clean, listing.is_locked, lost_bytes, forecasts)


def _bytes_of_lost(reports: list[PartitionReport], root_faults: list[Fault]) -> int:
    """The bytes of logs that a restart deletes as a whole, because of a checkpoint."""
    lost = [fault.where for fault in root_faults if fault.severity is Severity.LOSES]
    partitions = [report.partition for report in reports]
    return sum(one.log_bytes for one in partitions for where in lost if where.endswith(f" {one.name}"))
