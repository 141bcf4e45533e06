"""A broker without ZooKeeper, and the adoption of the data of another one: Apache Kafka's, or one without its metadata.

The directories contain the cluster id, the broker id, and the topics with their ids and numbers of partitions. The
settings of a topic were in ZooKeeper or in the metadata log and are in no directory. The broker's defaults apply until
settings are made again, with one exception to avoid data loss: retention deletes nothing by age or size, because the
topic may have been configured to keep its records without limit. The internal topics get the settings that they need.
Topics that were adopted before keep the settings that were made here since.
Source: kafka.log.LogManager (what a directory knows), kafka.zk.AdminZkClient (what it does not).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_directories import LogDirectories, StoredTopic
from kafkalite.log.directories.meta_properties import MetaProperties, agreed, read_meta_properties
from kafkalite.log.storage.file_names import META_PROPERTIES
from kafkalite.log.storage.files import Files
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord
from kafkalite.metadata.standalone_metadata import StandaloneMetadata, journal_directory
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.zk.cluster.session_file import check_is_no_member
from kafkalite.zk.controller.admin_checks import StandaloneController

_KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_INTERNAL_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(100 << 20)}
_SETTINGS = {
    GROUP_METADATA_TOPIC: {**_INTERNAL_SETTINGS, "compression.type": "producer"},
    TRANSACTION_STATE_TOPIC: {**_INTERNAL_SETTINGS, "compression.type": "uncompressed"},
}
FIRST_PRODUCER_ID = 1 << 40
"""Apache Kafka counts its producer ids in ZooKeeper, from 0, and continues from there if it is used again. The ids
allocated here begin far above, so that no two producers ever share one."""


class Adopted(NamedTuple):
    """The topics that were taken over. `new` were not known before, `gone` were known and are not found. `missing` are
    partitions that should be there, by their numbers, and are not."""

    records: list[TopicRecord]
    new: list[str]
    gone: list[str]
    missing: dict[str, list[int]]

    def lines(self) -> list[str]:
        """A report for the operator."""
        count = sum(len(record.partitions) for record in self.records)
        found = [f"{len(self.records)} topics with {count} partitions"]
        if self.gone:
            found.append(f"forgotten, for they are not there any more: {_some(self.gone)}")
        defaults = [name for name in self.new if name not in INTERNAL_TOPICS]
        if defaults:
            found.append(
                "settings of topics are in no data directory: until they are set again the defaults of this broker "
                "hold (log.cleanup.policy, message.max.bytes and so on), but retention.ms and retention.bytes are -1, "
                f"so that nothing is deleted, for {_some(defaults)}"
            )
        internal = [name for name in self.new if name in INTERNAL_TOPICS]
        if internal:
            found.append(f"{' and '.join(internal)} stay compacted")
        found += [
            f"{name} lacks partitions {_some(map(str, numbers))}, which begin empty here: were they on another broker?"
            for name, numbers in self.missing.items()
        ]
        return found


def adopt(
    stored: Mapping[str, StoredTopic], known: Mapping[str, TopicRecord], broker_id: int, *, some_are_offline: bool
) -> Adopted:
    """The records of the topics that are `stored`; `known` are the records from an earlier start.

    `some_are_offline`: a directory cannot be read, so a topic that is not found may be in there, and stays.
    """
    records: list[TopicRecord] = []
    new: list[str] = []
    missing: dict[str, list[int]] = {}
    for name, topic in stored.items():
        record = known.get(name)
        if record is not None and topic.topic_id not in (None, record.topic_id):
            record = None  # the known one was deleted, and another created
        if record is None:
            new.append(name)
            record = TopicRecord(name, topic.topic_id or random_uuid(), {}, _SETTINGS.get(name, _KEPT_FOR_EVER))
        count = max(max(topic.partitions) + 1, len(record.partitions))
        first = PartitionRecord((broker_id,), broker_id, 0, (broker_id,), 0)
        partitions = {index: record.partitions.get(index, first) for index in range(count)}
        records.append(record._replace(partitions=partitions))
        absent = sorted(set(partitions) - topic.partitions)
        if absent and not some_are_offline:
            missing[name] = absent
    gone = [name for name in known if name not in stored]
    if some_are_offline:
        records += [known[name] for name in gone]
        gone = []
    return Adopted(records, new, gone, missing)


def identity(data_dirs: Sequence[str]) -> MetaProperties:
    """The cluster and the broker that the directories belong to. Raises ConfigError if they do not say."""
    found: dict[str, MetaProperties] = {}
    files = Files()
    for data_dir in data_dirs:
        path = os.path.join(data_dir, META_PROPERTIES)
        try:
            if not os.path.isdir(data_dir):
                raise ConfigError(f"cannot adopt {data_dir}: there is no such directory")
            meta = read_meta_properties(files, path)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; check its owner and rights") from error
        if meta is not None:
            found[path] = meta
    if not found:
        raise ConfigError(
            f"cannot adopt {','.join(data_dirs)}: no {META_PROPERTIES} names its owner; "
            "give the directory that log.dirs named, or use --data-dir for a new one"
        )
    return agreed(found)


def _some(names: object, at_most: int = 8) -> str:
    listed = list(names)  # type: ignore[call-overload]
    more = f" and {len(listed) - at_most} more" if len(listed) > at_most else ""
    return ", ".join(listed[:at_most]) + more


class SingleBroker:
    """A cluster of one, whose metadata is in a journal in one of its data directories. It has the methods of a
    `ClusterMember`, so that `BrokerServer` starts both alike.

    `adopted` says after the start of `metadata` which topics were taken over from another broker; None if none.
    """

    default_replication_factor = 1
    controller_stats = None  # it elects no leaders
    isr_states = None  # there are no other replicas

    def __init__(
        self, config: BrokerConfig, directories: LogDirectories, *, adopts: bool, in_memory: bool = False
    ) -> None:
        """Raises ConfigError if the directories belong to a member of a cluster and `adopts` is false."""
        online = [directory.path for directory in directories.online]
        if not adopts:
            check_is_no_member(online)
        self.adopted: Adopted | None = None
        self.broker_id = config.broker_id
        self._config = config
        self._directories = directories
        self.metadata = StandaloneMetadata(
            journal_directory(online, {directory.path: directory.failure or "" for directory in directories.offline}),
            cluster_id=directories.stored_cluster_id,
            first_topics=self._adopt,
            takes_over=adopts or directories.was_used_by_another,
            broker_id=config.broker_id,
            in_memory=in_memory,
        )
        self.partition_admin = StandaloneController(self.metadata)

    async def claim(self) -> None:
        """No other broker can have this one's id."""

    async def join(self, applier: MetadataApplier, ports: Mapping[str, int]) -> None:
        await self.advertise(ports)

    async def advertise(self, ports: Mapping[str, int]) -> None:
        """Registers no endpoints: each client gets the address that it has dialled."""
        await self.metadata.register((), self._config.broker_rack)

    async def leave(self) -> None:
        """Does nothing: there are no other brokers to notify."""

    def end_threads(self) -> None:
        """See `BrokerServer.end_threads`."""
        self.metadata.abandon()

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config

    def inter_broker_requests(self) -> None:
        """None: there are no other brokers."""

    def legacy_offsets(self) -> None:
        """None: legacy offsets exist only in ZooKeeper."""

    def _adopt(self, known: Mapping[str, TopicRecord]) -> list[TopicRecord]:
        """The topics that another broker left in the directories, perhaps none."""
        directories = self._directories
        directories.restore_strays({record.topic_id: name for name, record in known.items()})
        adopted = adopt(directories.stored_topics(), known, self.broker_id, some_are_offline=bool(directories.offline))
        if directories.stored_cluster_id is not None or adopted.records or adopted.gone:
            self.adopted = adopted
        return adopted.records
