"""Reading `__consumer_offsets` back: tombstones, transactions of another broker, and rubbish."""

import struct

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.protocol.records import GroupMetadataValue, MemberMetadata
from kafkalite.record.batch import build_batch
from kafkalite.record.message_set import build_message, build_set
from kafkalite.record.record import Record

COMMIT, ABORT = 1, 0


class OffsetsLog:
    """A partition of `__consumer_offsets` in the making."""

    def __init__(self):
        self.batches = []

    def write(self, *records, **attributes):
        rows = [Record(0, 5, key, value, ()) for key, value in records]
        self.batches.append(memoryview(build_batch(rows, base_offset=len(self.batches), **attributes)))

    def commits(self, offset, topic="orders", index=0, **attributes):
        value = record_codec.offset_value(OffsetAndMetadata(offset, 0, "", 5))
        self.write((record_codec.offset_key("g", topic, index), value), **attributes)

    def forgets(self, topic="orders", index=0, **attributes):
        self.write((record_codec.offset_key("g", topic, index), None), **attributes)

    def in_transaction(self, producer_id):
        return {"transactional": True, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}

    def ends(self, producer_id, kind):
        marker = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
        self.write(marker, transactional=True, control=True, producer_id=producer_id, producer_epoch=0)

    def read(self):
        loader = GroupLoader()
        loader.read(self.batches)
        list(loader.finish())
        return loader

    def read_in_turns(self):
        """The same, taken in batch by batch and decoded with rests."""
        loader = GroupLoader()
        for batch in self.batches:
            loader.read([batch])
        rests = sum(1 for _ in loader.finish())
        return loader, rests

    def offsets(self):
        store = self.read().offsets.get("g")
        return {} if store is None else {each: store.get(*each).offset for each in store}


@pytest.fixture
def log():
    return OffsetsLog()


def test_the_last_word_counts_and_tombstones_delete(log):
    log.commits(1)
    log.commits(2, index=1)
    log.commits(3)
    log.forgets(index=1)
    log.forgets(index=7)
    assert log.offsets() == {("orders", 0): 3}


def test_a_tombstone_that_comes_in_a_later_turn_deletes_all_the_same(log):
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None)
    log.commits(1)
    log.write((record_codec.group_key("g"), record_codec.group_value(value)))
    assert list(log.read().groups) == ["g"]
    log.forgets()
    log.write((record_codec.group_key("g"), None))
    loader, _ = log.read_in_turns()
    assert loader.groups == {}
    assert loader.offsets == {}


def test_what_is_decoded_is_decoded_once_and_with_rests(log):
    for index in range(2 * GroupLoader.keys_per_turn):
        log.commits(index, index=index)
        log.commits(index + 1, index=index)
    loader, rests = log.read_in_turns()
    assert rests == 2
    assert [loader.offsets["g"].get("orders", index).offset for index in (0, 999, 1999)] == [1, 1000, 2000]


def test_offsets_of_a_transaction_count_from_its_commit_marker_on(log):
    log.commits(1, **log.in_transaction(9))
    assert log.offsets() == {}
    log.ends(9, COMMIT)
    assert log.offsets() == {("orders", 0): 1}
    log.commits(2, **log.in_transaction(9))
    log.ends(9, ABORT)
    log.commits(3, **log.in_transaction(9))
    log.forgets(**log.in_transaction(9))
    log.ends(9, COMMIT)
    assert log.offsets() == {("orders", 0): 1}


def test_a_transaction_never_turns_a_later_commit_back(log):
    log.commits(1, **log.in_transaction(9))
    log.commits(1, index=1, **log.in_transaction(9))
    log.commits(5)
    log.ends(9, COMMIT)
    log.ends(8, COMMIT)
    assert log.offsets() == {("orders", 0): 5, ("orders", 1): 1}


