"""franz-go: idempotent writing, every codec, cooperative groups, kadm; as of today and as of Kafka 0.11 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.stories import CODECS, Encounter, encounters

ECOSYSTEM = "Go"
CLIENT = "franz-go"
VERSION = pinned("franz", "github.com/twmb/franz-go")
LATER = {"v0.11.0": ("partitions", "group still listed"), "v1.0.0": ("group still listed",)}
"""What Kafka could not yet be asked for then."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture
def franz(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    """franz("what is run") is the encounter that decides this row."""
    with encounters(broker) as meet:

        def franz(what: str) -> Encounter:
            proved(CLIENT, VERSION, what)
            return meet([Go(need("go"), cache("go")).build("franz")], idempotent=True)

        yield franz


def test_records_of_every_codec_go_both_ways(franz: Callable[[str], Encounter]) -> None:
    encounter = franz("idempotent producer with each of 5 codecs, consumer")
    for codec in CODECS:
        encounter.both_directions(codec)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_that_is_not_idempotent(franz: Callable[[str], Encounter], acks: int) -> None:
    franz(f"producer without idempotence, acks={acks}, lz4").both_directions("lz4", idempotent=False, acks=acks)


@pytest.mark.parametrize("style", ["cooperative-sticky", "range"])
def test_a_group_grows_and_shrinks(franz: Callable[[str], Encounter], style: str) -> None:
    franz(f"group of two, {style}: rebalance, commit, resume").group_grows_and_shrinks(style)


def test_kadm_administers(franz: Callable[[str], Encounter]) -> None:
    franz("kadm: topics, configs, partitions, records, offsets, groups").administration()


@pytest.mark.parametrize("version", ["v0.11.0", "v1.0.0", "v2.1.0", "v3.9.0"])
def test_it_speaks_as_of(franz: Callable[[str], Encounter], version: str) -> None:
    encounter = franz(f"kgo.MaxVersions {version}: producer, consumer, group, kadm").with_settings(version=version)
    encounter.both_directions("gzip", idempotent=False, acks=-1)
    encounter.both_directions("lz4")
    encounter.group_grows_and_shrinks("cooperative-sticky" if version > "v2.3" else "range")
    encounter.administration(*LATER.get(version, ()))
