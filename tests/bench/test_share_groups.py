"""Records in flight as the bench acquires them, against kafkalite, briefly."""

from __future__ import annotations

import re

import pytest

from bench import share_groups
from bench.session import Session
from bench.startup import kafkalite_launcher, overrides, started


def test_records_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "IN_FLIGHT", 10_000)
    settings = share_groups.SETTINGS | share_groups.IN_FLIGHT_SETTINGS
    with started(kafkalite_launcher(overrides(settings)), settle_s=0.0) as broker:
        result = share_groups.share_in_flight(Session(broker.bootstrap, broker.process), "share-in-flight")
    assert result.records == 10_000
    assert re.match(r"-?\d+ bytes a record in flight, -?\d+ when every second one is accepted", result.note)
