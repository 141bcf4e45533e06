"""librdkafka as it was: 1.4 and 1.9 inside confluent-kafka-go, and the one in Debian's kcat; asking and not asking.

Without `api.version.request` librdkafka takes its request versions from `broker.version.fallback`. Before 0.11 that
means message sets of the old formats, which Produce 0-2 and Fetch 0-3 carry: those ages are in `test_oldest_clients`,
here the oldest is 0.11. librdkafka up to 1.6 asks for the beginning and the end of a partition with ListOffsets 0.
The newest librdkafka is the one of confluent-kafka, in tests/compatibility/clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.conftest import kcat_version
from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.stories import (
    CODECS,
    START_MS,
    Encounter,
    Seen,
    codecs_on_disk,
    create_topic,
    encounters,
    send,
)

ECOSYSTEM = "librdkafka"
MOD_FILES = ["go-1.4.2.mod", "go.mod"]
MODULE = "github.com/confluentinc/confluent-kafka-go"
AGES = ["0.11.0.0", "1.0.0", "2.4.0"]
FIRST_TIME = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=100", "-q", "-e")

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture(params=MOD_FILES, ids=["1.4", "1.9"])
def confluent_go(
    broker: Any, proved: Any, need: Any, cache: Any, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Encounter]]:
    """confluent_go("what is run") is the encounter that decides this row."""
    version = pinned("librdkafka", MODULE, request.param)
    with encounters(broker) as meet:

        def confluent_go(what: str) -> Encounter:
            proved("confluent-kafka-go", version, what)
            need("gcc")
            program = Go(need("go"), cache("go")).build("librdkafka", request.param)
            encounter = meet([program], acks=-1, settings=[])
            (answer,) = encounter.stranger.ask("version")
            assert answer["version"].startswith(version[:3]), "the librdkafka that it brings along"
            return encounter

        yield confluent_go


class Kcat:
    """Debian's kcat, and confluent-kafka for the other side."""

    def __init__(self, path: str, encounter: Encounter, run: Callable[..., str], bootstrap: str) -> None:
        self.words = [path, "-b", bootstrap]
        self.encounter = encounter
        self.run = run

    def __call__(self, *arguments: str, typed: str = "") -> str:
        return self.run([*self.words, *arguments], typed=typed)

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("-C", "-J", "-q", "-e", *arguments).splitlines()]


@pytest.fixture
def kcat(broker: Any, proved: Any, need: Any, run: Any) -> Iterator[Callable[[str], Kcat]]:
    """kcat("what is run") is the kcat that decides this row."""
    with encounters(broker) as meet:

        def kcat(what: str) -> Kcat:
            proved("kcat", "", what)
            path = need("kcat")
            proved("kcat", kcat_version(path), what)
            return Kcat(path, meet([]), run, broker.bootstrap)

        yield kcat


def test_a_producer(confluent_go: Callable[..., Encounter]) -> None:
    encounter = confluent_go("producer with each of 5 codecs, idempotent with lz4")
    for codec in CODECS:
        encounter.stranger_writes(codec, idempotent=codec == "lz4")


def test_records_of_every_codec_go_both_ways(confluent_go: Callable[[str], Encounter]) -> None:
    encounter = confluent_go("producer with each of 5 codecs, idempotent with lz4, consumer")
    for codec in CODECS:
        encounter.both_directions(codec, idempotent=codec == "lz4")


def test_a_group_grows_and_shrinks(confluent_go: Callable[[str], Encounter]) -> None:
    confluent_go("group of two, range: rebalance, commit, resume").group_grows_and_shrinks("range")


def test_admin_administers(confluent_go: Callable[[str], Encounter]) -> None:
    confluent_go("AdminClient and consumer: topics, configs, partitions, offsets").administration(
        "lag", "start after the cut", "group listed", "group state", "group still listed"
    )


@pytest.mark.parametrize("age", AGES)
def test_one_that_does_not_ask(confluent_go: Callable[[str], Encounter], age: str) -> None:
    settings = ["api.version.request=false", f"broker.version.fallback={age}"]
    encounter = confluent_go(f"api.version.request=false, broker.version.fallback={age}: producer, consumer, group")
    encounter = encounter.with_settings(settings=settings)
    encounter.both_directions("gzip")
    encounter.both_directions("snappy", idempotent=True)
    encounter.group_grows_and_shrinks("range")


