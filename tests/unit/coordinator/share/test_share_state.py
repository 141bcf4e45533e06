"""The durable state of a share partition: merged ranges, records, epochs that fence."""

from __future__ import annotations

import itertools
import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.coordinator.share.share_state import (
    applied,
    combined,
    deleted,
    initialized,
    read_by,
    read_key,
    refreshed,
    written,
)
from kafkalite.replication.share.durable_state import SharePartitionKey, StateRange, StateWrite

KEY = SharePartitionKey("group", UUID(int=7), 3)
RANGES = st.builds(
    lambda first, size, state, count: StateRange(first, first + size, state, count),
    st.integers(0, 30),
    st.integers(0, 10),
    st.sampled_from((0, 2, 4)),
    st.integers(1, 4),
)


class Story:
    """One share partition and its log."""

    def __init__(self, updates_per_snapshot=3):
        self.records = []
        self.state = None
        self.now_ms = 1000
        self.updates_per_snapshot = updates_per_snapshot

    def log(self, record):
        if record is not None:
            key, kind = read_key(record.key)
            assert key == KEY
            self.records.append((kind, record.value))
            self.state = applied(self.state, kind, record.value)
            assert self.state == record.state
        return record

    def initialize(self, state_epoch=1, start_offset=-1):
        return self.log(initialized(KEY, self.state, state_epoch, start_offset, self.now_ms))

    def write(self, *ranges, start=-1, count=-1, state_epoch=1, leader_epoch=5):
        write = StateWrite(state_epoch, leader_epoch, start, count, [StateRange(*each) for each in ranges])
        return self.log(written(KEY, self.state, write, self.updates_per_snapshot, self.now_ms))

    def read(self, leader_epoch):
        return self.log(read_by(KEY, self.state, leader_epoch, self.updates_per_snapshot, self.now_ms))

    def replayed(self):
        state = None
        for kind, value in self.records:
            state = applied(state, kind, value)
        return state


@given(st.lists(RANGES, max_size=12), st.integers(-1, 20))
def test_the_higher_delivery_count_wins_and_then_the_higher_state(ranges, start):
    expected = {}
    for first, last, state, count in ranges:
        for offset in range(max(first, start), last + 1):
            expected[offset] = max(expected.get(offset, (0, 0)), (count, state))
    joined = combined(ranges, start)
    found = {at: (each.delivery_count, each.state) for each in joined for at in range(each.first, each.last + 1)}
    assert found == expected
    for before, after in itertools.pairwise(joined):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]


def test_a_group_begins_with_a_snapshot_at_no_offset():
    story = Story()
    story.initialize()
    assert story.records[0][0] == 0
    assert story.state.start_offset == -1
    assert (story.state.snapshot_epoch, story.state.state_epoch, story.state.leader_epoch) == (0, 1, 0)
    story.initialize(state_epoch=4, start_offset=10)
    assert (story.state.snapshot_epoch, story.state.state_epoch, story.state.start_offset) == (1, 4, 10)
    with pytest.raises(KafkaError) as refusal:
        story.initialize(state_epoch=3)
    assert refusal.value.code == ErrorCode.FENCED_STATE_EPOCH


def test_updates_are_merged_and_followed_by_a_snapshot():
    story = Story(updates_per_snapshot=2)
    story.initialize(start_offset=0)
    story.write((0, 9, 0, 1))
    story.write((5, 9, 2, 1), start=2)
    assert story.state.ranges == ((2, 4, 0, 1), (5, 9, 2, 1))
    assert [kind for kind, _ in story.records] == [0, 1, 1]
    story.write((2, 4, 2, 2))
    assert [kind for kind, _ in story.records] == [0, 1, 1, 0]
    assert story.state.ranges == ((2, 4, 2, 2), (5, 9, 2, 1))
    assert story.state.snapshot_epoch == 1
    assert story.state.update_count == 0


def test_older_leaders_and_older_states_are_fenced():
    story = Story()
    story.initialize(state_epoch=2, start_offset=0)
    assert story.read(5) is not None
    assert story.read(5) is None
    assert story.state.leader_epoch == 5
    with pytest.raises(KafkaError) as refusal:
        story.read(4)
    assert refusal.value.code == ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as refusal:
        story.write((0, 0, 2, 1), leader_epoch=4, state_epoch=2)
    assert refusal.value.code == ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as refusal:
        story.write((0, 0, 2, 1), state_epoch=1)
    assert refusal.value.code == ErrorCode.FENCED_STATE_EPOCH
    story.write((0, 0, 2, 1), leader_epoch=-1, state_epoch=-1)
    story.initialize(state_epoch=3)
    with pytest.raises(KafkaError):
        story.read(4)  # the new beginning does not let an old leader return


def test_a_tombstone_ends_the_share_partition():
    story = Story()
    story.initialize()
    story.log(deleted(KEY))
    assert story.state is None
    assert story.replayed() is None


def test_records_of_other_versions_are_malformed_and_of_other_kinds_skipped():
    story = Story()
    record = story.initialize()
    with pytest.raises(Malformed):
        applied(None, 0, b"\0\1" + record.value[2:])
    with pytest.raises(Malformed):
        applied(None, 0, record.value[:-1])
    assert read_key(b"\0\2" + record.key[2:]) is None


@pytest.mark.parametrize("seed", range(50))
def test_reading_the_log_anew_gives_the_same_state(seed):
    rng = random.Random(seed)
    story = Story(updates_per_snapshot=rng.choice((0, 1, 3, 10)))
    story.initialize(start_offset=0)
    leader_epoch = 0
    for _ in range(40):
        story.now_ms += 10
        choice = rng.random()
        if choice < 0.1:
            leader_epoch += 1
            story.read(leader_epoch)
        elif choice < 0.15:
            story.initialize(state_epoch=story.state.state_epoch + 1, start_offset=rng.randrange(50))
        elif choice < 0.2:
            story.log(refreshed(KEY, story.state, story.now_ms))
        else:
            first = rng.randrange(100)
            story.write(
                (first, first + rng.randrange(5), rng.choice((0, 2, 4)), rng.randrange(1, 5)),
                start=rng.choice((-1, story.state.start_offset + rng.randrange(3))),
                state_epoch=-1,
                leader_epoch=leader_epoch,
            )
    assert story.replayed() == story.state
