"""The text that a scraper gets: a strict reader takes it, and it comes in small pieces."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.metrics import Column, LatestValues, Metrics, Row
from tests.support.prometheus import parse, value

COLUMNS = (Column("size_bytes", "How large."), Column("reads_total", "How often."))


def text(metrics: Metrics) -> str:
    return "".join(metrics.pieces())


def test_what_is_asked_for_is_read_when_it_is_asked_for() -> None:
    metrics = Metrics()
    numbers = iter((1, 2.5))
    metrics.gauge("temperature", "How warm.", lambda: next(numbers))
    assert text(metrics) == "# HELP temperature How warm.\n# TYPE temperature gauge\ntemperature 1\n"
    assert value(parse(text(metrics)), "temperature") == 2.5


def test_a_table_is_told_metric_by_metric() -> None:
    metrics = Metrics()
    metrics.table(COLUMNS, ("topic",), lambda: [Row(("a",), (5, 1)), Row(("b",), (6, None))])
    assert text(metrics).splitlines() == [
        "# HELP size_bytes How large.",
        "# TYPE size_bytes gauge",
        'size_bytes{topic="a"} 5',
        'size_bytes{topic="b"} 6',
        "# HELP reads_total How often.",
        "# TYPE reads_total counter",
        'reads_total{topic="a"} 1',
    ]


def test_what_nobody_knows_is_left_out_altogether() -> None:
    metrics = Metrics()
    metrics.gauge("unknown", "Nobody knows.", lambda: None)
    metrics.table(COLUMNS, ("topic",), list)
    assert text(metrics) == ""


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (True, "1"),
        (10**15, "1000000000000000"),
        (-3, "-3"),
        (0.1, "0.1"),
        (4.0, "4"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_of_every_kind(number: float, written: str) -> None:
    metrics = Metrics()
    metrics.gauge("it", "It.", lambda: number)
    assert text(metrics).splitlines()[-1] == f"it {written}"
    parse(text(metrics))


@given(st.text(), st.text(), st.floats())
def test_whatever_is_in_a_label_is_read_back(label: str, said: str, number: float) -> None:
    label, said = (each.replace("\r", " ") for each in (label, said))  # what splits lines elsewhere is no matter here
    metrics = Metrics()
    metrics.table((Column("it", "About " + said.replace("\n", " ")),), ("name",), lambda: [Row((label,), (number,))])
    families = parse(text(metrics))
    found = value(families, "it", name=label)
    assert found == number or (math.isnan(found) and math.isnan(number))


def test_many_rows_come_in_small_pieces() -> None:
    read = []

    def rows() -> object:
        for number in range(100):
            read.append(number)
            yield Row((str(number),), (number, number))

    metrics = Metrics()
    metrics.table(COLUMNS, ("topic",), rows)  # type: ignore[arg-type]
    progress = [len(read) for _ in metrics.pieces(rows_per_piece=10)]
    assert progress[:10] == list(range(10, 101, 10)), "ten rows, and a pause"
    assert len(parse(text(metrics))["size_bytes"].samples) == 100


def test_somebody_who_only_counts_may_ask_for_a_pause() -> None:
    metrics = Metrics()
    metrics.table(COLUMNS, (), lambda: iter((None, None, Row((), (7, 8)))))
    assert list(metrics.pieces())[:2] == ["", ""]
    assert value(parse(text(metrics)), "size_bytes") == 7


def test_a_metric_is_declared_once_and_well() -> None:
    metrics = Metrics()
    metrics.gauge("it", "It.", lambda: 1)
    for name in ("it", "not a name", "it_total", "9"):
        with pytest.raises(AssertionError):
            metrics.gauge(name, "It.", lambda: 1)
    with pytest.raises(AssertionError):
        metrics.counter("count", "A counter's name ends in _total or _count.", lambda: 1)


def test_the_latest_hundred_have_quantiles() -> None:
    rounds = LatestValues()
    assert rounds.quantile(0.5) is rounds.average() is None
    for duration_ms in range(1, 1001):
        rounds.add(duration_ms)
    assert rounds.count == 1000 and rounds.average() == 950.5
    assert [rounds.quantile(quantile) for quantile in (0.5, 0.95, 0.99, 1)] == [950, 995, 999, 1000]
