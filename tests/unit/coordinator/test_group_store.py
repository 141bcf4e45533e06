"""The groups of the partitions that this broker owns: which error a request gets, and what leaves with a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import fits_string, partition_for_id
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.offset_manager import TOMBSTONES_PER_BATCH_MAX

NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
LOADING, NOT_AVAILABLE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
MOST_CHARACTERS = {"x": 32_767, "é": 16_383, "€": 10_922, "😀": 8_191}
GROUPS = ("g", "h", "i", "j")


@given(st.one_of(st.integers(most - 20, most + 20).map(char.__mul__) for char, most in MOST_CHARACTERS.items()))
def test_a_string_fits_if_its_bytes_do(text):
    assert fits_string(text) == (len(text.encode()) <= 32_767)


def test_the_state_of_a_partition_decides_the_error_of_its_groups(world):
    store = world.store
    partition = store.partition_for("g")
    assert store.unknown_group_error("g") == NONE, "it simply does not exist"
    store.unload(partition)
    assert store.unknown_group_error("g") == NOT_COORDINATOR
    store.add_loading_partition(partition)
    assert store.unknown_group_error("g") == LOADING
    world.load(partition, [])
    assert store.unknown_group_error("g") == NONE and not store.loading
    store.close()
    assert store.unknown_group_error("g") == NOT_AVAILABLE


@pytest.mark.parametrize("group_id", ["", "x" * 32_768])
def test_an_id_that_is_none_is_invalid_wherever_its_partition_is(world, group_id):
    world.store.close()
    assert world.store.find(group_id) == (None, ErrorCode.INVALID_GROUP_ID)


def test_the_empty_id_is_one_for_offsets_only(world):
    world.store.by_id[""] = group = world.store.new_group("")
    assert world.store.find("", may_be_empty=True) == (group, NONE)
    assert world.store.find("") == (None, ErrorCode.INVALID_GROUP_ID)


def test_groups_leave_with_their_partition_and_come_back_with_it(world):
    assert {partition_for_id(group, 3) for group in GROUPS} == {0, 1, 2}
    for number, group in enumerate(GROUPS):
        world.commit({("orders", 0): number}, group=group)
    lost = world.store.partition_for("g")
    staying = [group for group in GROUPS if world.store.partition_for(group) != lost]
    world.store.unload(lost)
    assert [group.group_id for group in world.store] == staying
    world.load(lost, world.batches(lost))
    assert {group: world.offsets(group) for group in GROUPS} == {
        group: {("orders", 0): number} for number, group in enumerate(GROUPS)
    }


def test_members_that_wait_are_told_that_the_partition_is_gone(world):
    world.join(version=3)
    waiting = world.join(version=3, client="other")
    assert waiting.waits
    world.store.unload(world.store.partition_for("g"))
    assert waiting.error == NOT_COORDINATOR and not world.coordinator.timer_count


def test_a_loaded_partition_replaces_what_was_there(world):
    world.commit({("orders", 0): 5})
    partition = world.store.partition_for("g")
    world.load(partition, [])
    assert world.store.find("g") == (None, NONE)


def test_after_the_end_nothing_is_loaded(world):
    world.store.close()
    world.store.add_loading_partition(0)
    world.store.load(0, GroupLoader())
    assert not world.store.owned and not world.store.loading
    world.store.close()


def test_the_last_offset_takes_its_group_along_in_batches_that_fit(world):
    count = TOMBSTONES_PER_BATCH_MAX + 1
    world.topics["many"] = count
    world.commit({("many", index): 1 for index in range(count)})
    appended = []
    group, _ = world.store.find("g")

    def append(partition, records, done):
        appended.append((partition, records))
        done(NONE)

    world.store.append = append
    assert world.delete("g") == {"g": NONE}
    assert world.store.find("g") == (None, NONE)
    assert [(partition, len(records)) for partition, records in appended] == [
        (group.partition, TOMBSTONES_PER_BATCH_MAX),
        (group.partition, 1),
    ]
    assert all(value is None for _, records in appended for _, value in records)
