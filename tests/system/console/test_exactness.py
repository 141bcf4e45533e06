"""Counts, lags and seeks of the console against a stock consumer, on topics of every kind that makes them differ.

A random history of a topic: transactions that commit, abort or stay open, plain records, compaction, deletion of the
first records, new segments. Then the console has to tell what a consumer of confluent-kafka gets, to the record.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.wait import DEADLINE_S, until

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SETTINGS = {
    "cleanup_policy": "compact,delete",
    "retention_ms": -1,
    "segment_bytes": 2000,
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": 0,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def browser(broker: Broker) -> Iterator[Browser]:
    with console(broker.bootstrap_servers) as browser:
        yield browser


class History:
    """One topic of one partition, and the producers that wrote it."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.random = random.Random(seed)
        self.topic = f"history-{seed}"
        self.broker = broker
        self.is_compacted = self.random.random() < 0.6
        broker.create_topic(self.topic, **(SETTINGS if self.is_compacted else {"segment_bytes": 2000}))
        self.open: list[Producer] = []
        for number in range(self.random.randint(1, 7)):
            self.step(seed, number)

    def step(self, seed: int, number: int) -> None:
        kind = self.random.choice(["plain", "commit", "abort", "open", "compact", "trim", "plain"])
        if kind == "compact" and self.is_compacted:
            self.broker.compact(self.topic)
        elif kind == "trim":
            self.trim()
        else:
            self.write(kind, f"{seed}-{number}")

    def trim(self) -> None:
        end = max((one.offset for one in self.broker.topic(self.topic).records()), default=0)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        wanted = TopicPartition(self.topic, 0, self.random.randint(0, end))
        admin.delete_records([wanted])[wanted].result(DEADLINE_S)

    def write(self, kind: str, name: str) -> None:
        config = {"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 2}
        is_plain = kind in ("plain", "compact")
        producer = Producer(config if is_plain else config | {"transactional.id": name})
        if not is_plain:
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
        for _ in range(self.random.randint(1, 40)):
            key = f"k{self.random.randint(0, 9)}"
            producer.produce(
                self.topic, key=key, value="x" * self.random.randint(0, 60) if self.random.random() < 0.9 else None
            )
        producer.flush(DEADLINE_S)
        if kind == "commit":
            producer.commit_transaction(DEADLINE_S)
        elif kind == "abort":
            producer.abort_transaction(DEADLINE_S)
        elif kind == "open":
            self.open.append(producer)


def consumed(broker: Broker, topic: str, start: int, isolation: str) -> list[int]:
    """The offsets that a stock consumer gets from `start` on."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "stranger",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    offsets: list[int] = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "neither a record nor the end"
        if message.error():
            consumer.close()
            return offsets
        offsets.append(message.offset())


def all_found(browser: Browser, topic: str, start: int, isolation: str) -> list[int]:
    records, done = browser.search(topic, **{"from": "offset"}, offset=start, isolation=isolation, limit=1000)
    assert done["reason"] == "end"
    return [one["offset"] for one in records]


def check(broker: Broker, browser: Browser, seed: int) -> None:
    history = History(broker, seed)
    topic = history.topic
    committed, uncommitted = (consumed(broker, topic, 0, each) for each in (COMMITTED, UNCOMMITTED))
    assert all_found(browser, topic, 0, UNCOMMITTED) == uncommitted, f"seed {seed}"
    assert all_found(browser, topic, 0, COMMITTED) == committed, f"seed {seed}"
    row = browser.get(f"topics/{topic}/partitions")["items"][0]
    assert row["records"] == len(committed), f"seed {seed}: the count of committed records"
    newest, _ = browser.search(topic, limit=7)
    assert [one["offset"] for one in newest] == uncommitted[::-1][:7], f"seed {seed}"
    at = history.random.randint(0, row["last_stable_offset"])  # a consumer behind it is told no end
    assert all_found(browser, topic, at, UNCOMMITTED) == [each for each in uncommitted if each >= at], f"seed {seed}"
    body = {"group_id": f"group-{seed}", "topics": [topic], "to": "offset", "offset": at}
    assert browser.reset(body)[0] == 200
    lag = browser.get("group", group_id=f"group-{seed}")["lag_records"]
    assert lag == len(consumed(broker, topic, at, COMMITTED)), f"seed {seed}: the lag from {at}"
    states = {
        one["offset"]: one["transaction_state"] for one in browser.search(topic, **{"from": "beginning"}, limit=1000)[0]
    }
    hidden = set(uncommitted) - set(committed)
    assert all(states[each] in ("open", "aborted", "committed", None) for each in hidden)
    assert not any(states[each] in ("open", "aborted") for each in committed), f"seed {seed}"
    for producer in history.open:
        producer.abort_transaction(DEADLINE_S)


@pytest.mark.parametrize("seed", range(6))
def test_the_console_tells_what_a_consumer_gets(broker: Broker, browser: Browser, seed: int) -> None:
    check(broker, browser, seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_console_tells_what_a_consumer_gets_in_a_thousand_histories(broker: Broker, browser: Browser) -> None:
    for seed in range(1_000, 2_000):
        check(broker, browser, seed)
        broker.delete_topic(f"history-{seed}")


def write(broker: Broker, topic: str, count: int, end: str | None) -> Producer:
    """`count` records outside of a transaction, or in one that is then committed, aborted or left open."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(servers if end is None else servers | {"transactional.id": f"{topic}-{end}"})
    if end is not None:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number))
    producer.flush(DEADLINE_S)
    if end == "committed":
        producer.commit_transaction(DEADLINE_S)
    elif end == "aborted":
        producer.abort_transaction(DEADLINE_S)
    return producer


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ((None,), 3),
        ((None, "open"), 3),
        ((None, "aborted"), 3),
        (("committed", "aborted", None), 7),
        (("aborted", "committed", "open", None), 4),  # what comes behind an open transaction is not read yet
    ],
)
def test_every_page_counts_the_same_records(ends: tuple[str | None, ...], count: int) -> None:
    """A read_committed consumer gets as many records: in lists, on a topic's page, in the overview, as a lag."""
    sizes = {None: 3, "committed": 4, "aborted": 5, "open": 6}
    with Broker() as broker, console(broker.bootstrap_servers) as browser:
        broker.create_topic("t")
        producers = [write(broker, "t", sizes[end], end) for end in ends]

        def counts() -> dict[str, object]:
            assert browser.reset({"group_id": "g", "topics": ["t"], "to": "earliest"})[0] == 200
            until(lambda: browser.get("topics")["items"][0]["records"] is not None, "the counts")
            return {
                "list": browser.get("topics")["items"][0]["records"],
                "overview": browser.get("overview")["records"],
                "topic": browser.get("topics/t")["records"],
                "partitions": browser.get("topics/t/partitions")["items"][0]["records"],
                "lag": browser.get("group", group_id="g")["lag_records"],
                "lags": browser.get("groups")["items"][0]["lag_records"],
            }

        assert len(consumed(broker, "t", 0, COMMITTED)) == count
        assert set(counts().values()) == {count}, counts()
        for producer, end in zip(producers, ends, strict=True):
            if end == "open":
                producer.abort_transaction(DEADLINE_S)
        left = len(consumed(broker, "t", 0, COMMITTED))
        until(lambda: set(counts().values()) == {left}, "the same counts after the transactions have ended")


def test_a_time_leads_to_the_first_record_of_it(broker: Broker, browser: Browser) -> None:
    broker.create_topic("timed")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(50):
        producer.produce("timed", value=str(number), timestamp=1_700_000_000_000 + number * 1000)
    producer.flush(DEADLINE_S)
    until(lambda: len(all_found(browser, "timed", 0, UNCOMMITTED)) == 50, "the records")
    found, _ = browser.search("timed", **{"from": "time"}, time_ms=1_700_000_020_500, limit=1)
    assert found[0]["offset"] == 21
