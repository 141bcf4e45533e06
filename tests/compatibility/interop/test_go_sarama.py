"""IBM/sarama: both producers, groups, ClusterAdmin; with the versions of Kafka that programs set in its config.

It takes its request versions from `config.Version` and does not look at a broker's smallest ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.stories import CODECS, Encounter, encounters

ECOSYSTEM = "Go"
CLIENT = "sarama"
VERSION = pinned("sarama", "github.com/IBM/sarama")
NOTHING_ASKED = ["does not ask"]
LATER = {"0.11.0.0": ("partitions", "group still listed"), "1.0.0": ("group still listed",)}
"""What ClusterAdmin could not yet do then."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture
def sarama(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    """sarama("what is run") is the encounter that decides this row."""
    with encounters(broker) as meet:

        def sarama(what: str) -> Encounter:
            proved(CLIENT, VERSION, what)
            return meet([Go(need("go"), cache("go")).build("sarama")], acks=-1)

        yield sarama


@pytest.mark.parametrize("style", ["sync", "async"])
def test_records_of_every_codec_go_both_ways(sarama: Callable[[str], Encounter], style: str) -> None:
    encounter = sarama(f"{style} producer with each of 5 codecs, consumer")
    for codec in CODECS:
        encounter.both_directions(codec, style=style)


@pytest.mark.parametrize("style", ["sync", "async"])
def test_idempotent(sarama: Callable[[str], Encounter], style: str) -> None:
    sarama(f"idempotent {style} producer").both_directions("snappy", idempotent=True, style=style)


@pytest.mark.parametrize("style", ["range", "sticky"])
def test_a_group_grows_and_shrinks(sarama: Callable[[str], Encounter], style: str) -> None:
    sarama(f"group of two, {style}: rebalance, commit, resume").group_grows_and_shrinks(style)


def test_cluster_admin_administers(sarama: Callable[[str], Encounter]) -> None:
    sarama("ClusterAdmin: topics, configs, partitions, records, offsets, groups").administration("lag")


# A program that does not ask which versions a broker serves sends those of the Kafka that its config names; of those
# that are newer than 3.9 some are served by 4.x only (DescribeCluster 2), so the newest sarama knows has to ask.
@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("0.11.0.0", NOTHING_ASKED),
        ("1.0.0", []),
        ("1.0.0", NOTHING_ASKED),
        ("2.1.0", NOTHING_ASKED),
        ("2.7.0", NOTHING_ASKED),
        ("2.8.0", []),
        ("2.8.0", NOTHING_ASKED),
        ("3.6.0", NOTHING_ASKED),
        ("3.9.0", NOTHING_ASKED),
        ("newest", []),
    ],
)
def test_it_speaks_as_of(sarama: Callable[[str], Encounter], version: str, settings: list[str]) -> None:
    asks = "does not ask for versions" if settings else "asks for versions"
    encounter = sarama(f"config.Version {version}, {asks}: both producers, consumer, group, ClusterAdmin")
    encounter = encounter.with_settings(version=version, settings=settings)
    encounter.both_directions("lz4", style="async")
    encounter.both_directions("gzip", idempotent=True)
    encounter.group_grows_and_shrinks("range")
    encounter.administration("lag", *LATER.get(version, ()))
