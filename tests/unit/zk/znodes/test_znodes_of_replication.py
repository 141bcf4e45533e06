"""The nodes of replicas, elections and reassignments: read as Kafka 3.9.1 wrote them, and written as it writes them.

`tests/golden/zookeeper/replication.txt` is what Kafka's own encoders made of these values
(tests/compatibility/interop/test_znodes_of_replication.py).
"""

from __future__ import annotations

import json

import pytest

from tests.support.zk.replication_nodes import SAMPLES, kafkas


@pytest.mark.parametrize("name", SAMPLES)
def test_a_node_says_the_same_in_both_directions(name: str) -> None:
    value, encode, parse = SAMPLES[name]
    theirs = kafkas()[name]
    assert parse(theirs) == value
    assert parse(encode(value)) == value
    assert json.loads(encode(value)) == json.loads(theirs)
    assert len(encode(value)) == len(theirs)  # the order of keys is that of a hash table


def test_there_is_a_value_for_every_sample() -> None:
    assert kafkas().keys() == SAMPLES.keys()
