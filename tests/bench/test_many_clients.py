"""The bench of stock clients on several cores: rows from runs, and short runs of the whole."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.many_clients import Run, lines
from bench.usage import Cpu

OURS, KAFKA = "`--cores 2`", "Apache Kafka 4.3.0"


def test_rows_have_medians_and_ours_beside_those_of_kafka() -> None:
    ours = [Run(300_000, 100_000, 2.0, Cpu(0.1, 0.1), size) for size in (100_000_000, 200_000_000, 150_000_000)]
    theirs = [Run(100_000, 100_000, 2.0, Cpu(0.3, 0.1), 600_000_000)]
    _, _, *rows = lines({("c", 1_000): {OURS: ours, KAFKA: theirs}}, 1)
    assert rows == [
        f"| 8 + 8 in C, 1,000 B | {OURS} | 150,000 | 50,000 | 200 | 0.50 us | 150 MB |",
        f"| 8 + 8 in C, 1,000 B | {KAFKA} | 50,000 | 50,000 | 100 (2.00) | 2.00 us (0.25) | 600 MB (0.25) |",
    ]


@pytest.mark.long
def test_c_clients_write_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "--stock", "--rounds", "1", "--seconds", "0.5", "--clients", "c"]) == 0
    assert f"| 8 + 8 in C, 1,000 B | {OURS} |" in capsys.readouterr().out


@pytest.mark.long
def test_starts_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "--partitions", "--cores", "2", "--count", "20", "--rounds", "1"]) == 0
    assert "median: ready after" in capsys.readouterr().out
