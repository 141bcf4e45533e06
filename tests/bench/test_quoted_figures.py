"""The figures that README and the comparison quote are those of the tables that the bench has written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KAFKA_3, KAFKA_4 = "Apache Kafka 3.9.1", "Apache Kafka 4.3.0"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
START = ("start to first acknowledged record",)
QUOTED = {  # line of README -> lines of the table, in the order of the figures
    "start to first acknowledged record": START,
    "idle memory (RSS)": ("idle RSS",),
    "produce to consume, stock C client: p50 / p99": ("produce to consume, p50", "produce to consume, p99"),
    "one-record requests, five in flight": ("one-record requests, five in flight",),
    "batches of 150 x 100 B, five in flight": ("replayed batches of 150 x 100 B",),
    "stock C producer, 100 B / 1 KB": ("stock C producer, 100 B", "stock C producer, 1 KB"),
    "... and the broker's CPU for it": (
        "stock C producer, 100 B: broker CPU of it",
        "stock C producer, 1 KB: broker CPU of it",
    ),
    "stock C consumer, 100 B / 1 KB": ("stock C consumer, 100 B", "stock C consumer, 1 KB"),
    "transactions of 100 records, one producer (Kafka: the warmer, the more)": ("transactions of 100 records",),
    "fetch to a discarding reader, 1 MiB / 8 MiB": ("discarding reader, 1 MiB", "discarding reader, 8 MiB"),
    "share group of 4 Java consumers, 100 B (beside 4.3.0)": ("share group, 100B, members: 4",),
}


def cells(line: str) -> list[str]:
    return [each.strip() for each in line.strip().strip("|").split("|")]


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The lines of the first table under the heading."""
    lines = text.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [cells(line) for line in lines if line.startswith("| ") and not line.startswith(("| --", "| work"))]


def measured(kafka: str) -> dict[str, tuple[str, str, str]]:
    """kafkalite's figure, Kafka's and their ratio, by the work; a line that is indented belongs to the one before."""
    found, work = {}, ""
    page = (ROOT / "docs/performance.md").read_text()
    for label, _, ours, _, theirs, _, ratio, *_ in rows_of(page, f"Beside {kafka}"):
        if label.startswith("&nbsp;"):
            label = f"{work}: {label.replace('&nbsp;', '').strip()}"
        else:
            work = label
        found[label] = (ours, theirs, ratio)
    return found


def value(figure: str) -> float:
    return float(figure.replace(",", ""))


def agrees(quoted: str, figure: str) -> bool:
    """Whether the figure, in any power of a thousand of its unit, is the quoted one, rounded."""
    digits = len(quoted.partition(".")[2])
    return any(
        abs(value(figure) * scale - value(quoted)) <= max(0.501 * 10**-digits, 0.01 * value(quoted))
        for scale in (1e-6, 1e-3, 1, 1e3, 1e6)
    )


@pytest.mark.parametrize("work", QUOTED)
def test_readme_quotes_the_tables(work: str) -> None:
    quoted = {row[0]: row[1:] for row in rows_of((ROOT / "README.md").read_text(), "How fast")}
    assert quoted.keys() == QUOTED.keys()
    table = measured(KAFKA_4 if "4.3.0" in work else KAFKA_3)
    for column, cell in enumerate(quoted[work]):
        figures = NUMBER.findall(cell)
        assert len(figures) == len(QUOTED[work])
        for each, figure in zip(QUOTED[work], figures, strict=True):
            assert agrees(figure, table[each][column]), (each, figure, table[each])


@pytest.mark.parametrize(("line", "work"), [("start to the first record", START[0]), ("memory, idle", "idle RSS")])
def test_the_comparison_quotes_the_table(line: str, work: str) -> None:
    page = (ROOT / "docs/comparison.md").read_text()
    ours, theirs = next(cells(each) for each in page.splitlines() if each.startswith(f"| {line} |"))[1:3]
    for quoted, figure in zip((ours, theirs), measured(KAFKA_3)[work], strict=False):
        found = NUMBER.match(quoted)
        assert found is not None and agrees(found[0], figure), (quoted, figure)
