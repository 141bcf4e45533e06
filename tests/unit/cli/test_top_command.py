"""`kafkalite top`: its numbers from a real broker, its screen by textual's own driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka
import pytest
from textual.widgets import DataTable, Static

from kafkalite import Broker
from kafkalite.cli.main import main
from kafkalite.cli.top_samples import COLUMNS, GROUPS, Sample, Sampler, cell, in_order
from kafkalite.cli.top_screen import ROWS_MAX, TopScreen
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.log_offsets import Known, LogOffsets
from kafkalite.common.errors import Unanswered
from tests.support.wait import DEADLINE_S


def write(broker: Broker, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(count):
        producer.produce(topic, b"x" * 1000)
    producer.flush()


def read(broker: Broker, topic: str, count: int) -> None:
    """As a member of a group that leaves then."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.commit(message=found[-1], asynchronous=False)
    consumer.close()


def named(sample: Sample, view: str, name: str) -> dict[str, Any]:
    return next(row for row in sample.rows[view] if row[COLUMNS[view][0]] == name)


def test_numbers_of_two_looks() -> None:
    now_s = 100.0
    with Broker() as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("silent")
        write(broker, "orders", 10)
        read(broker, "orders", 1)
        with ClusterClient(broker.bootstrap_servers, 10.0) as cluster:
            sampler = Sampler(cluster, internal=False, monotonic_s=lambda: now_s)
            first = sampler.take()
            assert named(first, "topics", "orders")["offsets_per_s"] is None, "nothing to compare with"
            assert {row["topic"] for row in first.rows["topics"]} == {"orders", "silent"}
            lag = named(first, "groups", "readers")["lag"]
            assert lag == named(first, "groups", "readers")["lag_records"] > 0
            write(broker, "orders", 20)
            now_s = 102.0
            second = sampler.take()
        orders = named(second, "topics", "orders")
        assert orders["offsets_per_s"] == 10.0 and orders["bytes_per_s"] >= 10_000
        assert (orders["partitions"], orders["replicas"], orders["under_replicated"]) == (2, 1, 0)
        assert named(second, "topics", "silent")["offsets_per_s"] == 0.0
        (one,) = second.rows["brokers"]
        assert one["leads"] >= 3 and one["produce_bytes_per_s"] >= 10_000 and one["connections"] >= 1
        readers = named(second, "groups", "readers")
        assert readers["lag"] >= lag and readers["lag_per_s"] is not None


