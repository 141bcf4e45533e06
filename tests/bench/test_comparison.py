"""Ratios of medians, what is aimed at, and the table, the plot and the page that say so."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from bench import page
from bench.comparison import LATEST, TARGETS, Comparison, Row, from_json, rows, table
from bench.java_perf import VERSION
from bench.plot import draw, times_better
from bench.report import Latency, Result
from bench.versus import names_of_work
from bench.wire import BrokerError
from bench.works import GROUP_WORKS, JAVA_WORKS, SHARE_WORKS, START, WORKS

SVG = "{http://www.w3.org/2000/svg}"


def loop(p50_us: float, p99_us: float) -> Result:
    return Result("closed-loop-1x100B", seconds=1.0, latency=Latency(p50_us, p99_us, p99_us))


def row(ours: list[float], theirs: list[float], target: float, more_is_better: bool, error: str = "") -> Row:
    return Row("some <work>", "us", 1, target, more_is_better, ours, theirs, error)


def some_rows() -> list[Row]:
    return [
        row([10.0], [100.0], 0.7, False),
        row([300.0], [100.0], 4.0, True),
        row([], [1.0], 1.0, True, "the broker closed the connection"),
    ]


def comparison() -> Comparison:
    machine = {"cpu": "Some CPU", "cores": "2", "memory": "8 GiB"}
    return Comparison(("kafkalite", "Apache Kafka 3.9.1"), machine, "2026-01-02", 5, 2.0, some_rows())


def test_a_ratio_is_one_of_medians() -> None:
    ours, theirs = [loop(7, 20), loop(8, 24), loop(7.5, 25)], [loop(24, 100), loop(22, 101), loop(20, 102)]
    p50, p99 = rows({"closed-loop-1x100B": (ours, theirs)})
    assert (p50.ours, p50.theirs) == ([7, 8, 7.5], [24, 22, 20])
    assert p50.ratio == 7.5 / 22
    assert p99.ratio == 24 / 101
    assert not p50.met
    assert p99.met


@pytest.mark.parametrize(
    ("ours", "theirs", "steady"),
    [
        ([100, 129], [50, 65], True),  # close together
        ([100, 131], [50, 50], False),
        ([100, 200, 100, 200], [50, 50, 50, 50], True),  # both halves alike
        ([100, 100, 200, 200], [50, 50, 100, 100], True),  # what drifts hits both
        ([100, 100, 150, 150], [50, 50, 50, 50], False),
        ([100, 300, 100], [50, 50, 50], True),  # the middle one is in no half
    ],
)
def test_a_row_that_is_not_steady_is_neither_met_nor_missed(
    ours: list[float], theirs: list[float], steady: bool
) -> None:
    found = row(ours, theirs, 1.0, True)
    assert found.steady is found.met is steady
    assert ("unsteady" in table([found])) is not steady


@pytest.mark.parametrize(
    ("ours", "target", "more_is_better", "met"),
    [(70, 0.7, False, True), (71, 0.7, False, False), (400, 4.0, True, True), (399, 4.0, True, False)],
)
def test_a_target_is_met_at_its_edge(ours: float, target: float, more_is_better: bool, met: bool) -> None:
    assert row([ours], [100.0], target, more_is_better).met is met


def test_a_failed_sample_fails_its_row_and_keeps_the_figures_of_the_others() -> None:
    failed = Result("closed-loop-1x100B", error="no answer")
    p50, _ = rows({"closed-loop-1x100B": ([loop(10, 50), failed], [loop(40, 100)])})
    assert (p50.ours, p50.error, p50.met) == ([10], "no answer", False)


def test_a_work_without_a_figure_is_no_success() -> None:
    found = rows({"stock-produce-1KB": ([Result("w", 1.0, payload_bytes=8)], [Result("w", 1.0, payload_bytes=8)])})
    assert [one.error for one in found] == ["", "no figure"]  # the rate is known, the CPU is not


def test_every_target_is_of_work_that_can_be_done() -> None:
    assert set(names_of_work()) <= {START, "java-latency-half-peak", *WORKS, *JAVA_WORKS}
    assert set(names_of_work(LATEST)) == {*names_of_work(), *GROUP_WORKS, *SHARE_WORKS}
    assert len({(target.work, target.figure) for target in TARGETS}) == len(TARGETS) == 48
    assert all(target.ratio > 0 for target in TARGETS)


def test_the_table_says_both_medians_spread_ratio_and_verdict() -> None:
    heading, _, first, second, third = table(some_rows()).splitlines()
    assert len({len(line) for line in (heading, first, second, third)}) == 1
    assert [cell.strip() for cell in first.split("|")[1:-1]] == [
        *("some <work>", "us", "10.0", "10.0-10.0", "100.0", "100.0-100.0", "0.10", "<= 0.7", "met")
    ]
    assert "**missed**" in second
    assert "FAILED: the broker closed the connection" in third


def test_better_is_to_the_right_whatever_is_counted() -> None:
    assert times_better(2.0, True) == times_better(0.5, False) == 2.0


def test_the_plot_is_svg_with_a_bar_and_a_mark_for_every_row() -> None:
    root = ElementTree.fromstring(draw(some_rows(), 'a "title" & more'))
    assert root.tag == f"{SVG}svg"
    width, height = (float(root.get(name, "")) for name in ("width", "height"))
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("class") in ("met", "missed")]
    marks = [one for one in root.iter(f"{SVG}line") if one.get("class") == "target"]
    assert [bar.get("class") for bar in bars] == ["met", "missed"]  # the third has no ratio
    assert len(marks) == 3
    middle = next(float(one.get("x1", "")) for one in root.iter(f"{SVG}line") if one.get("class") == "middle")
    first = bars[0]
    assert float(first.get("x", "")) == middle  # ten times less of what is bad: to the right
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "")) <= width
        assert 0 <= float(text.get("y", "")) <= height
    assert "prefers-color-scheme: dark" in "".join(root.itertext())


def test_a_ratio_on_a_log_axis_is_as_long_either_way() -> None:
    twice, half = row([2.0], [1.0], 1.0, True), row([1.0], [2.0], 1.0, True)
    root = ElementTree.fromstring(draw([twice, half], "t"))
    lengths = {one.get("width") for one in root.iter(f"{SVG}rect") if one.get("class") in ("met", "missed")}
    assert len(lengths) == 1


def test_json_gives_the_same_comparison_back() -> None:
    whole = replace(comparison(), rows=[]).but_with({"closed-loop-1x100B": ([loop(1, 2)], [loop(3, 4)])})
    assert [row.ratio for row in whole.rows] == [1 / 3, 2 / 4]
    assert from_json(whole.to_json()) == whole
    with pytest.raises(BrokerError):
        from_json("{}")


def test_work_that_is_measured_again_replaces_its_own_rows_only() -> None:
    first = {"closed-loop-1x100B": ([loop(1, 2)], [loop(3, 4)]), "round-trip-100B": ([loop(5, 6)], [loop(7, 8)])}
    whole = replace(comparison(), rows=[]).but_with(first)
    again = from_json(whole.to_json()).but_with({"round-trip-100B": ([loop(1, 1)], [loop(2, 4)])})
    assert [row.label for row in again.rows] == [row.label for row in whole.rows]
    assert [row.ratio for row in again.rows] == [1 / 3, 2 / 4, 1 / 2, 1 / 4]
    assert again.samples["closed-loop-1x100B"] == whole.samples["closed-loop-1x100B"]


@pytest.mark.parametrize("version", [VERSION, LATEST])
def test_the_page_changes_between_its_marks_only(tmp_path: Path, version: str) -> None:
    target = tmp_path / "performance.md"
    whole = replace(comparison(), names=("kafkalite", f"Apache Kafka {version}"))
    begin, end, name = page.marks(whole)
    target.write_text(f"# By hand\n\nbefore\n{begin}\nold figures\n{end}\nafter\n")
    page.write(whole, target)
    text = target.read_text()
    assert text.startswith("# By hand\n\nbefore\n")
    assert text.endswith("\nafter\n")
    assert "old figures" not in text
    assert "Some CPU, 2 cores, 8 GiB" in text
    assert "1 of 3 targets are met" in text
    page.write(replace(whole, pairs=7), target)
    assert target.read_text() == text.replace("5 pairs", "7 pairs")
    ElementTree.parse(tmp_path / f"performance/{name}.svg")
    assert page.PAGE.read_text().count(begin) == 1


def test_a_page_is_begun_where_there_is_none_and_not_spoilt_where_there_are_no_marks(tmp_path: Path) -> None:
    page.write(comparison(), tmp_path / "new.md")
    assert (tmp_path / "new.md").read_text().startswith("# Performance\n")
    (tmp_path / "other.md").write_text("no marks")
    with pytest.raises(BrokerError, match="marks"):
        page.write(comparison(), tmp_path / "other.md")
    assert (tmp_path / "other.md").read_text() == "no marks"
