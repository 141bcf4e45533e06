"""Names decide: .log files without a batch are enough here. Crashes at every step: test_segment_replacement_crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.log.recovery.swap_recovery import complete_swaps
from kafkalite.log.storage.files import Files


def recover(directory: Path, *names: str) -> list[str]:
    """`names` such as "5.log.swap" are made; those that are left come back."""
    for name in names:
        base, _, rest = name.partition(".")
        (directory / f"{int(base):020d}.{rest}").touch()
    temporary = [path.name for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
    complete_swaps(str(directory), temporary, Files())
    return sorted(f"{int(path.name[:20])}{path.name[20:]}" for path in directory.iterdir())


def test_deleted_files_go(tmp_path: Path) -> None:
    assert recover(tmp_path, "0.log", "0.log.deleted", "0.index.deleted") == ["0.log"]


def test_a_swap_takes_the_place_of_the_segments_that_it_covers(tmp_path: Path) -> None:
    names = ("0.log", "0.snapshot", "5.log", "5.index", "0.log.swap", "0.index.swap")
    assert recover(tmp_path, *names) == ["0.index", "0.log", "0.snapshot", "5.index", "5.log"]  # empty: covers offset 0


def test_a_cleaned_file_undoes_the_swaps_at_or_behind_it(tmp_path: Path) -> None:
    names = ("0.log", "5.log", "9.log", "0.log.swap", "5.log.swap", "5.index.cleaned", "9.log.swap")
    assert recover(tmp_path, *names) == ["0.log", "5.log", "9.log"]


def test_a_swap_whose_log_is_in_place_already_follows_it(tmp_path: Path) -> None:
    assert recover(tmp_path, "0.log", "0.index.swap", "5.log") == ["0.index", "0.log", "5.log"]


def test_a_damaged_swap_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log.swap").write_bytes(b"\1" * 100)
    with pytest.raises(StorageError, match="should be complete"):
        recover(tmp_path)
