"""node-rdkafka: librdkafka behind Node, built from its source where npm has no binary for the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.node import FIRST_INSTALL_S, Node, pinned
from tests.compatibility.interop.stories import CODECS, Encounter, encounters

ECOSYSTEM = "Node"
CLIENT = "node-rdkafka"
VERSION = pinned("rdkafka", "node-rdkafka")

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_INSTALL_S)]


@pytest.fixture
def node_rdkafka(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    """node_rdkafka("what is run") is the encounter that decides this row."""
    with encounters(broker) as meet:

        def node_rdkafka(what: str) -> Encounter:
            proved(CLIENT, VERSION, what)
            encounter = meet(Node(need("node"), need("npm"), cache("node")).command("rdkafka"), acks=-1)
            (answer,) = encounter.stranger.ask("version")
            proved(CLIENT, f"{VERSION} (librdkafka {answer['version']})", what)
            return encounter

        yield node_rdkafka


def test_records_of_every_codec_go_both_ways(node_rdkafka: Callable[[str], Encounter]) -> None:
    encounter = node_rdkafka("producer with each codec that it was built with, idempotent with lz4, consumer")
    (built,) = encounter.stranger.ask("version")
    for codec in [codec for codec in CODECS if codec in ("none", *built["features"])]:
        encounter.both_directions(codec, idempotent=codec == "lz4", empties=False)


@pytest.mark.parametrize("style", ["range", "cooperative-sticky"])
def test_a_group_grows_and_shrinks(node_rdkafka: Callable[[str], Encounter], style: str) -> None:
    node_rdkafka(f"group of two, {style}: rebalance, commit, resume").group_grows_and_shrinks(style)
