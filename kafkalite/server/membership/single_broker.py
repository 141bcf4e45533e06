"""A standalone broker: its metadata is in a journal in its first data directory, and it leads everything.

It has the methods of a `ClusterMember`, so that `BrokerServer` starts both alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.controller.admin_checks import StandaloneController
from kafkalite.metadata.standalone_metadata import StandaloneMetadata, journal_directory
from kafkalite.server.membership.adoption import Adopted, adopt
from kafkalite.zk.cluster.session_file import check_is_no_member

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_directories import LogDirectories
    from kafkalite.metadata.cluster_metadata import TopicRecord
    from kafkalite.replication.metadata_applier import MetadataApplier


class SingleBroker:
    """`adopted` says after the start of `metadata` which topics were taken over from another broker; None if none."""

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
        """The topics that another broker left in the directories. It need not have had any."""
        directories = self._directories
        directories.restore_strays({record.topic_id: name for name, record in known.items()})
        adopted = adopt(directories.stored_topics(), known, self.broker_id, some_are_offline=bool(directories.offline))
        if directories.stored_cluster_id is not None or adopted.records or adopted.gone:
            self.adopted = adopted
        return adopted.records
