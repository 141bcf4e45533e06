"""What stands in for a log whose data directory has failed: whoever asks it for anything learns that.

It has none of a log's parts, so every question and every deed of `PartitionLog` ends at the first part it needs.
Source: kafka.server.HostedPartition.Offline.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.partition_log import PartitionLog


class OfflineLog(PartitionLog):
    """Its name is known, and `why` it is offline; everything else raises StorageError."""

    __slots__ = ("why",)

    is_offline = True

    def __init__(self, topic: str, partition: int, why: str) -> None:
        self.topic = topic
        self.partition = partition
        self.why = why

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StorageError(f"{self.topic}-{self.partition} is offline: {self.why}")

    def __repr__(self) -> str:
        return f"OfflineLog({self.topic}-{self.partition})"

    @property
    def failure(self) -> str | None:
        return self.why

    @property
    def config(self) -> TopicConfig:
        self._refuse()

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Of no use here; the next start has it from the registry."""

    def abandon(self) -> None:
        """There is nothing to give back."""
