"""Source, target and mirrors are killed with -9 again and again: each record is copied once, no offset is ahead; with
--preserve-offsets each one is at the offset of its source."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.names import TopicPartition
from tests.support.broker_process import ServedBroker
from tests.support.wait import DEADLINE_S, until
from tests.system.crash.copy_job import feeding
from tests.system.crash.crash_line import Line
from tests.system.crash.ledger import LOG, PARTITIONS, PERSISTENT, Ledger, create_topics
from tests.system.mirror.audit import Audit, committed_records, content
from tests.system.mirror.mirror_process import QUICK, MirrorProcess

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}
TOPICS = {"orders": PARTITIONS, "payments": PARTITIONS}
PAUSE_S = 0.05
START_S = 0.5
VICTIMS = ("mirror", "mirror", "east", "east", "west", "east and west", "all")


class Place:
    """Two brokers and some mirrors between them."""

    def __init__(self, tmp_path: Path, mirrors: int, *more: str) -> None:
        """`more`: arguments of the mirrors."""
        self.west = ServedBroker(tmp_path / "west", tmp_path / "west.txt", SETTINGS)
        self.east = ServedBroker(tmp_path / "east", tmp_path / "east.txt", SETTINGS)
        self.west.start()
        self.east.start()
        self.mirrors = [
            MirrorProcess(
                self.west.bootstrap, self.east.bootstrap, str(number), tmp_path / f"mirror-{number}.txt", QUICK + more
            )
            for number in range(mirrors)
        ]
        self._same: dict[TopicPartition, int] = {}

    def close(self) -> None:
        for one in (*self.mirrors, self.west, self.east):
            one.kill()

    def strike(self, chance: random.Random) -> None:
        """Kills one or several of them at a random moment, and begins them again."""
        if chance.random() < 0.6:
            before, deadline_s = self.copied(), time.monotonic() + 5
            while self.copied() <= before and time.monotonic() < deadline_s:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, PAUSE_S))
        else:
            time.sleep(chance.uniform(0, START_S))
        victim = chance.choice(VICTIMS)
        mirror = chance.choice(self.mirrors)
        if victim in ("mirror", "all"):
            mirror.kill()
        for name, broker in (("east", self.east), ("west", self.west)):
            if name in victim or victim == "all":
                broker.kill()
        if victim in ("mirror", "all"):
            mirror.begin()
        for broker in (self.east, self.west):
            if not broker.is_running:
                broker.start()

    def copy_group(self, group: str, other: str) -> None:
        with ClusterClient(self.west.bootstrap, 20) as cluster:
            admin = GroupAdmin(cluster, 20)
            assert not admin.commit(other, admin.offsets(group))

    def copied(self) -> int:
        """Offsets in the copies."""
        try:
            with ClusterClient(self.east.bootstrap, 5) as cluster:
                keys = [key for key in cluster.places if key[0] in ("west.orders", "west.payments")]
                return sum(LogOffsets(cluster, 5).ends(keys).values())
        except (Unanswered, ConfigError):
            return 0

    def difference(self) -> str:
        """The partitions whose copy is another, and the last words of the mirrors."""
        lines = ["the copy:"]
        with ClusterClient(self.west.bootstrap, 20) as west, ClusterClient(self.east.bootstrap, 20) as east:
            for topic, count in TOPICS.items():
                for index in range(count):
                    here = content(committed_records(west, topic, index))
                    there = content(committed_records(east, f"west.{topic}", index))
                    if here != there:
                        pairs = enumerate(zip(here, there, strict=False))
                        same = next((at for at, pair in pairs if pair[0] != pair[1]), min(len(here), len(there)))
                        lines.append(f"{topic}-{index}: {len(there)} of {len(here)}, the first {same} are the same")
        return "\n".join([*lines, *(one.said()[-700:] for one in self.mirrors)])

    def check_offsets(self) -> int:
        """Each copy is the beginning of its source, with the same offsets, and no group is ahead of it; only what was
        not compared before is read. Returns the number of records."""
        found = 0
        with ClusterClient(self.west.bootstrap, 20) as west, ClusterClient(self.east.bootstrap, 20) as east:
            groups = GroupAdmin(east, 20)
            committed = {group: groups.offsets(group) for group in ("app", "early")}
            ends = LogOffsets(east, 20).ends([key for key in east.places if key[0].startswith("west.")])
            for (topic, index), end in ends.items():
                if (original := topic.removeprefix("west.")) not in TOPICS:
                    continue
                begin = self._same.get((topic, index), 0)
                there = [one for one in committed_records(east, topic, index, begin) if one.offset < end]
                here = committed_records(west, original, index, begin)[: len(there)]
                assert [one.offset for one in there] == [one.offset for one in here], (topic, index, begin)
                assert content(there) == content(here), (topic, index, begin)
                self._same[topic, index] = end
                found += len(there)
                assert all(offsets.get((topic, index), 0) <= end for offsets in committed.values())
        return found

    def has_same_ends(self) -> bool:
        """Whether the copies, and the offsets of groups there, are as at the source."""
        with ClusterClient(self.west.bootstrap, 20) as west, ClusterClient(self.east.bootstrap, 20) as east:
            keys = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
            ends = LogOffsets(west, 20).ends(keys, committed=True)
            there = LogOffsets(east, 20).ends([(f"west.{topic}", index) for topic, index in keys])
            groups = [
                (GroupAdmin(west, 20).offsets(group), GroupAdmin(east, 20).offsets(group)) for group in ("app", "early")
            ]
        return _copied(ends) == there and all(_copied(here) == offsets for here, offsets in groups)

    def is_copied(self) -> bool:
        try:
            with ClusterClient(self.west.bootstrap, 5) as west, ClusterClient(self.east.bootstrap, 5) as east:
                return all(
                    content(committed_records(west, topic, index))
                    == content(committed_records(east, f"west.{topic}", index))
                    for topic, count in TOPICS.items()
                    for index in range(count)
                )
        except (Unanswered, ConfigError):
            return False


def _copied(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {(f"west.{topic}", index): offset for (topic, index), offset in offsets.items()}


@contextlib.contextmanager
def running(work: object) -> Iterator[None]:
    """`work` again and again in a thread of its own, through all faults of a broker that is away."""
    done = threading.Event()

    def loop() -> None:
        while not done.is_set():
            with contextlib.suppress(confluent_kafka.KafkaException):
                work(done)  # type: ignore[operator]

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(DEADLINE_S)


class Payments:
    """A transactional producer that aborts now and then, and is replaced after an error."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "transactional.id": "payments", **PERSISTENT}
        self._chance = random.Random(7)
        self._number = 0

    def __call__(self, done: threading.Event) -> None:
        producer = confluent_kafka.Producer(self._settings, logger=LOG)
        producer.init_transactions(5)
        while not done.wait(0.02):
            producer.begin_transaction()
            for _ in range(self._chance.randrange(1, 20)):
                self._number += 1
                producer.produce("payments", b"%d" % self._number, partition=self._number % PARTITIONS)
            if self._chance.random() < 0.2:
                producer.flush(5)
                producer.abort_transaction(5)
            else:
                producer.commit_transaction(5)


