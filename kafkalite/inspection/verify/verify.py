"""`kafkalite log verify`: checks a data directory, or one partition, against itself.

Each log is read once from front to back, together with the files beside it; several logs at a time, because a read
waits for the disk. The root of the data directory comes next. For each log with faults, and for all of them after an
unclean stop, recovery is run on a shadow of its directory, so that a finding has the effect of a restart. The options
of that start come from the checkpoints by the function of a start; the settings of topics are those in the metadata
journal, over Kafka's defaults: the broker's own settings are not in its directory, and those of a cluster are in
ZooKeeper.
Source: kafka.log.LogManager.loadLogs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig, TopicConfigs
from kafkalite.inspection.files.directory_listing import (
    DirectoryListing,
    PartitionDirectory,
    checkpoint_offsets,
    list_directory,
    read_file,
)
from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.files.printer import Progress
from kafkalite.inspection.verify.log_dir_check import check_root
from kafkalite.inspection.verify.partition_check import PartitionReport, check_partition
from kafkalite.inspection.verify.recovery_dry_run import Forecast, dry_run, predict, predict_unexplained
from kafkalite.log.directories.offset_checkpoints import LogOffsets
from kafkalite.log.directories.startup_loading import load_options
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.checkpoint_file import encode_offsets
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from kafkalite.metadata.metadata_journal import JOURNAL_NAME, CorruptJournal, decode


class StartKnowledge:
    """`clean`: the last shutdown was clean. `cleaner_offsets`: the logs are compacted below these."""

    def __init__(self, listing: DirectoryListing) -> None:
        root = listing.root
        self.clean = root is None or CLEAN_SHUTDOWN in listing.names
        self.cleaner_offsets = checkpoint_offsets(root, CLEANER_OFFSETS)
        self._offsets = LogOffsets(
            *(checkpoint_offsets(root, name) for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS))
        )
        self._has_recovery_points = bool(self._offsets.recovery_points) or _holds_nothing(root)
        self._configs = TopicConfigs(BrokerConfig())
        self._overrides = _topic_overrides(root)

    def config_of(self, topic: str) -> TopicConfig:
        return self._configs.build(topic, self._overrides.get(topic, {}))

    def drops_all(self, report: PartitionReport) -> bool:
        """Whether a start empties the log, since it ends before its start offset: a fault of the checkpoint."""
        return self._offsets.log_starts.get(report.partition.key, 0) > report.end_offset

    def options_of(self, report: PartitionReport) -> LoadOptions:
        """How a start loads the log; as if its start offset were not behind its end."""
        options = load_options(
            report.partition.key, self._offsets, self.cleaner_offsets, self.clean, knows_gaps=self._has_recovery_points
        )
        return options._replace(start_offset=0) if self.drops_all(report) else options


def _holds_nothing(root: str | None) -> bool:
    """Whether there is a checkpoint of recovery points without any: no log was written yet."""
    try:
        return root is not None and read_file(f"{root}/{RECOVERY_POINTS}") == encode_offsets({})
    except OSError:
        return False


def _topic_overrides(root: str | None) -> dict[str, Mapping[str, str]]:
    """The settings of each topic in the metadata journal; none where it is missing or cannot be read."""
    found: dict[str, Mapping[str, str]] = {}
    try:
        if root is not None:
            for entry in decode(read_file(f"{root}/{JOURNAL_NAME}"), JOURNAL_NAME)[0]:
                if entry["op"] in ("topic", "config"):
                    found[entry["name"]] = dict(entry["config"])
                elif entry["op"] == "delete":
                    found.pop(entry["name"], None)
    except (OSError, CorruptJournal, KeyError, TypeError, ValueError):
        pass  # the check of the root names the fault
    return found


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
