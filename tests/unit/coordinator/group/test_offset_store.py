"""Offsets against a naive model: plain and transactional commits, markers, removals, slow and failing appends, and a
reload from the log."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.offset_store import ExpirationCondition, OffsetAndMetadata, OffsetStore
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.record.batch import build_batch
from kafkalite.record.record import Record

PARTITIONS = [("orders", 0), ("orders", 1), ("clicks", 0)]
PRODUCERS = [7, 8, 9]
PLAIN = -1
COMMIT, ABORT = 1, 0


class Log:
    """The log of a partition of `__consumer_offsets`: the truth."""

    def __init__(self):
        self.entries = []  # (producer id, partition, offset or None) of records; (producer id, kind) of markers

    def batches(self):
        for at, entry in enumerate(self.entries):
            producer_id, what, *rest = entry
            if not rest:
                key, value = struct.pack(">hh", 0, what), struct.pack(">hi", 0, 0)
            else:
                key = record_codec.offset_key("g", *what)
                value = None if rest[0] is None else record_codec.offset_value(OffsetAndMetadata(rest[0], -1, "", 5))
            attributes = {"producer_id": producer_id, "producer_epoch": 0} if producer_id != PLAIN else {}
            yield memoryview(
                build_batch(
                    [Record(0, 5, key, value, ())],
                    base_offset=at,
                    transactional=producer_id != PLAIN,
                    control=not rest,
                    **attributes,
                )
            )

    def expected(self):
        """The offsets and the pending ones by producer, by the position of each record in the log."""
        visible, pending, removed = {}, {}, {}
        for at, (producer_id, what, *rest) in enumerate(self.entries):
            if not rest:
                for partition, (position, offset) in pending.pop(producer_id, {}).items():
                    is_newest = position > visible.get(partition, (-1,))[0] and position > removed.get(partition, -1)
                    if what == COMMIT and is_newest:
                        visible[partition] = position, offset
            elif rest[0] is None:
                visible.pop(what, None)
                removed[what] = at
            elif producer_id == PLAIN:
                visible[what] = at, rest[0]
            else:
                pending.setdefault(producer_id, {})[what] = at, rest[0]
        transactions = {
            producer_id: alive
            for producer_id, rows in pending.items()
            if (alive := {each: offset for each, (at, offset) in rows.items() if at > removed.get(each, -1)})
        }
        return {partition: offset for partition, (_, offset) in visible.items()}, transactions


class Manager:
    """Appends to the log as `OffsetManager` does; an append ends at once or later, well or badly."""

    def __init__(self, log, store):
        self.log = log
        self.store = store
        self.held = []

    def commit(self, producer_id, partition, offset, is_slow, fails):
        committed = OffsetAndMetadata(offset, -1, "", 5, order=self.store.next_order())
        transaction = None if producer_id == PLAIN else self.store.begin_append(producer_id)
        if not fails:
            self.log.entries.append((producer_id, partition, offset))
        if is_slow:
            self.store.prepare_commit(partition, committed.order)

        def done():
            is_kept = not is_slow or self.store.complete_commit(partition, committed.order)
            if is_kept and not fails:
                if transaction is None:
                    self.store.put(*partition, committed)
                else:
                    self.store.put_in_transaction(transaction, *partition, committed)
            if transaction is not None:
                self.store.end_append(transaction)

        if is_slow:
            self.held.append(done)
        else:
            done()

    def end(self, producer_id, kind):
        self.log.entries.append((producer_id, kind))
        self.store.end_transaction(producer_id, is_committed=kind == COMMIT)

    def remove(self, partition):
        known = self.store.known([partition])
        self.store.remove(known)
        self.log.entries += [(PLAIN, each, None) for each in known]

    def finish_appends(self, order):
        order.shuffle(self.held)
        while self.held:
            self.held.pop()()


def seen(store):
    visible = {each: store.get(*each).offset for each in store}
    transactions = {
        producer_id: {each: committed.offset for each, committed in transaction.offsets.items()}
        for producer_id, transaction in store.transactions.items()
    }
    return visible, transactions


def reloaded(log):
    loader = GroupLoader()
    loader.read(log.batches())
    assert list(loader.finish()) == []
    return loader.offsets.get("g", OffsetStore())


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            st.sampled_from([PLAIN, *PRODUCERS]),
            st.sampled_from(PARTITIONS),
            st.booleans(),  # slow
            st.sampled_from([False, False, False, True]),  # fails
        ),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.sampled_from([COMMIT, ABORT])),
        st.tuples(st.just("remove"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("finish appends"), st.integers(0, 99)),
        st.just(("reload",)),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(steps)
def test_memory_and_a_reload_agree_with_the_log(story):
    log = Log()
    manager = Manager(log, OffsetStore())
    for number, (verb, *what) in enumerate([*story, ("finish appends", 0), ("reload",)]):
        if verb == "commit":
            producer_id, partition, is_slow, fails = what
            manager.commit(producer_id, partition, number, is_slow, fails)
        elif verb == "end":
            manager.end(*what)
        elif verb == "remove":
            manager.remove(*what)
        elif verb == "finish appends":
            manager.finish_appends(random.Random(what[0]))
        else:
            manager = Manager(log, reloaded(log))
        if not manager.held:
            assert seen(manager.store) == log.expected()
            visible, transactions = log.expected()
            assert manager.store.is_empty == (not visible and not transactions)
            for partition in PARTITIONS:
                assert manager.store.is_pending(partition) == any(partition in rows for rows in transactions.values())
        assert all(each.offsets or each.append_count for each in manager.store.transactions.values())


@pytest.fixture
def store():
    return OffsetStore()


def committed(store, offset=1):
    return OffsetAndMetadata(offset, -1, "", 0, order=store.next_order())


def in_transaction(store, producer_id, *partitions):
    transaction = store.begin_append(producer_id)
    for partition in partitions:
        store.put_in_transaction(transaction, *partition, committed(store))
    store.end_append(transaction)


def test_a_pending_offset_of_a_transaction_keeps_the_old_one_from_expiring(store):
    store.put("orders", 0, committed(store))
    store.put("orders", 1, committed(store))
    in_transaction(store, 7, ("orders", 0))
    condition = ExpirationCondition(None)
    assert store.expired(condition, 100, 100) == [("orders", 1)]
    store.end_transaction(7, is_committed=False)
    assert store.expired(condition, 100, 100) == [("orders", 0), ("orders", 1)]


def test_partitions_of_transactions_are_known_before_their_marker(store):
    in_transaction(store, 7, ("orders", 0), ("clicks", 0))
    in_transaction(store, 8, ("orders", 0))
    assert store.known(PARTITIONS) == [("orders", 0), ("clicks", 0)]
    assert store.of_topic("orders") == [("orders", 0)]
    store.put("orders", 0, committed(store))
    assert store.pending_partitions() == [("clicks", 0)]
    assert not store.is_empty


def test_a_commit_after_a_removal_is_not_taken_for_the_one_before_it(store):
    store.prepare_commit(("orders", 0), 1)
    store.remove([("orders", 0)])
    store.prepare_commit(("orders", 0), 2)
    assert not store.complete_commit(("orders", 0), 1)
    assert store.complete_commit(("orders", 0), 2)
    assert store.is_empty
