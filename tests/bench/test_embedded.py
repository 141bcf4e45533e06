"""The bench of the broker in a test's process: it does what it says, and has a line for each."""

from __future__ import annotations

from bench.embedded import lines


def test_each_piece_of_work_has_a_line() -> None:
    found = list(lines(2))
    names = [line.split()[0] for line in found[1:]]
    work = ["life", "reset", "compaction", "month", "snapshot", "cluster", "first", "import", "plugin", "at", "10"]
    assert names == work
    assert found[-1].startswith("10 brokers: ")
