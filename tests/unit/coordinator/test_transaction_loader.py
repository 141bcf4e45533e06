"""Reading `__transaction_state` back: the last record of each id, tombstones, and rubbish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.runtime.partitioned_store import single_record
from kafkalite.coordinator.transaction.transaction_state import TransactionMetadata, transaction_key, transaction_value
from kafkalite.coordinator.transaction_store import TransactionLoader
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.compression import GZIP
from kafkalite.record.record import read_body

FIRST = TransactionMetadata(1, 0, 60_000, 5)
SECOND = TransactionMetadata(1, 1, 60_000, 6)


def batch(*records, **attributes):
    return memoryview(build_batch([NewRecord(key, value, timestamp=5) for key, value in records], **attributes))


def stored(name, metadata):
    return transaction_key(name), transaction_value(metadata)


def load(*batches):
    loader = TransactionLoader()
    for each in batches:
        loader.read([each])
    list(loader.finish())
    return loader.transactions


def test_the_last_record_of_each_id_counts():
    assert load(batch(stored("a", FIRST), stored("b", FIRST)), batch(stored("a", SECOND))) == {"a": SECOND, "b": FIRST}


def test_a_tombstone_deletes_an_id_which_may_come_back():
    gone = batch((transaction_key("a"), None))
    assert load(batch(stored("a", FIRST)), gone) == {}
    assert load(gone, batch(stored("a", SECOND))) == {"a": SECOND}


def test_compressed_batches_of_a_tool_are_read():
    assert load(batch(stored("a", FIRST), codec=GZIP)) == {"a": FIRST}


@pytest.mark.parametrize(
    "bad",
    [
        batch((b"\0\7new", b"?")),  # a key of a later version
        batch((None, b"?")),
        batch((transaction_key("x"), b"\0\7?")),  # a value of a later version
        batch((transaction_key("x"), b"")),
        batch((b"", b"?")),
        batch(stored("x", FIRST), control=True),
        memoryview(b"\0" * 100),
    ],
)
def test_what_cannot_be_read_does_not_keep_the_rest_away(bad):
    assert load(batch(stored("a", FIRST)), bad, batch(stored("b", SECOND))) == {"a": FIRST, "b": SECOND}


def test_others_get_their_turn():
    loader = TransactionLoader()
    loader.read(batch(stored(f"t{number}", FIRST)) for number in range(2 * TransactionLoader.keys_per_turn + 1))
    assert sum(1 for _ in loader.finish()) == 2
    assert len(loader.transactions) == 2 * TransactionLoader.keys_per_turn + 1


@given(
    key=st.binary(min_size=1, max_size=70),
    value=st.none() | st.binary(max_size=200) | st.binary(min_size=8_100, max_size=8_300),
    headers=st.lists(st.tuples(st.just("h"), st.binary(max_size=3)), max_size=1),
    timestamp=st.integers(0, 2**40),
    cut=st.integers(0, 3),
)
def test_a_record_alone_in_its_batch_is_read_as_any_other(key, value, headers, timestamp, cut):
    whole = build_batch([NewRecord(key, value, headers, timestamp)])
    short = memoryview(whole)[: len(whole) - cut]
    fast = single_record(short)
    assert fast is None or (fast == (key, value) and not cut and not headers)
    if value is not None and len(key) < 64 and len(value) < 8_000 and not headers and not cut:
        assert fast is not None


@given(st.binary(max_size=120), st.data())
def test_rubbish_is_never_taken_for_a_record_that_is_not_there(rubbish, data):
    batch = bytearray(build_batch([NewRecord(b"key", b"value")]))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for each in (memoryview(rubbish), memoryview(batch)):
        single = single_record(each)
        if single is not None:
            (record,) = read_body(parse_header(each), each[61:])
            assert (record.key, record.value) == single
