"""The stories of every foreign client: records in both directions, a group that grows and shrinks, administration.

The other side is always confluent-kafka: it prepares topics, reads what the stranger wrote, writes what the stranger
reads, and describes the group as the broker sees it. Codecs are looked for in the files, since a client that does not
trust a broker's answer to ApiVersions quietly leaves a codec out.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin import NewTopic

from kafkalite.record.batch import parse_header
from tests.compatibility.clients.conftest import Confluent
from tests.compatibility.interop.strangers import Member, Seen, Stranger, position
from tests.support.wait import DEADLINE_S, until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention
HEADERS = (("trace", b"7f"), ("trace", b"80"), ("empty", b""))
ADMINISTERED = {
    "retention.ms": "3600000",
    "max.message.bytes": "2000000",
    "partitions": 3,
    "gone": True,
    "start": 0,
    "end": 10,
    "at the time": 4,
    "start after the cut": 3,
    "committed": 7,
    "group listed": True,
    "group state": "Empty",
    "lag": 3,
    "group still listed": False,
}


def story(author: str, first: int = 0, empties: bool = True) -> list[Seen]:
    """24 records for two partitions: with and without key and value, empty (where allowed), long, binary."""
    empty = b"" if empties else b"not empty"
    values = [b"plain", empty, None, (f"{author} " * 200).encode(), bytes(range(256)), b"last"] * 4
    keys = [None, empty, f"{author}-key".encode(), bytes([0, 255, 10])] * 6
    at_partition = [first, first]
    records = []
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        partition = (number // 3) % 2
        time_ms = START_MS + number
        records.append(Seen(partition, at_partition[partition], time_ms, key, value, HEADERS))
        at_partition[partition] += 1
    return records


def create_topic(confluent: Confluent, stem: str, partitions: int, **config: str) -> str:
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name, partitions, 1, config=config)
    confluent.admin().create_topics([topic])[name].result(DEADLINE_S)
    return name


def send(confluent: Confluent, topic: str, records: Iterable[Seen], **settings: Any) -> None:
    told = [
        {"partition": r.partition, "timestamp": r.timestamp_ms, "key": r.key, "value": r.value, "headers": [*r.headers]}
        for r in records
    ]
    confluent.send(topic, told, **settings)


def read_by_confluent(confluent: Confluent, topic: str, partition: int, count: int) -> list[Seen]:
    return [
        Seen(m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in confluent.read(topic, count, partition)
    ]


def blurred(record: Seen) -> Seen:
    headers = tuple((name, value or None) for name, value in record.headers)
    return record._replace(key=record.key or None, value=record.value or None, headers=headers)


def same_records(found: list[Seen], expected: list[Seen]) -> None:
    differing = [(one, other) for one, other in zip(found, expected, strict=True) if one != other]
    if differing:
        pytest.fail(
            f"{len(differing)} of {len(expected)} records differ; found {differing[0][0]}, not {differing[0][1]}"
        )


def codecs_on_disk(data_dir: Path, topic: str) -> Counter[str]:
    """How many batches of a topic were written with which codec."""
    found: Counter[str] = Counter()
    for path in data_dir.glob(f"**/{topic}-[0-9]*/*.log"):  # several processes have a directory each
        data, start = path.read_bytes(), 0
        while start < len(data):
            header = parse_header(data, start)
            found[CODECS[header.codec]] += 1
            start += header.size_bytes
    return found


class Encounter:
    """A stranger, confluent-kafka on the other side, and the broker's files between them."""

    def __init__(self, stranger: Stranger, confluent: Confluent, data_dir: Path) -> None:
        self.stranger = stranger
        self.confluent = confluent
        self.data_dir = data_dir

    def with_settings(self, **told: Any) -> Encounter:
        return Encounter(self.stranger.with_settings(**told), self.confluent, self.data_dir)

    def stranger_writes(self, codec: str, *, empties: bool = True, **how: Any) -> tuple[str, list[Seen]]:
        """The stranger writes and confluent-kafka reads. Returns the topic and its records."""
        topic = create_topic(self.confluent, f"both-{codec}", 2)
        theirs = story("stranger", empties=empties)
        assert self.stranger.produce(topic, theirs, codec=codec, **how) == [(r.partition, r.offset) for r in theirs]
        assert set(codecs_on_disk(self.data_dir, topic)) == {codec}
        for partition in (0, 1):
            expected = [record for record in theirs if record.partition == partition]
            same_records(read_by_confluent(self.confluent, topic, partition, len(expected)), expected)
        return topic, theirs

    def both_directions(self, codec: str, *, empties: bool = True, blurs_null: bool = False, **how: Any) -> None:
        """The stranger writes and confluent-kafka reads; confluent-kafka adds to it and the stranger reads everything.
        A library that `blurs_null` tells its reader null where a key, value or header was empty; for one that writes
        it so, there have to be no `empties`."""
        topic, theirs = self.stranger_writes(codec, empties=empties, **how)
        ours = story("confluent", first=12, empties=empties)
        send(self.confluent, topic, ours, compression_codec=codec, linger_ms=20)
        # librdkafka leaves a batch as it is when compression makes it no smaller, as happens to those of one record
        assert {codec} <= set(codecs_on_disk(self.data_dir, topic)) <= {codec, "none"}
        expected = sorted(theirs + ours, key=position)
        if blurs_null:
            expected = list(map(blurred, expected))
        same_records(self.stranger.consume(topic, 48), expected)

    def group_grows_and_shrinks(self, style: str, *, commits_late: bool = False, **how: Any) -> None:
        """One member, two, one again, none; then another who goes on where they were. No record is lost, and none is
        read twice, save by a library that `commits_late`: it lets a partition go before the commit of what it read."""
        topic = create_topic(self.confluent, "shared", 4)
        group = f"group-{uuid.uuid4().hex[:8]}"
        sent: list[int] = []

        def more() -> None:
            numbers = range(len(sent), len(sent) + 40)
            send(self.confluent, topic, [Seen(n % 4, -1, START_MS + n, None, b"%d" % n, ()) for n in numbers])
            sent.extend(numbers)

        def all_read_by(*members: Member) -> None:
            def all_here() -> bool:
                dead = [member.last_words() for member in members if not member.is_well()]
                assert not dead, dead
                return {int(r.value or b"-1") for member in members for r in member.records} >= set(sent)

            until(all_here, f"{len(sent)} records at {len(members)} members of {group}")
            read = sorted(int(r.value or b"-1") for member in members for r in member.records)
            assert sorted(set(read)) == sent
            assert commits_late or read == sent

        more()
        with self.stranger.member(topic, group, style=style, **how) as first:
            self.shares_are(group, topic, [4])
            all_read_by(first)
            with self.stranger.member(topic, group, style=style, **how) as second:
                self.shares_are(group, topic, [2, 2])
                more()
                all_read_by(first, second)
                assert second.records, "the second has its share"
                first.leave()
                self.shares_are(group, topic, [4])
                more()
                all_read_by(first, second)
        self.shares_are(group, topic, [])
        assert self.committed(group, topic, 4) == [len(sent) // 4] * 4
        more()
        with self.stranger.member(topic, group, style=style, **how) as third:
            all_read_by(first, second, third)
            assert len(third.records) == 40, "it goes on where the others were"

    def shares_are(self, group: str, topic: str, wanted: list[int]) -> None:
        """The broker describes the group with so many partitions at each member, each partition at one of them."""
        admin = self.confluent.admin()

        def described() -> bool:
            told = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S)[group].result(DEADLINE_S)
            owned = [{p.partition for p in m.assignment.topic_partitions if p.topic == topic} for m in told.members]
            disjoint = len(set().union(*owned)) == sum(map(len, owned))
            settled = ConsumerGroupState.STABLE if wanted else ConsumerGroupState.EMPTY
            return bool(told.state == settled and sorted(map(len, owned)) == wanted and disjoint)

        until(described, f"shares of {wanted} in {group}")

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        return [
            answer.offset for answer in self.confluent.consumer(group_id=group).committed(asked, timeout=DEADLINE_S)
        ]

    def administration(self, *untold: str) -> None:
        """The stranger creates, changes, looks at and deletes; what it finds and what confluent-kafka finds agree.
        `untold` are the steps that the library has no call for."""
        topic = create_topic(self.confluent, "administered", 1)
        group = f"group-{uuid.uuid4().hex[:8]}"
        send(self.confluent, topic, [Seen(0, n, START_MS + n, None, b"%d" % n, ()) for n in range(10)])

        facts = self.stranger.administer(topic, group, START_MS + 4)

        assert "exist" in facts.pop("created twice").lower()
        for step, expected in ADMINISTERED.items():
            if step not in untold:
                assert facts.get(step) == expected, f"{step}: {facts.get(step)!r} instead of {expected!r}"
        metadata = self.confluent.admin().list_topics(timeout=DEADLINE_S)
        assert "brokers" in untold or facts.get("brokers") == len(metadata.brokers)
        assert topic in metadata.topics and f"{topic}-new" not in metadata.topics
        start = 0 if "start after the cut" in untold else 3
        assert self.confluent.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (
            start,
            10,
        )
        if "group still listed" not in untold:
            listed = self.confluent.admin().list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
            assert group not in {found.group_id for found in listed.valid}


@contextmanager
def encounters(broker: Any) -> Iterator[Any]:
    """Makes encounters with the broker: `meet(command, env, **told)`. All of confluent-kafka's clients are closed."""
    confluent = Confluent(broker.bootstrap)

    def meet(command: list[str], env: dict[str, str] | None = None, **told: Any) -> Encounter:
        return Encounter(Stranger(command, broker.bootstrap, env, **told), confluent, broker.data_dir)

    try:
        yield meet
    finally:
        confluent.close()