class App:
    """A consumer at the source that commits what it has read."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 200,
            **PERSISTENT,
        }

    def __call__(self, done: threading.Event) -> None:
        consumer = confluent_kafka.Consumer(self._settings, logger=LOG)
        try:
            consumer.subscribe(list(TOPICS))
            while not done.is_set():
                if any(one.error() is None for one in consumer.consume(150, 0.1)):
                    consumer.commit(asynchronous=False)
        finally:
            with contextlib.suppress(confluent_kafka.KafkaException):
                consumer.close()


def copy_under_kills(
    place: Place, chance: random.Random, kills: int, after_each: Callable[[], None] = lambda: None
) -> Ledger:
    """Topics are written, read and mirrored meanwhile. Returns what was written to one of them."""
    line = Line(place.west.port)
    create_topics(line, **TOPICS)
    line.close()
    for mirror in place.mirrors:
        mirror.begin()
    ledger = Ledger(place.west.bootstrap, "orders", idempotent=True)
    with feeding(ledger), running(Payments(place.west.bootstrap)), running(App(place.west.bootstrap)):
        for number in range(kills):
            place.strike(chance)
            after_each()
            if number == kills // 2:
                place.copy_group("app", "early")  # stays far behind: its pair of offsets must survive all kills
    return ledger


LONG = [pytest.param(2, 200, marks=[pytest.mark.long, pytest.mark.timeout(5400)])]


@pytest.mark.parametrize(("mirrors", "kills"), [(1, 6), (2, 6), *LONG])
def test_each_record_is_copied_once(tmp_path: Path, mirrors: int, kills: int) -> None:
    place = Place(tmp_path, mirrors)
    chance = random.Random(kills + mirrors)
    try:
        ledger = copy_under_kills(place, chance, kills)
        until(place.is_copied, place.difference, 3 * DEADLINE_S)

        def groups_follow() -> bool:
            try:
                Audit(place.west.bootstrap, place.east.bootstrap, TOPICS).check_groups()
            except AssertionError:
                return False
            return True

        until(groups_follow, "the offsets of the group", DEADLINE_S)
        audit = Audit(place.west.bootstrap, place.east.bootstrap, TOPICS)
        audit.check()
        held_back = audit.check_pace()
        print(
            f"{kills} kills: {ledger.count} records, at most {audit.behind_max} would be read again; {held_back} "
            "checkpoints were at the end of the copy then, none of all was more than a transaction behind"
        )
        assert all(mirror.stop() == 0 for mirror in place.mirrors)
    finally:
        place.close()


PRESERVED = [pytest.param(2, 200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("mirrors", "kills"), [(2, 6), *PRESERVED])
def test_each_record_keeps_its_offset(tmp_path: Path, mirrors: int, kills: int) -> None:
    """Compared after every kill: none is lost, twice, or at another offset."""
    place = Place(tmp_path, mirrors, "--preserve-offsets")
    chance = random.Random(1000 + kills)
    found = 0

    def check() -> None:
        nonlocal found
        found += place.check_offsets()

    try:
        ledger = copy_under_kills(place, chance, kills, check)
        until(place.has_same_ends, place.difference, 3 * DEADLINE_S)
        check()
        assert place.is_copied()
        print(f"{kills} kills: {found} records at the offsets of their source")
        assert found >= ledger.count and all(mirror.stop() == 0 for mirror in place.mirrors)
    finally:
        place.close()
