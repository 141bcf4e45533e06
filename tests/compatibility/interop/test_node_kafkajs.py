"""KafkaJS: producers with and without idempotence, its codecs, groups, admin.

It chooses from fixed lists of request versions by a broker's largest, and does not look at the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.interop.node import FIRST_INSTALL_S, Node, pinned
from tests.compatibility.interop.stories import Encounter, encounters

ECOSYSTEM = "Node"
CLIENT = "KafkaJS"
VERSION = pinned("kafkajs", "kafkajs")

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_INSTALL_S)]


@pytest.fixture
def kafkajs(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    """kafkajs("what is run") is the encounter that decides this row."""
    with encounters(broker) as meet:

        def kafkajs(what: str) -> Encounter:
            proved(CLIENT, VERSION, what)
            return meet(Node(need("node"), need("npm"), cache("node")).command("kafkajs"), acks=-1)

        yield kafkajs


def test_records_of_its_codecs_go_both_ways(kafkajs: Callable[[str], Encounter]) -> None:
    encounter = kafkajs("producer with none, gzip, snappy (kafkajs-snappy), consumer")
    for codec in ("none", "gzip", "snappy"):
        encounter.both_directions(codec)


def test_idempotent(kafkajs: Callable[[str], Encounter]) -> None:
    kafkajs("idempotent producer, gzip").both_directions("gzip", idempotent=True)


def test_a_producer_that_waits_for_the_leader_only(kafkajs: Callable[[str], Encounter]) -> None:
    kafkajs("producer with acks=1").both_directions("none", acks=1)


def test_a_group_grows_and_shrinks(kafkajs: Callable[[str], Encounter]) -> None:
    kafkajs("group of two: rebalance, commit, resume").group_grows_and_shrinks("roundrobin", commits_late=True)


def test_admin_administers(kafkajs: Callable[[str], Encounter]) -> None:
    kafkajs("admin: topics, configs, partitions, records, offsets, groups").administration("lag")
