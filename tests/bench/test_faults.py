"""The bench of faults that are not there: both brokers run, the fault is taken back, and ratios are of pairs."""

from __future__ import annotations

import pytest

from bench.faults import WORK, lines, main


def test_a_ratio_is_that_of_pairs() -> None:
    found = {WORK[0]: ([100.0, 200.0, 400.0], [100.0, 220.0, 200.0])}
    assert list(lines(found))[2:] == [f"| {WORK[0]} | 200 | 200 | 1.000 | 0.500 | 1.100 |"]


@pytest.mark.long
def test_a_pair_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pairs", "1", "--seconds", "0.1"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[3:]] == list(WORK)
