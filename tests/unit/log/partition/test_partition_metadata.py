"""The topic id of a partition: in Kafka's file, durable with the next flush."""

from __future__ import annotations

import errno
import uuid
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.errors import StorageError

if TYPE_CHECKING:
    from ..conftest import Disk, Log

TOPIC_ID = uuid.UUID(int=4711)


def test_an_id_is_written_in_kafkas_format_and_read_after_a_restart(disk: Disk, log: Log) -> None:
    assert log.log.metadata.topic_id is None
    log.log.metadata.set_topic_id(TOPIC_ID)
    text = (disk.directory / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASZw"
    assert disk.restart(log).log.metadata.topic_id == TOPIC_ID


def test_the_next_flush_syncs_the_file(disk: Disk, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.log.metadata.set_topic_id(TOPIC_ID)
    assert log.log.metadata.path in log.log.flusher.dirty_paths
    log.log.flusher.flush()
    assert log.log.metadata.path not in log.log.flusher.dirty_paths


def test_an_id_that_cannot_be_written_is_not_remembered(disk: Disk, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: str, data: bytes, durable: bool = True) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk.files, "write_atomically", refuses)
    with pytest.raises(StorageError, match=r"cannot write the topic id of orders-0"):
        log.log.metadata.set_topic_id(TOPIC_ID)
    assert log.log.metadata.topic_id is None
