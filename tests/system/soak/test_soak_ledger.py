"""The ledger of the soak notices what it is there to notice."""

from __future__ import annotations

from pathlib import Path

from tests.system.soak.soak_ledger import Ledger, Runs


def enter(path: Path, *numbers: int, writer: str = "w.0") -> Path:
    runs = Runs()
    for number in numbers:
        runs.add(writer, 0, number)
    with path.open("a") as file:
        runs.write(file)
    return path


def test_a_record_that_no_member_read_is_missed(tmp_path: Path) -> None:
    written = Ledger([enter(tmp_path / "sent", 0, 1, 2, 3, 4, 5)])
    halves = [enter(tmp_path / "one", 0, 1, 2, 3), enter(tmp_path / "two", 2, 3, 4, 5)]
    assert written.missing_from(Ledger(halves)) == []
    with_a_hole = [enter(tmp_path / "three", 0, 1), enter(tmp_path / "four", 3, 4, 5)]
    assert written.missing_from(Ledger(with_a_hole)) == ["w.0 partition 0 0-5"]
    assert written.missing_from(Ledger([enter(tmp_path / "other", 0, 1, 2, 3, 4, 5, writer="w.1")])) != []
    assert written.count == 6


def test_a_line_that_a_kill_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    path = enter(tmp_path / "sent", 0, 1)
    with path.open("a") as file:
        file.write("w.0 0 2 99")
    assert Ledger([path]).count == 2


def test_a_fault_that_a_client_saw_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "read"
    path.write_text("!record 3 stands behind record 4\n")
    assert Ledger([path]).faults == ["read: record 3 stands behind record 4"]
