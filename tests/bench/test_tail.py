"""How late records are beside other work: the table, and a short sample of kafkalite alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import tail
from bench.report import Latency
from bench.session import Session
from bench.startup import started
from bench.tls import launchers, make_key_store
from bench.versus import KAFKA, KAFKALITE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, str]]:
    """kafkalite with the settings of the comparison, and the address of its TLS listener."""
    addresses: dict[str, str] = {}
    made = launchers(make_key_store(Path(tmp_path_factory.mktemp("keys"))), addresses, tail.SETTINGS)
    with started(made[KAFKALITE], settle_s=0.0) as running:
        yield Session(running.bootstrap, running.process, 0.2, fill_bytes=10**6), addresses[KAFKALITE]


@pytest.mark.parametrize("name", tail.BESIDE)
def test_every_request_is_acknowledged_and_arrives(
    broker: tuple[Session, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "TOPICS", 5)
    session, address = broker
    with tail.BESIDE[name](session, address):
        sample = tail.tail(session)
    assert 0 < sample.acknowledged.p50_us <= sample.acknowledged.p99_us
    assert 0 < sample.arrived.p50_us <= sample.arrived.p999_us


def test_the_table_has_medians_and_what_they_are_of_those_of_a_quiet_broker() -> None:
    def sample(p99_us: float) -> tail.Tail:
        return tail.Tail(Latency(1, 2, 3), Latency(10, p99_us, 3 * p99_us))

    found = {
        "nothing": {KAFKALITE: [sample(90), sample(100), sample(200)], KAFKA: [sample(400)]},
        "retention": {KAFKALITE: [sample(250)], KAFKA: [sample(1_600)]},
    }
    rows = list(tail.lines(found))[2:]
    assert rows[0] == "| nothing | kafkalite | 1 | 2 | 3 | 10 | 100 | 300 | 1.0 |"
    assert [row.rpartition(" | ")[2] for row in rows] == ["1.0 |", "1.0 |", "2.5 |", "4.0 |"]


def test_what_is_late_is_made_up_for() -> None:
    turns = tail._every(0.0)
    with contextlib.closing(turns):
        assert [next(turns) for _ in range(3)] == [None] * 3
