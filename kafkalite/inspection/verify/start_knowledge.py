"""Knowledge of the logs at the next start of a broker: the last stop, the checkpoints, the settings of topics.

A log is loaded with options that the function of a start makes. The settings of topics are those in the metadata
journal, over Kafka's defaults: the broker's own settings are not in its directory, and those of a cluster are in
ZooKeeper.
Source: kafka.log.LogManager.loadLogs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import DirectoryListing, checkpoint_offsets
from kafkalite.inspection.files.regular_file import read_file
from kafkalite.inspection.verify.partition_check import PartitionReport
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
from kafkalite.replication.topic_configs import TopicConfigs


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
        """Whether a start begins the log anew, since it ends before its start offset: a fault of the checkpoint."""
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
