"""Mirrors as the console shows them: what their processes say, or why they say nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalite.client.mirror.copied_partition import CopiedPartition, Counts
from kafkalite.client.mirror.flow_status import FlowStatus, mirror_metrics
from kafkalite.common.errors import ConfigError
from kafkalite.console.brokers.mirrors import Mirrors, mirror_rows, parse_samples
from tests.support.ports import free_port
from tests.support.served_text import ServedText, served_text


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def served() -> Iterator[ServedText]:
    with served_text() as made:
        yield made


def partition(index: int, counts: Counts, fault: str = "") -> CopiedPartition:
    return CopiedPartition(("orders", index), ("west.orders", index), counts=counts, fault=fault)


def west(*partitions: CopiedPartition) -> FlowStatus:
    return FlowStatus("west", lambda: 1_700_000_000_000, {one.source: one for one in partitions}, is_copying=True)


def text_of(*statuses: FlowStatus) -> str:
    return "".join(mirror_metrics(statuses).pieces())


def test_a_source_is_the_sum_of_its_partitions() -> None:
    status = west(partition(0, Counts(10, 1000, 3, 0, 20)), partition(1, Counts(5, 400, 4, 7, 90), "west.orders-1 ..."))
    status.report('east: "closed" \\ by\nits peer')
    other = FlowStatus("south", lambda: 0)
    row, empty = mirror_rows(parse_samples(text_of(status, other)))
    assert row == {
        "source": "west", "is_copying": True, "leads": False, "partitions": 2, "lag": 7, "records": 15,
        "size_bytes": 1400, "lost_offsets": 7, "latency_ms": 90.0, "failed": 1, "errors": 1,
        "last_error": 'east: "closed" \\ by\\nits peer', "last_error_ms": 1_700_000_000_000,
    }  # fmt: skip
    assert (empty["source"], empty["is_copying"], empty["lag"], empty["last_error"]) == ("south", False, 0, None)


def test_a_lag_of_which_a_part_is_not_known_is_not_known() -> None:
    (row,) = mirror_rows(parse_samples(text_of(west(partition(0, Counts(lag=3)), partition(1, Counts())))))
    assert row["lag"] is None and row["latency_ms"] is None


def test_rates_are_those_between_two_polls(served: ServedText) -> None:
    clock = Clock()
    mirrors = Mirrors(served.url, monotonic_s=clock)

    def rates(records: int, size_bytes: int) -> tuple[float | None, float | None]:
        served.text = text_of(west(partition(0, Counts(records, size_bytes, 0))))
        (row,) = mirrors.rows()
        assert row["address"] == served.url and row["fault"] is None
        return row["records_per_s"], row["bytes_per_s"]

    assert rates(100, 1000) == (None, None)
    clock.now_s += 1
    assert rates(200, 9000) == (None, None) and served.requests == 1, "pages share the answers of two seconds"
    clock.now_s += 4
    assert rates(600, 6000) == (100.0, 1000.0)
    clock.now_s += 5
    assert rates(0, 0) == (None, None), "another process has its partitions"
    clock.now_s += 5
    assert rates(50, 500) == (10.0, 100.0)
    clock.now_s += 3600
    assert rates(60, 600) == (None, None)


def test_a_process_without_an_answer_is_a_row_with_the_reason(served: ServedText) -> None:
    clock = Clock()
    mirrors = Mirrors(f"{served.url}, http://127.0.0.1:{free_port()}/", monotonic_s=clock)
    served.text = text_of(west())
    well, away = mirrors.rows()
    assert well["source"] == "west" and away["source"] is None and away["fault"] == "Connection refused"
    for text, status, why in (
        ("up 1\n", 200, "it has no metrics of a mirror"),
        ("no", 503, "it answers with status 503"),
        ('kafkalite_mirror_copying{source="west"} one\n', 200, "could not convert"),
        ('kafkalite_mirror_copying{source="w"} 1\nkafkalite_mirror_errors_total{source="w"} NaN\n', 200, "NaN"),
    ):
        served.text, served.status = text, status
        clock.now_s += 5
        assert why in mirrors.rows()[0]["fault"]


@pytest.mark.parametrize(
    "wrong", ["mirror:9465", "https://mirror:9465", "http://mirror", "http://mirror:9465/metrics", "http://u:p@m:1"]
)
def test_an_address_is_that_of_metrics(wrong: str) -> None:
    with pytest.raises(ConfigError, match="must be http://HOST:PORT"):
        Mirrors(f"http://mirror:9465,{wrong}")
    assert Mirrors.of(None) is None and Mirrors.of(" ,") is None
