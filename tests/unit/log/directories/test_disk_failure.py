from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.log.directories.disk_failure import is_disk_failure


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
    lock = tmp_path / ".lock"
    lock.touch()
    assert is_disk_failure(OSError(number, ""), str(lock)) is there
    lock.unlink()
    assert is_disk_failure(OSError(number, ""), str(lock)) is gone
