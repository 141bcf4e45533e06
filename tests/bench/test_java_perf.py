"""Parses the output of Kafka's own performance tools."""

from __future__ import annotations

import pytest

from bench.java_perf import parse_consumer, parse_producer, producer_arguments
from bench.report import Latency
from bench.session import Session
from bench.wire import BrokerError

PRODUCER = """\
1235495 records sent, 247049.6 records/sec (23.56 MB/sec), 632.4 ms avg latency, 1077.0 ms max latency.
2104796 records sent, 420959.2 records/sec (40.15 MB/sec), 266.3 ms avg latency, 980.0 ms max latency.
5000000 records sent, 350951.077420 records/sec (33.47 MB/sec), 272.12 ms avg latency, 1077.00 ms max latency, \
101 ms 50th, 895 ms 95th, 985 ms 99th, 1075 ms 99.9th.
"""
SHORT = """\
1000 records sent, 500.0 records/sec (0.05 MB/sec), 2.12 ms avg latency, 7.00 ms max latency, \
1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th.
"""
CONSUMER_HEADING = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
)
CONSUMER = (
    CONSUMER_HEADING
    + """\
2026-11-21 20:17:12:232, 0, 0.0001, 0.0000, 1, 0.2731, 3588, 73, 0.0013, 13.6986
2026-11-21 20:17:13:233, 0, 70.4581, 102.5826, 738807, 1075656.6866, 0, 501, 102.5826, 1075656.6866
2026-11-21 20:17:14:233, 0, 241.6427, 148.8678, 2533807, 1560992.0000, 0, 500, 148.8678, 1560992.0000
2026-11-21 20:17:14:733, 0, 326.9839, 170.6825, 3428675, 1789736.0000, 0, 500, 170.6825, 1789736.0000
2026-11-21 20:17:15:233, 0, 418.6680, 183.3681, 4390052, 1922754.0000, 0, 500, 183.3681, 1922754.0000
"""
)


def test_a_producers_rate_leaves_its_first_window_out() -> None:
    sent = parse_producer(PRODUCER)
    assert sent.records == 5_000_000
    assert sent.steady_records == 5_000_000 - 1_235_495
    # 14.25 s in all, of which the first window took 5.00 s
    assert sent.steady_s == pytest.approx(5_000_000 / 350_951.07742 - 1_235_495 / 247_049.6)
    assert sent.steady_records / sent.steady_s == pytest.approx(407_100, rel=0.001)
    assert sent.latency == Latency(101_000, 985_000, 1_075_000)


def test_a_producer_that_ended_within_its_first_window_counts_as_a_whole() -> None:
    sent = parse_producer(SHORT)
    assert (sent.records, sent.steady_records, sent.steady_s) == (1000, 1000, 2.0)


def test_of_two_runs_in_one_jvm_the_second_counts() -> None:
    sent = parse_producer(PRODUCER + "--then--\n" + SHORT)
    assert sent.records == 1000
    assert sent.latency.p99_us == 3000


@pytest.mark.parametrize("output", ["", "usage: producer-performance", PRODUCER.splitlines()[0], SHORT + "--then--\n"])
def test_a_producer_without_a_result_is_an_error(output: str) -> None:
    with pytest.raises(BrokerError, match="no result"):
        parse_producer(output)


def test_a_consumers_rate_is_that_of_the_second_half() -> None:
    taken = parse_consumer(CONSUMER, 5_000_000)
    assert taken.steady_records == 4_390_052 - 2_533_807
    assert taken.steady_s == pytest.approx(1.0)


def test_a_consumer_that_was_too_fast_for_halves_counts_as_a_whole() -> None:
    taken = parse_consumer("\n".join(CONSUMER.splitlines()[:3]), 1_000_000)
    assert taken.steady_records == 738_806


@pytest.mark.parametrize(
    "output", [CONSUMER_HEADING, CONSUMER + "WARNING: Exiting before consuming the expected number"]
)
def test_a_consumer_that_did_not_read_all_is_an_error(output: str) -> None:
    with pytest.raises(BrokerError, match="5000000 records"):
        parse_consumer(output, 5_000_000)


def test_a_producer_runs_with_its_defaults() -> None:
    arguments = producer_arguments(Session("127.0.0.1:9092"), "t", 10, -1)
    properties = arguments[arguments.index("--producer-props") + 1 :]
    assert properties == ["bootstrap.servers=127.0.0.1:9092"]
