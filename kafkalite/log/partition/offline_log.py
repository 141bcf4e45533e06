"""Stand-in for a log whose data directory has failed: every use raises StorageError.

Source: kafka.server.HostedPartition.Offline.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig


class OfflineLog:
    """Has a name and, in `failure`, the reason why it is offline."""

    __slots__ = ("failure", "partition", "topic")

    def __init__(self, topic: str, partition: int, failure: str) -> None:
        self.topic = topic
        self.partition = partition
        self.failure = failure

    def __getattr__(self, name: str) -> Any:
        """Called for every attribute that this class lacks."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StorageError(f"{self.topic}-{self.partition} is offline: {self.failure}")

    def __repr__(self) -> str:
        return f"OfflineLog({self.topic}-{self.partition})"

    @property
    def config(self) -> TopicConfig:
        self._refuse()

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Ignored: the next start reads the settings from the cluster metadata."""

    def abandon(self) -> None:
        """Nothing to close."""
