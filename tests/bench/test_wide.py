"""Requests for many partitions, against kafkalite, briefly."""

from __future__ import annotations

from bench.session import Session
from bench.startup import kafkalite_launcher, started
from bench.wide import session_fetch, wide_produce


def test_a_request_for_many_partitions_and_a_session_with_one_change() -> None:
    with started(kafkalite_launcher(""), settle_s=0.0) as broker:
        session = Session(broker.bootstrap, broker.process, seconds=0.1, warm_up_limit_s=0.2)
        produced = wide_produce(session, "produce-20-partitions", 20)
        assert produced.records == 20 * produced.requests > 0
        fetched = session_fetch(session, "session-fetch-20", 20)
        assert fetched.requests > 0 and fetched.latency is not None
