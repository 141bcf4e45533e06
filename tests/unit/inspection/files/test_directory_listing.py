"""The meaning of a path on the command line: a data directory, one partition of it, or one that was copied away."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.inspection.files.directory_listing import (
    checkpoint_offsets,
    list_directory,
    list_partition,
    read_written,
)

FIRST, SECOND = f"{0:020d}", f"{42:020d}"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "orders-7"
    path.mkdir()
    (path / f"{SECOND}.log").write_bytes(b"12345")
    (path / f"{FIRST}.log").write_bytes(b"123")
    (path / f"{FIRST}.index").write_bytes(b"")
    return path


def test_a_partition_has_its_segments_in_order_and_all_its_files(partition: Path) -> None:
    (partition / f"{SECOND}.log.deleted").touch()
    (partition / "x.log").touch()
    (partition / "a-directory").mkdir()
    os.mkfifo(partition / "a-fifo")
    listed = list_partition(str(partition))
    assert (listed.key, listed.bases, listed.log_bytes) == (("orders", 7), [0, 42], 8)
    assert listed.files.keys() == {path.name for path in partition.iterdir() if path.is_file()}
    assert listed.others == ["a-directory", "a-fifo"]
    assert listed.has(0, ".index") and not listed.has(42, ".index")


def test_a_data_directory_is_listed_whole(partition: Path) -> None:
    root = partition.parent
    (root / "not-a-partition").mkdir()
    (root / "file-0").touch()
    (root / "clicks-0").mkdir()
    listed = list_directory(str(root))
    assert (listed.root, listed.place, listed.whole) == (str(root), str(root), True)
    assert [one.name for one in listed.partitions] == ["clicks-0", "orders-7"]
    assert listed.names == ["clicks-0", "file-0", "not-a-partition", "orders-7"]


SIGNS = ["meta.properties", ".lock", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"]


@pytest.mark.parametrize("sign", SIGNS)
def test_a_partition_belongs_to_the_data_directory_that_it_lies_in(partition: Path, sign: str) -> None:
    (partition.parent / sign).touch()
    listed = list_directory(f"{partition}/")
    assert (listed.root, listed.whole) == (str(partition.parent), False)
    assert [one.name for one in listed.partitions] == ["orders-7"]


def test_a_partition_that_was_copied_away_belongs_to_none(partition: Path) -> None:
    listed = list_directory(str(partition))
    assert (listed.root, listed.names, listed.place) == (None, [], str(partition))
    assert not listed.is_locked
    renamed = partition.rename(partition.parent / "copy of orders")
    assert list_directory(str(renamed)).partitions[0].key == ("copy of orders", -1)


def test_a_data_directory_may_have_the_name_of_a_partition(tmp_path: Path) -> None:
    (tmp_path / "kafka-0").mkdir()
    (tmp_path / "kafka-0" / "meta.properties").touch()
    assert list_directory(str(tmp_path / "kafka-0")).whole


def test_krafts_own_log_is_no_topic(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "meta.properties").touch()
    (one,) = list_directory(str(tmp_path)).partitions
    assert one.is_kraft


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none", "there is no directory"), (tmp_path, "is no data directory")):
        with pytest.raises(ConfigError, match=words):
            list_directory(str(path))


@pytest.mark.parametrize("lock", [fcntl.flock, None])
def test_a_running_broker_is_seen_by_its_lock(partition: Path, lock: object) -> None:
    place = partition.parent / ".lock"
    place.touch()
    listed = list_directory(str(partition.parent))
    assert not listed.is_locked
    with place.open("r+b") as file:
        if lock is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        assert listed.is_locked == (lock is not None)
    assert not listed.is_locked


def test_a_checkpoint_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("0\n1\norders 7 42\n")
    (tmp_path / "cut").write_text("0\n2\norders 7 42\n")
    assert checkpoint_offsets(str(tmp_path), "good") == {("orders", 7): 42}
    for root, name in ((None, "good"), (str(tmp_path), "cut"), (str(tmp_path), "none")):
        assert checkpoint_offsets(root, name) == {}


def test_a_hole_at_the_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.write(b"written")
        file.truncate(10 << 20)
    data, size = read_written(str(path))
    assert size == 10 << 20
    assert data.rstrip(b"\0") == b"written" and len(data) <= 10 << 20
