"""Members of consumer groups as the bench plays them, against kafkalite, briefly."""

from __future__ import annotations

import pytest

from bench import consumer_groups
from bench.session import Session
from bench.startup import kafkalite_launcher, overrides, started


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "GROUPS", 2)
    monkeypatch.setattr(consumer_groups, "MEMBERS_OF_GROUP", 10)
    monkeypatch.setattr(consumer_groups, "REBALANCED", 10)
    monkeypatch.setattr(consumer_groups, "PARTITIONS", 20)
    monkeypatch.setattr(consumer_groups, "ARRIVALS_S", 0.1)
    brief = {"consumer.heartbeat.interval.ms": "200", "consumer.assignment.interval.ms": "50"}
    monkeypatch.setattr(consumer_groups, "STOCK_GROUP", brief)


@pytest.mark.usefixtures("few")
def test_heartbeats_and_a_rebalance() -> None:
    with started(kafkalite_launcher(overrides(consumer_groups.SETTINGS)), settle_s=0.0) as broker:
        session = Session(broker.bootstrap, broker.process, seconds=0.1, warm_up_limit_s=0.2)
        beaten = consumer_groups.heartbeats(session, "group-heartbeats")
        assert beaten.requests >= 20 and not beaten.error
        rebalanced = consumer_groups.rebalance(session, "group-rebalance-100")
        assert rebalanced.requests >= 1 and rebalanced.seconds > 0
        spread = consumer_groups.stock_rebalance(session, "group-rebalance-stock")
        assert spread.requests == 1 and spread.seconds > 0
