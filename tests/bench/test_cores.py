"""The bench of `serve --cores`: rows from runs, computed ones marked; a short run of one process and of two."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.cores import SMALL, Report, Run, Start, main
from bench.cores_plot import draw
from bench.usage import Cpu, Memory


def test_rows_beyond_the_machine_are_computed_and_marked() -> None:
    starts = {count: [Start(0.5, 0.6, 0.001, Memory(90, 60, 100), 3)] for count in (1, 2)}
    run = Run(100_000, 1.0, Cpu(0.8, 0.2), Cpu(0.0, 0.01), 2)
    other = Run(200_000, 2.0, Cpu(2.0, 0.2), Cpu(0.0, 0.02), 4)
    peers = {SMALL: {"3.9.1": [Run(50_000, 1.0, Cpu(1.0, 0.5), Cpu(), 0)]}}
    report = Report(starts, {SMALL: {1: [run], 2: [other]}}, {1: [90_000_000], "3.9.1": [600_000_000]}, peers)
    lines = list(report.lines([1, 2, 8], cores=2))
    assert f"| {SMALL} | 2 | 100,000 | 11.0 us | 1.10 | 1.0 % of a core | 2.0 |" in lines
    assert f"| {SMALL} | Apache Kafka 3.9.1 | 50,000 | 30.0 us | 3.00 | 0.0 % of a core | 0.0 |" in lines
    assert "| 3.9.1 | 600 MB |" in lines
    assert f"| {SMALL} | 1 | 100,000 (from the CPU of a request) |" in lines
    assert f"| {SMALL} | 8 | 727,273 (computed) |" in lines
    picture = ElementTree.fromstring(draw({SMALL: report.capacity(SMALL, [1, 2, 8], 2)}, 2))
    dots = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert [dot.get("fill") == "none" for dot in dots] == [False, False, True]


@pytest.mark.long
def test_a_round_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cores", "1,2,64", "--seconds", "0.2", "--rounds", "1", "--idle", "0.1"]) == 0
    assert f"| {SMALL} | 64 |" in capsys.readouterr().out
