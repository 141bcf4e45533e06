"""Golden bytes of `__transaction_state`: made by Kafka's generated classes (4.0), and a log that Kafka 3.9.1 wrote."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.transaction import transaction_state
from kafkalite.coordinator.transaction.transaction_state import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionState,
)
from kafkalite.record.batch import iter_batches
from kafkalite.record.record import read_records
from tests.support.places import ROOT

KAFKA_LOG = ROOT / "tests/golden/inspection/kafka-3.9.1/__transaction_state-0/00000000000000000000.log"
PARTITIONS = frozenset({("__consumer_offsets", 31), ("orders", 0), ("orders", 2)})
_EMPTY = TransactionMetadata(4000, 7, 60_000, 1_700_000_000_000)
_ONGOING = _EMPTY._replace(state=ONGOING, partitions=PARTITIONS, start_ms=1_699_999_999_000)
_COMPLETE = _ONGOING._replace(state=COMPLETE_COMMIT, partitions=frozenset())
_BUMPED = _ONGOING._replace(state=PREPARE_COMMIT, client_version=2)

KEY = bytes.fromhex("0000 0006 636f70792d31")
_HEAD = "0000000000000fa0 0007 0000ea60"  # producer 4000, epoch 7, time-out 60 s
_TIMES = "0000018bcfe56800 0000018bcfe56418"
_TOPICS = (
    "00000002 0012 5f5f636f6e73756d65725f6f666673657473 00000001 0000001f 0006 6f7264657273 00000002 00000000 00000002"
)
_COMPACT_TOPICS = "03 13 5f5f636f6e73756d65725f6f666673657473 02 0000001f 00 07 6f7264657273 03 00000000 00000002 00"
VERSION_0 = {
    _EMPTY: f"0000 {_HEAD} 00 ffffffff 0000018bcfe56800 ffffffffffffffff",
    _ONGOING: f"0000 {_HEAD} 01 {_TOPICS} {_TIMES}",
    _COMPLETE: f"0000 {_HEAD} 04 00000000 {_TIMES}",
}
VERSION_1 = {
    _BUMPED: f"0001 {_HEAD} 02 {_COMPACT_TOPICS} {_TIMES} 01 02 02 0002",
    _BUMPED._replace(previous_producer_id=4000, next_producer_id=5000): (
        f"0001 {_HEAD} 02 {_COMPACT_TOPICS} {_TIMES} 03 00 08 0000000000000fa0 01 08 0000000000001388 02 02 0002"
    ),
}
VERSION_1_WITHOUT_TAGS = {
    _EMPTY: f"0001 {_HEAD} 00 00 0000018bcfe56800 ffffffffffffffff 00",
    _ONGOING: f"0001 {_HEAD} 01 {_COMPACT_TOPICS} {_TIMES} 00",
    _COMPLETE: f"0001 {_HEAD} 04 01 {_TIMES} 00",
}


def test_a_key_is_the_transactional_id():
    assert transaction_state.transaction_key("copy-1") == KEY
    assert transaction_state.read_key(KEY) == "copy-1"
    assert transaction_state.read_key(b"\0\1" + KEY[2:]) is None


@pytest.mark.parametrize(("metadata", "golden"), [*VERSION_0.items(), *VERSION_1.items()])
def test_values_are_those_of_kafka(metadata, golden):
    assert transaction_state.transaction_value(metadata) == bytes.fromhex(golden)
    assert transaction_state.read_value(bytes.fromhex(golden)) == metadata


@pytest.mark.parametrize(("metadata", "golden"), VERSION_1_WITHOUT_TAGS.items())
def test_version_1_is_read_also_where_version_0_would_do(metadata, golden):
    assert transaction_state.read_value(bytes.fromhex(golden)) == metadata


def test_the_values_of_a_log_of_kafka_are_written_as_they_were():
    states = set()
    for _, batch in iter_batches(Path(KAFKA_LOG).read_bytes()):
        for record in read_records(batch):
            assert transaction_state.transaction_key(transaction_state.read_key(bytes(record.key))) == record.key
            if record.value is not None:
                metadata = transaction_state.read_value(bytes(record.value))
                assert transaction_state.transaction_value(metadata) == record.value
                states.add(metadata.state.value)
    assert states == {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0",
        bytes.fromhex(VERSION_0[_ONGOING])[:-1],
        b"\0\2" + bytes.fromhex(VERSION_0[_ONGOING])[2:],  # a version that is not known
        bytes.fromhex(VERSION_0[_COMPLETE].replace("60 04", "60 08")),  # a state that is not known
    ],
)
def test_other_bytes_are_malformed(damaged):
    with pytest.raises(Malformed):
        transaction_state.read_value(damaged)


@given(
    st.builds(
        TransactionMetadata,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(-1, 32767),
        timeout_ms=st.integers(1, 2**31 - 1),
        last_update_ms=st.integers(0, 2**62),
        state=st.sampled_from([state for state in TransactionState if state is not EMPTY]),
        partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 5)), max_size=8),
        start_ms=st.integers(-1, 2**62),
        previous_producer_id=st.integers(-1, 2**62),
        next_producer_id=st.integers(-1, 2**62),
        last_producer_epoch=st.just(-1),  # not stored
        client_version=st.just(2),
    )
)
def test_everything_comes_back(metadata):
    assert transaction_state.read_value(transaction_state.transaction_value(metadata)) == metadata
