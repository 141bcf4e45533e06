"""segmentio/kafka-go: Writer and Reader, the connection below them, groups, the Client.

Its connection speaks fixed old versions of most requests, its Client newer ones; neither looks at a broker's smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.stories import CODECS, Encounter, encounters

ECOSYSTEM = "Go"
CLIENT = "kafka-go"
VERSION = pinned("kafkago", "github.com/segmentio/kafka-go")

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.fixture
def kafka_go(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    """kafka_go("what is run") is the encounter that decides this row."""
    with encounters(broker) as meet:

        def kafka_go(what: str) -> Encounter:
            proved(CLIENT, VERSION, what)
            return meet([Go(need("go"), cache("go")).build("kafkago")], acks=-1)

        yield kafka_go


def test_records_of_every_codec_go_both_ways(kafka_go: Callable[[str], Encounter]) -> None:
    encounter = kafka_go("Writer with each of 5 codecs, Reader")
    for codec in CODECS:
        encounter.both_directions(codec, blurs_null=True)


def test_a_writer_that_waits_for_the_leader_only(kafka_go: Callable[[str], Encounter]) -> None:
    kafka_go("Writer, RequireOne").both_directions("none", acks=1, blurs_null=True)


def test_the_connection_writes_every_codec(kafka_go: Callable[[str], Encounter]) -> None:
    encounter = kafka_go("Conn.WriteCompressedMessagesAt with each of 5 codecs")
    for codec in CODECS:
        encounter.both_directions(codec, blurs_null=True, style="conn")


@pytest.mark.parametrize("style", ["range", "roundrobin"])
def test_a_group_grows_and_shrinks(kafka_go: Callable[[str], Encounter], style: str) -> None:
    kafka_go(f"group of two Readers, {style}: rebalance, commit, resume").group_grows_and_shrinks(
        style, commits_late=True
    )


def test_client_and_connection_administer(kafka_go: Callable[[str], Encounter]) -> None:
    kafka_go("Client and Conn: topics, configs, partitions, offsets, groups").administration(
        "lag", "start after the cut"
    )
