"""A log whose directory has failed refuses everything but its name."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.hosted_log import HostedLog
from kafkalite.log.partition.offline_log import OfflineLog


def test_an_offline_log_refuses_every_use_and_says_why() -> None:
    log: HostedLog = OfflineLog("orders", 0, "its disk has failed")
    assert (log.topic, log.partition, log.failure) == ("orders", 0, "its disk has failed")
    for use in (
        lambda: log.start_offset,
        lambda: log.config,
        lambda: log.append(memoryview(b""), 0, 0),
        lambda: log.flusher.ack_offset,
        lambda: log.read(0, 1, 1),
    ):
        with pytest.raises(StorageError, match="orders-0 is offline: its disk has failed"):
            use()


def test_new_settings_of_an_offline_log_are_ignored() -> None:
    log = OfflineLog("orders", 0, "its disk has failed")
    log.config = TopicConfig()
    log.abandon()
    with pytest.raises(StorageError):
        log.config  # noqa: B018
