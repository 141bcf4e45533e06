"""Two brokers, each compacting a copy of the same data directories by itself: Apache Kafka 3.9.1 and kafkalite.

Kafka is filled by stock clients, with transactions; then each broker gets a copy, is told to look often, and works
until its cleaner-offset-checkpoint says that all is clean. Consumers see the same records afterwards. Then each broker
opens the other's directories, serves them (Kafka to readers of committed records too), and compacts them further.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.java_dump_log import judge
from tests.compatibility.interop.kraft_kafka import VERSION, KRaftKafka, kraft_kafka
from tests.compatibility.interop.swap_scene import CODECS, Kafkalite, World, administer, read
from tests.support.cleaner.partition_directory import bases
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
BROKER_ID = 3
SECONDS = 120.0
IDEMPOTENT = ("none", "lz4")
EMPTY = re.compile(r"Found timestamp mismatch in |log timestamp: -1$")
CLEANER = {"log.cleaner.backoff.ms": "100"}
TOPICS = {"table": 2, "paid": 1}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "5000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KRaftKafka]:
    try:
        with kraft_kafka(tmp_path / "kafka", [tmp_path / "one"], node_id=BROKER_ID) as kafka:
            kafka.settings |= CLEANER
            yield kafka
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[Kafkalite]:
    kafkalite = Kafkalite(tmp_path, [tmp_path / "two"])
    yield kafkalite
    kafkalite.kill()


def start(kafkalite: Kafkalite) -> None:
    """On a directory that Kafka wrote last. The settings of topics are in Kafka's metadata, and are not taken over."""
    overrides = [word for name, value in CLEANER.items() for word in ("--override", f"{name}={value}")]
    kafkalite.start("--port", "0", "--adopt", kafkalite.data_dirs, *overrides)
    settings = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in COMPACTED.items()]
    topics = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=settings) for name in TOPICS]
    administer(kafkalite.bootstrap, "incremental_alter_configs", topics)


def client(bootstrap: str) -> dict[str, Any]:
    """Of producers: a batch must fit into a segment, and what is refused is told."""

    def told(error: Any, _: Any) -> None:
        assert error is None, error

    return {"bootstrap.servers": bootstrap, "linger.ms": 2, "batch.size": 2000, "on_delivery": told}


def produce(bootstrap: str, author: str, seed: int) -> None:
    """Few keys, many writes, every codec, idempotent producers among them."""
    chance = random.Random(seed)
    for codec in CODECS:
        producer = Producer(client(bootstrap) | {"compression.type": codec, "enable.idempotence": codec in IDEMPOTENT})
        for number in range(600):
            value = None if chance.random() < 0.1 else f"{author} {codec} {number} ".encode() * chance.randrange(6)
            key = f"key-{chance.randrange(60)}"
            producer.produce("table", value, key, number % 2, headers=[("by", author.encode()), ("n", b"")])
            producer.produce("paid", value, f"account-{chance.randrange(25)}")
        assert producer.flush(SECONDS) == 0


def transact(bootstrap: str, seed: int) -> None:
    """Many transactions, of which some are aborted."""
    chance = random.Random(seed)
    payer = Producer(client(bootstrap) | {"transactional.id": "payments"})
    payer.init_transactions(SECONDS)
    for number in range(60):
        payer.begin_transaction()
        for each in range(chance.randrange(1, 20)):
            payer.produce("paid", f"paid {number} {each}" * 5, f"account-{chance.randrange(25)}")
        payer.flush(SECONDS)
        if chance.random() < 0.3:
            payer.abort_transaction(SECONDS)
        else:
            payer.commit_transaction(SECONDS)


def clean_ends(data_dir: Path) -> dict[str, int]:
    lines = [line.split() for line in (data_dir / "cleaner-offset-checkpoint").read_text().splitlines()]
    return {f"{line[0]}-{line[1]}": int(line[2]) for line in lines if len(line) == 3}


def all_clean(data_dir: Path) -> bool:
    """Whether every compacted log is clean up to its active segment."""
    try:
        ends = clean_ends(data_dir)
    except FileNotFoundError:
        return False
    names = [f"{topic}-{partition}" for topic, count in TOPICS.items() for partition in range(count)]
    return all(ends.get(name, -1) >= bases(data_dir / name)[-1] > 0 for name in names)


def seen(bootstrap: str, isolation: str = "read_uncommitted") -> World:
    """The records that a consumer reads."""
    return read(bootstrap, [(name, number) for name, count in TOPICS.items() for number in range(count)], isolation)


def assert_same(ours: World, theirs: World) -> None:
    for place in theirs:
        assert [one.offset for one in ours[place]] == [one.offset for one in theirs[place]]
        assert ours[place] == theirs[place]


def count(world: World) -> int:
    return sum(map(len, world.values()))


def test_each_compacts_what_the_other_left(
    kafka: KRaftKafka, kafkalite: Kafkalite, tmp_path: Path, proved: Any
) -> None:
    proved(
        "Apache Kafka's log cleaner", VERSION, "a copy of the same directories compacted by each broker: the same "
        "records for consumers; each opens the other's and continues",
    )  # fmt: skip
    one, two = tmp_path / "one", tmp_path / "two"
    kafka.settings["log.cleaner.enable"] = "false"
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic(name, n, 1, config=COMPACTED) for name, n in TOPICS.items()])
    transact(kafka.bootstrap, 1)
    produce(kafka.bootstrap, "first", 1)
    transact(kafka.bootstrap, 2)
    whole = seen(kafka.bootstrap)
    kafka.stop()
    shutil.copytree(one, two)

    del kafka.settings["log.cleaner.enable"]
    kafka.start()
    until(lambda: all_clean(one), "Kafka to compact", SECONDS)
    start(kafkalite)
    until(lambda: all_clean(two), "kafkalite to compact", SECONDS)
    assert clean_ends(two) | clean_ends(one) == clean_ends(two)
    kafkas, committed = seen(kafka.bootstrap), seen(kafka.bootstrap, "read_committed")
    assert_same(seen(kafkalite.bootstrap), kafkas)
    assert count(committed) < count(kafkas) < count(whole) / 2

    # each gets the other's, writes to it, compacts it, and is judged
    kafka.stop()
    kafkalite.stop()
    aside = tmp_path / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    kafka.start()
    start(kafkalite)
    assert_same(seen(kafka.bootstrap), kafkas)
    assert_same(seen(kafka.bootstrap, "read_committed"), committed)
    assert_same(seen(kafkalite.bootstrap), kafkas)
    for broker in (kafka, kafkalite):
        produce(broker.bootstrap, "second", 2)
    for data_dir in (one, two):
        until(lambda data_dir=data_dir: all_clean(data_dir), "the second pass", SECONDS)
    assert newest(seen(kafka.bootstrap)) == newest(seen(kafkalite.bootstrap))
    kafka.stop()
    kafkalite.stop()
    for data_dir in (one, two):
        verdict = judge(data_dir, compacted=True)
        # a batch that was kept without its records, for the sake of its producer: Kafka's cleaner leaves it so too
        faults = [line for line in verdict.faults if line.strip() and not EMPTY.search(line)]
        assert not faults, "".join(faults[:30])


def newest(world: World) -> dict[Any, Any]:
    """The value that each key has, which is what a table is: when the passes came differs between two brokers."""
    values = {(place, one.key): one.value for place, kept in world.items() for one in kept}
    return {key: value for key, value in values.items() if value is not None}