def test_kcat_lists_what_is_there(kcat: Callable[[str], Kcat]) -> None:
    cat = kcat("-L: metadata")
    topic = create_topic(cat.encounter.confluent, "listed", 3)
    told = json.loads(cat("-L", "-J"))
    assert cat.words[2] in {broker["name"] for broker in told["brokers"]}
    (found,) = [found for found in told["topics"] if found["topic"] == topic]
    assert [p["partition"] for p in found["partitions"]] == [0, 1, 2]
    assert {p["leader"] for p in found["partitions"]} == {broker["id"] for broker in told["brokers"]}


def test_kcat_writes_and_reads_keys_headers_and_every_codec(kcat: Callable[[str], Kcat]) -> None:
    cat = kcat("-P -K -H -z for each of 5 codecs, -C")
    for codec in CODECS:
        topic = create_topic(cat.encounter.confluent, f"typed-{codec}", 1)
        lines = "".join(f"key-{n}:{'kcat ' * 80}{n}\n" for n in range(100))
        cat("-P", "-t", topic, "-p", "0", "-z", codec, "-K:", "-H", "trace=7f", "-H", "trace=80", typed=lines)
        assert set(codecs_on_disk(cat.encounter.data_dir, topic)) == {codec}
        ours = [Seen(0, n, START_MS + n, b"key-%d" % n, b"confluent %d" % n, (("trace", b"81"),)) for n in range(20)]
        send(cat.encounter.confluent, topic, ours, compression_codec=codec)

        records = cat.records("-t", topic, "-o", "beginning")

        assert [r["offset"] for r in records] == list(range(120))
        assert [r["key"] for r in records] == [f"key-{n}" for n in [*range(100), *range(20)]]
        assert "".join(f"{r['key']}:{r['payload']}\n" for r in records[:100]) == lines
        assert all(r["headers"] == ["trace", "7f", "trace", "80"] for r in records[:100])
        assert [(r["ts"], r["payload"]) for r in records[100:]] == [(START_MS + n, f"confluent {n}") for n in range(20)]
        read = cat.encounter.confluent.read(topic, 100)
        assert [m.key() + b":" + m.value() for m in read] == lines.encode().splitlines()


def test_kcat_asks_for_offsets_and_reads_in_a_group(kcat: Callable[[str], Kcat]) -> None:
    cat = kcat("-Q, -o s@ e@, -G: offsets by time, a group that resumes")
    topic = create_topic(cat.encounter.confluent, "timed", 1)
    send(cat.encounter.confluent, topic, [Seen(0, n, START_MS + n, None, b"%d" % n, ()) for n in range(10)])
    assert cat("-Q", "-t", f"{topic}:0:{START_MS + 4}").split() == [topic, "[0]", "offset", "4"]
    from_four_to_seven = ("-o", f"s@{START_MS + 4}", "-o", f"e@{START_MS + 7}")
    assert [r["payload"] for r in cat.records("-t", topic, *from_four_to_seven)] == ["4", "5", "6"]
    group = f"{topic}-group"
    assert cat("-G", group, *FIRST_TIME, topic).split() == [str(n) for n in range(10)]
    cat("-P", "-t", topic, "-p", "0", typed="ten\n")
    assert cat("-G", group, *FIRST_TIME, topic).split() == ["ten"]
    assert cat.encounter.committed(group, topic, 1) == [11]


@pytest.mark.parametrize("age", AGES)
def test_kcat_that_does_not_ask(kcat: Callable[[str], Kcat], age: str) -> None:
    cat = kcat(f"api.version.request=false, broker.version.fallback={age}: -L, -P, -C, -Q, -G")
    topic = create_topic(cat.encounter.confluent, "unasked", 1)
    pinned_age = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={age}")
    assert topic in cat("-L", *pinned_age)
    lines = "".join(f"{n}\n" for n in range(500))
    cat("-P", "-t", topic, "-p", "0", "-z", "lz4", "-X", "enable.idempotence=true", *pinned_age, typed=lines)
    assert cat("-C", "-t", topic, "-e", "-q", *pinned_age) == lines
    assert cat("-Q", "-t", f"{topic}:0:0", *pinned_age).split() == [topic, "[0]", "offset", "0"]
    assert cat("-G", f"{topic}-group", *FIRST_TIME, *pinned_age, topic) == lines
