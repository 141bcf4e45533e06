"""Partitions as Kafka's default partitioner chooses them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.producer.bulk_load import Partitioner, murmur2
from kafkalite.common.checksum import murmur2 as plain_murmur2

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

# Source: org.apache.kafka.common.utils.UtilsTest.testMurmur2
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_those_of_kafka_s_own_test() -> None:
    hashes = murmur2(pa.array(list(KNOWN))).view(np.int32)
    assert hashes.tolist() == list(KNOWN.values())


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(0, 5))
def test_lanes_hash_as_one_key_at_a_time(keys: list[bytes], skipped: int) -> None:
    array = pa.array([b"skipped"] * skipped + keys, pa.binary()).slice(skipped)
    assert murmur2(array).tolist() == [plain_murmur2(key) for key in keys]


def test_a_partition_that_is_asked_for_goes_before_the_key_and_the_key_before_the_turn() -> None:
    partitioner = Partitioner(4, batch_bytes=100, first=2)
    keys = pa.array([b"abc", b"abc", None, None])
    asked = pa.array([3, None, 1, None], pa.int32())
    hashed = (KNOWN[b"abc"] & 0x7FFFFFFF) % 4
    assert partitioner.choose(keys, asked, np.full(4, 10)).tolist() == [3, hashed, 1, 2]
    assert partitioner.choose(pa.array([b"abc"] * 2), None, np.full(2, 10)).tolist() == [hashed] * 2


def test_rows_without_a_key_fill_a_batch_and_go_on_to_the_next_partition() -> None:
    partitioner = Partitioner(3, batch_bytes=100, first=1)
    chosen = np.concatenate([partitioner.choose(None, None, np.full(count, 25)) for count in (3, 2, 4, 3)])
    assert chosen.tolist() == [1] * 4 + [2] * 4 + [0] * 4
