"""Two brokers by turns: who is measured when, who stands still meanwhile; and kafkalite beside kafkalite, briefly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.comparison import LATENCY_AT_HALF_PEAK, rows
from bench.report import Result
from bench.session import Session
from bench.startup import kafkalite_launcher
from bench.versus import PRODUCER, Side, Versus, main, order, parse

SHORT = Session("", None, seconds=0.1, fill_bytes=10**6, warm_up_limit_s=0.2)


def state(pid: int) -> str:
    """T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def side(name: str) -> Side:
    return Side(name, kafkalite_launcher("--override log.segment.delete.delay.ms=50"))


def test_who_begins_alternates() -> None:
    assert order(1) == [0, 1]
    assert order(4) == [0, 1, 1, 0, 0, 1, 1, 0]
    assert order(5).count(0) == order(5).count(1) == 5


def test_the_other_stands_still_and_a_turn_leaves_nothing_behind() -> None:
    one = side("one")
    with one.running(SHORT):
        assert one.session is not None
        assert one.session.process is not None
        assert one.home is not None
        pid, topics = one.session.process.pid, one.home
        assert state(pid) == "T"
        for _ in range(3):
            with one.turn() as session:
                assert state(pid) != "T"
                with session.topic("work") as topic:
                    assert list(topics.glob(f"{topic}-*"))
            assert state(pid) == "T"
            assert not list(topics.glob("bench-work-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # stopped as it was, it could be ended


def test_kafkalite_beside_kafkalite() -> None:
    versus = Versus((side("one"), side("two")), 1, SHORT)
    measured = versus.run(["closed-loop-1x100B"])
    found = rows(measured)
    assert [row.label for row in found] == [
        "one-record requests, one in flight, p50",
        "one-record requests, one in flight, p99",
    ]
    assert not [row.error for row in found if row.error]
    assert all(len(row.ours) == len(row.theirs) == 1 and row.ratio for row in found)


def test_a_side_that_fails_is_not_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def once(one: Side) -> Result:
        asked.append(one.name)
        return Result("w", error="broken" if one.name == "two" else "")

    versus = Versus((side("one"), side("two")), 3, SHORT)
    versus._sample("w", once)
    assert asked == ["one", "two", "one", "one"]
    assert [len(results) for results in versus.measured["w"]] == [3, 1]
    assert "FAILED" in capsys.readouterr().err


def test_half_a_peak_is_half_of_the_others_median(monkeypatch: pytest.MonkeyPatch) -> None:
    versus = Versus((side("one"), side("two")), 1, SHORT)
    fast, slow = [Result(PRODUCER, 1.0, records=records) for records in (900, 300)]
    versus.measured[PRODUCER] = ([fast], [slow, Result(PRODUCER, 1.0, records=500), Result(PRODUCER, error="x")])
    rates: list[int] = []
    monkeypatch.setattr(
        "bench.versus.java_latency", lambda session, work, rate: rates.append(rate) or Result(work, seconds=1.0)
    )
    versus._work(LATENCY_AT_HALF_PEAK)(SHORT, LATENCY_AT_HALF_PEAK)
    assert rates == [200]


def test_a_comparison_can_be_drawn_again_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(
        '{"names": ["kafkalite", "Apache Kafka"], "machine": {"cores": "2"}, "date": "2026-01-02", "pairs": 1,'
        ' "seconds": 1.0, "rows": [{"label": "w", "unit": "us", "digits": 0, "target": 1.0, "more_is_better": false,'
        ' "ours": [1.0], "theirs": [2.0], "error": ""}]}'
    )
    assert main(["--redraw", str(kept)]) == 0
    assert "0.50" in capsys.readouterr().out
    assert main(["--redraw", str(tmp_path / "nowhere.json")]) == 2


@pytest.mark.parametrize("words", [["--pairs", "0"], ["--seconds", "0"], ["--fill-mb", "0"]])
def test_senseless_options_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
