"""Producer snapshots and indexes of aborted transactions, as the broker's recovery writes them, have no faults."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import list_partition
from kafkalite.inspection.verify.partition_check import check_partition
from kafkalite.log.recovery.log_loader import LoadOptions, load
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.transaction_marker import ABORT, COMMIT

NOW_MS = 1_700_000_000_000


def transaction(kind: int, base_offset: int, marker_epoch: int) -> bytes:
    """Two records of producer 7 in epoch 0, and the marker that ends them."""
    records = [NewRecord(b"k", b"v", (), NOW_MS)] * 2
    end = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3), (), NOW_MS)
    producer = {"producer_id": 7, "transactional": True, "leader_epoch": 0}
    data = build_batch(records, base_offset=base_offset, producer_epoch=0, base_sequence=base_offset, **producer)
    marker = build_batch([end], base_offset=base_offset + 2, producer_epoch=marker_epoch, control=True, **producer)
    return bytes(data + marker)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@pytest.mark.parametrize("marker_epoch", [0, 1], ids=["its own epoch", "fenced"])
def test_a_snapshot_after_a_transaction(tmp_path: Path, kind: int, marker_epoch: int) -> None:
    """A marker of a newer epoch, as of a transaction that timed out, makes the producer's batches forgotten."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(transaction(kind, 0, marker_epoch))
    loaded = load(str(directory), TopicConfig(), LoadOptions(clean=False), NOW_MS, Files(), EXPIRATION_MS)
    for segment in loaded.segments:
        segment.abandon()
    assert (directory / f"{3:020d}.snapshot").exists()
    assert (directory / f"{0:020d}.txnindex").exists() == (kind == ABORT)
    assert check_partition(list_partition(str(directory)), lambda _: None).faults == []
