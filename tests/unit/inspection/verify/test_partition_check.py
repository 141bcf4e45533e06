"""Producer snapshots and indexes of aborted transactions, as the broker's recovery writes them, have no faults."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

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
PRODUCER: dict[str, Any] = {"producer_id": 7, "transactional": True, "leader_epoch": 0}


def transaction(kind: int, marker_epoch: int, *sizes: int) -> list[bytes]:
    """Batches of producer 7 in epoch 0, of so many records each, and the marker that ends them."""
    batches, offset = [], 0
    for size in sizes:
        records = [NewRecord(b"k", b"v", (), NOW_MS)] * size
        batches.append(build_batch(records, base_offset=offset, producer_epoch=0, base_sequence=offset, **PRODUCER))
        offset += size
    end = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3), (), NOW_MS)
    marker = build_batch([end], base_offset=offset, producer_epoch=marker_epoch, control=True, **PRODUCER)
    return [bytes(batch) for batch in (*batches, marker)]


def recover(directory: Path, *batches: bytes) -> None:
    """Leaves the files that a start makes beside a log of these batches."""
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    loaded = load(str(directory), TopicConfig(), LoadOptions(clean=False), NOW_MS, Files(), EXPIRATION_MS)
    for segment in loaded.segments:
        segment.abandon()


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@pytest.mark.parametrize("marker_epoch", [0, 1], ids=["its own epoch", "fenced"])
def test_a_snapshot_after_a_transaction(tmp_path: Path, kind: int, marker_epoch: int) -> None:
    """A marker of a newer epoch, as of a transaction that timed out, makes the producer's batches forgotten."""
    directory = tmp_path / "t-0"
    recover(directory, *transaction(kind, marker_epoch, 2))
    assert (directory / f"{3:020d}.snapshot").exists()
    assert (directory / f"{0:020d}.txnindex").exists() == (kind == ABORT)
    assert check_partition(list_partition(str(directory)), lambda _: None).faults == []


def test_a_transaction_whose_first_batch_was_compacted_away(tmp_path: Path) -> None:
    """No batch that is left has lost a record: only the cleaner's checkpoint tells of the compaction."""
    directory = tmp_path / "t-0"
    begun, *rest = transaction(ABORT, 0, 1, 1)
    recover(directory, begun, *rest)
    (directory / f"{0:020d}.log").write_bytes(b"".join(rest))
    for path in directory.glob("*index"):
        if not path.name.endswith(".txnindex"):
            path.unlink()  # they are of the whole log
    found = list_partition(str(directory))
    of_index = [fault for fault in check_partition(found, lambda _: None).faults if "txnindex" in fault.path]
    assert [fault.what for fault in of_index] == ["the transaction began at 1, not at 0"]
    cleaned = check_partition(found, lambda _: None, compacted_to=3)
    assert not [fault for fault in cleaned.faults if "txnindex" in fault.path]
