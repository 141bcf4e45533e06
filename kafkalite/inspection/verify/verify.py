"""`kafkalite log verify`: checks a data directory, or one partition, against itself.

Each log is read once from front to back, together with the files beside it; several logs at a time, because a read
waits for the disk. The root of the data directory comes next. For each log with faults, and for all of them after an
unclean stop, recovery is run on a shadow of its directory, so that a finding says what a restart does.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafkalite.inspection.files.directory_listing import PartitionDirectory, list_directory
from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.files.progress import Progress
from kafkalite.inspection.verify.log_dir_check import check_root
from kafkalite.inspection.verify.partition_check import PartitionReport, check_partition
from kafkalite.inspection.verify.prediction import predict, predict_unexplained
from kafkalite.inspection.verify.recovery_dry_run import Forecast, dry_run
from kafkalite.inspection.verify.start_knowledge import StartKnowledge

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
    known = StartKnowledge(listing)

    def check(partition: PartitionDirectory) -> PartitionReport:
        return check_partition(
            partition,
            progress.advance,
            compacted_to=known.cleaner_offsets.get(partition.key, 0),
            is_compacted="compact" in known.config_of(partition.topic).cleanup_policy,
            clean=known.clean,
            deep=deep,
        )

    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalite-verify") as pool:
            reports = list(pool.map(check, listing.partitions))
        root_faults = check_root(listing, reports, clean=known.clean)
    finally:
        progress.clear()
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    findings: list[Finding] = []
    forecasts: dict[str, Forecast] = {}
    for report in reports:
        partition = report.partition
        has_faults = any(fault.severity is None for fault in report.faults)
        is_asked = has_faults or not (known.clean or known.drops_all(report))
        if is_asked and not partition.is_kraft:
            config = known.config_of(partition.topic)
            forecasts[partition.path] = dry_run(partition, known.options_of(report), config, now_ms)
        forecast = forecasts.get(partition.path)
        found = [predict(fault, forecast, report) for fault in report.faults]
        findings += [*found, *predict_unexplained(found, forecast, report)]
    findings += [predict(fault, None, None) for fault in root_faults]
    lost_bytes = sum(forecast.lost_bytes for forecast in forecasts.values()) + _bytes_of_lost(reports, root_faults)
    return Verdict(
        listing.place, findings, len(reports), log_bytes, known.clean, listing.is_locked, lost_bytes, forecasts
    )


def _bytes_of_lost(reports: list[PartitionReport], root_faults: list[Fault]) -> int:
    """The bytes of logs that a restart deletes as a whole, because of a checkpoint."""
    lost = [fault.where for fault in root_faults if fault.severity is Severity.LOSES]
    partitions = [report.partition for report in reports]
    return sum(one.log_bytes for one in partitions for where in lost if where.endswith(f" {one.name}"))