def test_a_topic_of_which_a_part_is_not_known_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of its records would look like a loss, and then like a burst."""
    now_s = 100.0
    known_ends, silent = LogOffsets.known_ends, set[tuple[str, int]]()

    def without_some(*arguments: Any, **named: Any) -> Known:
        found = known_ends(*arguments, **named)
        return Known({key: end for key, end in found.offsets.items() if key not in silent}, found.faults)

    monkeypatch.setattr(LogOffsets, "known_ends", without_some)
    with Broker() as broker, ClusterClient(broker.bootstrap_servers, 10.0) as cluster:
        broker.create_topic("orders", 2)
        broker.create_topic("bills")
        sampler = Sampler(cluster, internal=False, monotonic_s=lambda: now_s)
        rates = []
        for gone in (set(), {("orders", 1)}, set(), set()):
            silent.clear()
            silent.update(gone)
            sample = sampler.take()
            rates.append([named(sample, "topics", topic)["offsets_per_s"] for topic in ("orders", "bills")])
            write(broker, "orders", 5)
            now_s += 1
    assert rates == [[None, None], [None, 0.0], [None, 0.0], [5.0, 0.0]]


def test_one_look_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders", 3)
        at = ["--bootstrap", broker.bootstrap_servers, "--interval", "0.01"]
        assert main(["top", "--once", *at]) == 0
        title, row = capsys.readouterr().out.splitlines()
        assert title.split()[:2] == ["topic", "partitions"] and row.split()[:3] == ["orders", "3", "1"]
        assert main(["top", "brokers", "--json", *at]) == 0
        assert set(json.loads(capsys.readouterr().out)) == set(COLUMNS["brokers"])
        assert main(["top", "--once", "--sort", "nothing", *at]) == 1
        assert "the columns of topics are topic, partitions" in capsys.readouterr().err
    assert main(["top", "--once", *at]) == 1


def test_what_is_not_known_comes_last_and_is_a_dash() -> None:
    rows = [{"group": name, "lag": lag} for name, lag in (("b", None), ("a", 1), ("d", 7), ("c", 1))]
    assert [row["group"] for row in in_order(rows, "lag", ascending=False)] == ["d", "a", "c", "b"]
    assert [row["group"] for row in in_order(rows, "lag", ascending=True, words="C")] == ["c"]
    assert [cell("size_bytes", size) for size in (None, 999, 1536, 2.5 * 2**40)] == ["-", "999 B", "1.5 KiB", "2.5 TiB"]


# The screen


def sample_of(count: int) -> Sample:
    topics = [
        dict.fromkeys(COLUMNS["topics"], 0) | {"topic": f"topic-{n:04}", "bytes_per_s": float(n)} for n in range(count)
    ]
    groups = [dict.fromkeys(COLUMNS[GROUPS]) | {"group": "\x1b[31mred", "state": "Stable", "lag": 5}]
    return Sample({"topics": topics, "groups": groups, "brokers": []}, 0.01)


def shown(app: TopScreen) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def drive(take: Callable[[], Sample], story: Callable[[TopScreen, Any], Awaitable[None]]) -> None:
    async def run() -> None:
        app = TopScreen(take, "here:9092", 3600.0)
        async with app.run_test(size=(80, 24)) as pilot, asyncio.timeout(DEADLINE_S):
            await story(app, pilot)

    asyncio.run(run())


async def until(pilot: Any, condition: Callable[[], object]) -> None:
    while not condition():
        await pilot.pause(0.01)


def test_keys_change_the_view_the_order_and_the_filter() -> None:
    async def story(app: TopScreen, pilot: Any) -> None:
        await until(pilot, lambda: shown(app))
        assert shown(app)[:2] == ["topic-1999", "topic-1998"] and len(shown(app)) == ROWS_MAX
        await pilot.press("r")
        await until(pilot, lambda: shown(app)[0] == "topic-0000")
        await pilot.press("slash", *"1234", "enter")
        await until(pilot, lambda: shown(app) == ["topic-1234"])
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(app)) == ROWS_MAX)
        await pilot.press("s")
        await until(pilot, lambda: "size bytes" in str(list(app.query_one(DataTable).columns.values())[5].label))
        await pilot.press("g")
        await until(pilot, lambda: shown(app) == ["\\x1b[31mred"])
        await pilot.press("p")
        await until(pilot, lambda: "(paused)" in str(app.query_one("#status", Static).content))

    drive(lambda: sample_of(2_000), story)


def test_a_broker_that_is_away_is_told_and_comes_back() -> None:
    answers: list[Any] = [Unanswered("nothing listens there\x1b[2J\n"), sample_of(1)]

    def take() -> Sample:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def story(app: TopScreen, pilot: Any) -> None:
        status = app.query_one("#status", Static)
        await until(pilot, lambda: r"nothing listens there\x1b[2J\n" in str(status.content))
        app._show(*app._taken())
        await until(pilot, lambda: shown(app) == ["topic-0000"])

    drive(take, story)


def test_a_long_name_leaves_room_for_the_numbers() -> None:
    name = f"a{'.very' * 40}.end"

    def take() -> Sample:
        row = dict.fromkeys(COLUMNS["topics"], 1) | {"topic": name}
        return Sample({"topics": [row], "groups": [], "brokers": []}, 0.01)

    async def story(app: TopScreen, pilot: Any) -> None:
        await until(pilot, lambda: shown(app))
        [text] = shown(app)
        assert len(text) <= 40 and text.startswith("a.very") and text.endswith(".very.end") and "\u2026" in text
        assert "1 topic," in str(app.query_one("#status", Static).render())
        await pilot.resize_terminal(300, 24)
        await until(pilot, lambda: len(shown(app)[0]) > 100)

    drive(take, story)
