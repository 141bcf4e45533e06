"""The bench of the broker in a test's process: a row for each piece of work, and the page that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.embedded import BEGIN, END, PAGE, Row, line, rows, section, write


def test_each_piece_of_work_has_a_row() -> None:
    found = list(rows(2))
    work = [
        "life",
        "reset",
        "compaction",
        "month",
        "snapshot",
        "cluster",
        "first",
        "import",
        "plugin",
        "at once",
        "many",
    ]
    assert [row.name for row in found] == work
    assert found[-1].what.startswith("10 brokers") and "threads" in found[-1].p50


def test_the_page_has_them_between_its_marks(tmp_path: Path) -> None:
    met = Row("reset", "`reset`", "0.2 ms", "0.3 ms", "200", "1 ms", True)
    missed = Row("plugin", "a plugin", "3 ms", "", "40 pairs", "2 ms", False)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):  # again and again
        write(section([met, missed], "a machine"), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n`python -m bench embedded --write`, on a machine:")
    assert text.endswith(f"| a plugin | 3 ms |  | **2 ms** |\n{END}\nafter\n") and "old" not in text
    assert "misses" in line(missed) and "misses" not in line(met)
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lacks the marks"):
        write("", page)
    assert BEGIN in PAGE.read_text() and END in PAGE.read_text()