def test_rubbish_is_passed_over_and_what_is_good_is_kept(log):
    log.commits(1)
    log.write((None, b"no key"))
    log.write((b"", b"no version"))
    log.write((b"\0\1short", b""))
    log.write((b"\0\7some other protocol's", b"record"))
    log.write((record_codec.offset_key("g", "orders", 0), b"\0\x09from the future"))
    log.write((record_codec.group_key("g"), b"\0\3"))
    log.write((record_codec.offset_key("g", "orders", 1), b"\0\3" + bytes(50)))
    torn = bytearray(log.batches[0])
    torn[-3] ^= 0xFF
    log.batches.append(memoryview(torn))
    log.batches.append(memoryview(b"\xff" * 100))
    log.commits(2, index=2)
    assert log.offsets() == {("orders", 0): 1, ("orders", 1): 0, ("orders", 2): 2}
    assert log.read().groups == {}


def test_many_batches_may_come_in_one_view_and_compressed(log):
    log.commits(1)
    log.commits(2, index=1, codec=1)
    log.batches = [memoryview(b"".join(log.batches))]
    assert log.offsets() == {("orders", 0): 1, ("orders", 1): 2}


def test_a_loaded_commit_is_overtaken_by_the_next(world):
    for offset in range(1, 6):
        world.commit({("orders", 1): offset})
    world.restart()
    assert world.offsets() == {("orders", 1): 5}
    world.commit({("orders", 1): 3})  # somebody seeks back
    assert world.offsets() == {("orders", 1): 3}


def test_members_come_back_stable_with_a_fresh_session(world):
    (a, b), generation = world.stable("a", "b")
    before = world.describe()
    world.passes(9_999)
    world.restart()
    assert world.describe() == before
    world.passes(9_999)
    assert world.heartbeat(a, generation) == ErrorCode.NONE
    assert world.sync(b, generation).answer.assignment == b"b"
    assert world.join(b).answer.leader == a


def test_records_of_corrupt_groups_do_no_harm(world):
    member = MemberMetadata(member_id="m", group_instance_id="i", session_timeout=10_000)
    twin = MemberMetadata(member_id="n", group_instance_id="i", session_timeout=-5)
    value = GroupMetadataValue(
        protocol_type="", generation=2**31 - 1, protocol=None, leader="gone", members=[member, member, twin]
    )
    world.log.append((world.store.partition_for("g"), record_codec.group_key("g"), record_codec.group_value(value)))
    world.restart()
    assert [each.member_id for each in world.describe().members] == ["m"]
    assert world.heartbeat("m", 2**31 - 1, instance="i") == ErrorCode.NONE
    world.leave("m")
    assert world.state() == "Empty"
    world.restart()
    assert world.join(version=3).answer.generation_id == 2  # generations begin again at 1


def test_loading_twice_is_loading_afresh(world):
    world.commit({("orders", 1): 1})
    partition = world.store.partition_for("g")
    batches = world.batches(partition)
    world.commit({("orders", 1): 2})
    world.load(partition, batches)
    assert world.offsets() == {("orders", 1): 1}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_what_brokers_of_before_0_11_wrote_counts_too(log, magic, codec):
    """Message sets of v0 and v1, wrappers among them, and behind them batches of today."""

    def words(offset, index):
        value = record_codec.offset_value(OffsetAndMetadata(offset, -1, "old", 5))
        return record_codec.offset_key("g", "orders", index), value

    gone = record_codec.offset_key("g", "orders", 1), None
    rows = [words(1, 0), words(2, 1), words(3, 2), words(4, 0), gone]
    entries = [build_set([(i, 5, *row) for i, row in enumerate(rows)], magic, codec=codec)]
    if codec == 0:
        entries = [build_message(i, *row, 5, magic=magic) for i, row in enumerate(rows)]
    log.batches += [memoryview(entry) for entry in entries]
    assert log.offsets() == {("orders", 0): 4, ("orders", 2): 3}
    log.commits(9, index=2)
    log.batches.append(memoryview(bytearray(entries[0])[:-1]))  # a torn one is passed over
    assert log.offsets() == {("orders", 0): 4, ("orders", 2): 9}
