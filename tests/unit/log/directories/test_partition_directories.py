from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kafkalite.common.clock import TimerGroup
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.storage.checkpoint_file import encode_topic_id
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, STRAY_DIRECTORY
from kafkalite.log.storage.files import Files, run_inline
from tests.support.manual_clock import ManualClock

HEX = "0123456789abcdef" * 2


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock()))


def test_each_directory_is_told_by_its_name(directory: LogDirectory, tmp_path: Path) -> None:
    names = ["orders-0", f"orders-1.{HEX}-delete", f"orders-2.{HEX}-stray", f"orders-3.{HEX}-future"]
    for name in [*names, "__cluster_metadata-0", "lost+found", "clicks-01"]:
        (tmp_path / name).mkdir()
    (tmp_path / "clicks-0").touch()
    contents = directory.listing()
    assert contents.logs == [("orders", 0)]
    assert (contents.deleted, contents.strays) == (names[1:2], names[2:3])
    assert contents.futures == {("orders", 3): names[3:]}


def test_a_stray_gets_its_name_again(directory: LogDirectory, tmp_path: Path) -> None:
    topic_id = uuid.uuid4()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(encode_topic_id(topic_id))
    renamed = Path(directory.rename(("orders", 0), STRAY_DIRECTORY))
    assert directory.listing().logs == [] and directory.listing().strays == [renamed.name]
    assert directory.topic_id_in(renamed.name) == topic_id
    directory.restore(renamed.name, ("orders", 0))
    assert directory.topic_id_of(("orders", 0)) == topic_id


def test_unfinished_copies_of_a_deleted_log_are_marked_once(directory: LogDirectory, tmp_path: Path) -> None:
    (tmp_path / f"orders-0.{HEX}-future").mkdir()
    directory.listing()
    (path,) = directory.rename_futures(("orders", 0))
    assert path.endswith(DELETE_DIRECTORY) and Path(path).is_dir()
    assert directory.rename_futures(("orders", 0)) == []


def test_a_log_has_records_if_it_was_ever_rolled(directory: LogDirectory, tmp_path: Path) -> None:
    log = tmp_path / "orders-0"
    log.mkdir()
    first = log / f"{0:020d}.log"
    first.touch()
    assert not directory.has_records(("orders", 0))
    first.write_bytes(b"x")
    assert directory.has_records(("orders", 0))
    first.unlink()
    (log / f"{7:020d}.log").touch()
    assert directory.has_records(("orders", 0))
