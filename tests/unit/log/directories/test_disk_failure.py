from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.common.clock import TimerGroup
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.storage.files import Files, run_inline
from tests.support.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("number", "there", "gone"),
    [
        (errno.EIO, True, True),
        (errno.EROFS, True, True),
        (errno.ENOSPC, False, False),
        (errno.EMFILE, False, False),
        (errno.ENOENT, False, True),
        (errno.EACCES, False, True),
    ],
)
def test_a_missing_file_is_a_failure_only_where_the_directory_is_missing(
    number: int, there: bool, gone: bool, tmp_path: Path
) -> None:
    directory = LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock()))
    lock = tmp_path / ".lock"
    lock.touch()
    assert directory.is_failed_by(OSError(number, "")) is there
    lock.unlink()
    assert directory.is_failed_by(OSError(number, "")) is gone
