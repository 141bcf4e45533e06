"""A partition whose directory has failed refuses everything but its name."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.replication.partition import OfflinePartition


def test_an_offline_partition_refuses_every_use_and_says_why() -> None:
    partition = OfflinePartition("orders", 0, "its disk has failed", 3)
    assert (partition.topic, partition.index, partition.leader_epoch, partition.is_offline) == ("orders", 0, 3, True)
    for use in (
        lambda: partition.log,
        lambda: partition.log.start_offset,
        lambda: partition.append(memoryview(b""), 0, 9),
        lambda: partition.read(0, 1, True),
        lambda: partition.check_epoch(3),
        lambda: partition.active_producers(),
        lambda: partition.begin_verification(1, 0, 0),
        lambda: partition.low_watermark,
        lambda: partition.end_offset_for_epoch(0),
    ):
        with pytest.raises(StorageError, match="orders-0 is offline: its disk has failed"):
            use()
    partition.retire()
