"""The comparison of the logs that were found at start with the metadata, which decides.

After an unclean stop a log of a deleted topic may be left; it becomes a stray, also if a new topic has that name. The
log of a topic whose id or settings are not known yet stays as it is until they are. A partition whose log was not found
is offline if the log may be in a directory that has failed, and begins empty otherwise.
Source: kafka.log.LogManager (strays), kafka.server.ReplicaManager (offline partitions).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.metadata.cluster_metadata import ClusterMetadata, RegistrationState
from kafkalite.replication.reconciliation import Role

logger = logging.getLogger(__name__)

_NAMED_MAX = 100


class Findings(NamedTuple):
    """The exceptions among the logs: `unresolved` topics with logs here whose settings are not in the metadata yet,
    `offline` partitions with the reason of the failure, and logs that were `truncated` because their last bytes were
    damaged. A truncated log is led under a new epoch, so that a client that has read records beyond its end detects the
    loss (KIP-320)."""

    unresolved: set[str]
    offline: dict[TopicPartition, str]
    truncated: set[TopicPartition]


async def compare(logs: LogManager, metadata: ClusterMetadata, role: Role, unknown_config: TopicConfig) -> Findings:
    """Rename the strays among `logs`, and report the missing ones. The logs of topics that the metadata does not
    explain yet get `unknown_config`."""
    held = {key: log.metadata.topic_id for key, log in logs.logs.items() if metadata.has_unresolved_topic(key[0])}
    if held:  # loaded with the defaults: their own settings come with their topic
        await metadata.return_ids(held)
    known = {
        (name, index): one.topic_id
        for name, one in metadata.topics.items()
        for index, state in one.partitions.items()
        if role.keeps(state) or not role.replicates
    }
    _rename_strays(logs, metadata, known, unknown_config)
    missing = [
        (name, index)
        for name, index in known
        if (name, index) not in logs.logs and role.keeps(metadata.topics[name].partitions[index])
    ]
    offline = dict.fromkeys(missing, str(logs.offline[0].failure)) if logs.offline else {}  # they may be there
    if missing and not offline:
        _report_missing(missing)
    truncated = {key for key, log in logs.logs.items() if log.lost_bytes}
    return Findings({name for name, _ in held}, offline, truncated)


def rename_foreign(logs: LogManager, log: PartitionLog | None, topic_id: uuid.UUID) -> None:
    """Rename a log of the right name that belongs to another topic."""
    if log is not None and log.metadata.topic_id not in (None, topic_id):
        logger.warning(
            "%s-%d is left of a deleted topic of that name, and is renamed to -stray", log.topic, log.partition
        )
        logs.keep_as_stray(log.topic, log.partition)


def _rename_strays(
    logs: LogManager, metadata: ClusterMetadata, known: Mapping[TopicPartition, uuid.UUID], unknown_config: TopicConfig
) -> None:
    """Before any log is made, so that checkpoints are written once and not for every name that is used again."""
    was_member = metadata.registration_state is RegistrationState.MEMBER
    checks_ids = not was_member or not logs.was_clean  # others delete topics while this broker is away
    for key, log in list(logs.logs.items()):
        topic_id = known.get(key)
        if topic_id is None and metadata.has_unresolved_topic(key[0]):
            logger.warning("%s-%d stays as it is until the metadata says more clearly what its topic is", *key)
            log.config = unknown_config
        elif topic_id is None:
            name, index = key
            topic = metadata.topics.get(name)
            if topic is not None and index in topic.partitions:
                logger.warning("%s-%d was reassigned to other brokers, and is renamed to -stray", *key)
            else:
                logger.warning(
                    "%s-%d is not in the metadata, and is renamed to -stray: was its topic deleted? If another "
                    "broker made it here, take the rest of its directory's name away again and start with --adopt",
                    *key,
                )
            logs.keep_as_stray(*key)
        elif checks_ids:
            rename_foreign(logs, log, topic_id)


def _report_missing(missing: Sequence[TopicPartition]) -> None:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in missing[:_NAMED_MAX])
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    logger.warning(
        "%d partitions have no log in any directory of log.dirs, and begin empty: %s%s. If they were in a directory "
        "that is not named there, or on a disk that is not mounted, stop now and give it back",
        len(missing),
        names,
        more,
    )
