"""A crash after any call of a replacement: the next start finds the old content or the new one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.log.faulty_files import Ended, Killed, PowerCut
from tests.support.log.replacement_world import DELAY_MS, FILES, OLD, World

pytestmark = pytest.mark.thorough

End = type[PowerCut] | type[Killed]
ENDS = pytest.mark.parametrize(
    ("by", "draws"), [(PowerCut, 2), (Killed, 1), pytest.param(PowerCut, 8, marks=pytest.mark.long)]
)


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[str]:
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="kafkalite-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def ends_of(
    memory_disk: str, deed: Callable[[World], object], by: End, draws: int, ordered: bool, stride: int
) -> Iterator[tuple[World, int]]:
    """The world after an end at each call of `deed`, every `stride`-th, in `draws` of the states that are possible."""
    at = 1
    was_reached = True
    while was_reached:
        for number in range(draws):
            world = World(f"{memory_disk}/{by.__name__}-{at}-{number}", ordered=ordered)
            world.write(10, producer_id=7, producer_epoch=0)
            world.flush()
            world.files.end_at, world.files.end_by = world.files.calls + at, by
            try:
                deed(world)
            except Ended:
                was_reached = True
            else:
                was_reached = False
                world.files.end_at = 0
            world.files.ended = by
            if by is Killed:
                world.kill()
            else:
                world.cut_power(Random(97 * at + number))
            yield world, at
            world.stop()
            shutil.rmtree(world.root)
        at += stride


NEW = [0, 1, 3, 8, 9]
# of the last sources, which lie behind what is left, old content may stay
ALLOWED = [OLD, NEW, [0, 1, 3, 6, 7, 8, 9], [0, 1, 3, 4, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
def test_whatever_the_last_call_was_the_old_content_is_there_or_the_new(
    memory_disk: str, by: End, draws: int, ordered: bool
) -> None:
    def deed(world: World) -> None:
        world.replace([2, 4, 6], [3])
        world.work()
        world.clock.advance(DELAY_MS)
        world.work()

    seen = set()
    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 1):
        found = world.offsets()
        assert found in ALLOWED, f"ended at call {at}: {found}"
        assert world.ends != [None] or found == NEW, f"ended at call {at}: it was over, and there is {found}"
        assert world.log.end_offset == 10
        assert world.suffixes() <= FILES
        producer = world.log.producers.get(7)
        assert producer is not None and producer.last_sequence == 9
        world.log.record_counts.current()
        world.work()
        assert world.log.record_counts.current().live_records == len(found)
        seen.add(len(found))
        world.kill()
        assert world.offsets() == found
    assert seen >= {len(OLD), len(NEW)}


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
def test_several_segments_take_the_place_of_others(memory_disk: str, by: End, draws: int, ordered: bool) -> None:
    """One has no room for what is left. Two of them have the names of sources."""

    def deed(world: World) -> None:
        world.replace([2, 4, 6], [3, 5, 6], batches_max=1)
        world.work()
        world.clock.advance(DELAY_MS)
        world.work()

    new = [0, 1, 3, 5, 6, 8, 9]
    seen = set()
    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 1):
        found = world.offsets()
        assert found in (OLD, new), f"ended at call {at}: {found}"
        assert world.ends != [None] or found == new, f"ended at call {at}: it was over, and there is {found}"
        assert world.log.end_offset == 10
        assert world.suffixes() <= FILES
        seen.add(len(found))
        world.kill()
        assert world.offsets() == found
    assert seen == {len(OLD), len(new)}


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
def test_groups_one_behind_the_other(memory_disk: str, by: End, draws: int, ordered: bool) -> None:
    def deed(world: World) -> None:
        for bases, left in (([0, 2], [1]), ([4], []), ([6], [7])):
            world.replace(bases, left)
            world.work()

    allowed = [OLD, [1, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 6, 7, 8, 9], [1, 7, 8, 9]]
    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 2):
        found = world.offsets()
        assert found in allowed, f"ended at call {at}: {found}"
        assert len(found) <= {0: 10, 1: 7, 2: 5, 3: 4}[world.ends.count(None)]
        assert world.log.end_offset == 10


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
@pytest.mark.parametrize("how", ["swap", "partly cleaned", "partly deleted", "partly live"])
def test_a_start_that_finishes_it_may_end_anywhere_too(
    memory_disk: str, how: str, by: End, draws: int, ordered: bool
) -> None:
    """And the start after it finds no mix."""

    def deed(world: World) -> None:
        end_at, world.files.end_at = world.files.end_at - world.files.calls, 0
        world.replace([2, 4, 6], [3, 5] if how == "partly cleaned" else [3])
        if how == "partly cleaned":
            world.files.fail("rename", ".log.cleaned")
            world.log.segment_list.background = lambda job, done: None  # and nobody tidies up
            world.work()
        else:
            world.work(1)
            after = {"swap": 0, "partly deleted": 4, "partly live": 14}[how]
            world.files.fail("rename", "", after=after)
            world.work()
        world.stop()
        world.files.ended = None
        world.files = world.files.kill()
        world.files.end_at, world.files.end_by = world.files.calls + end_at, by
        world.open()

    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 1):
        found = world.offsets()
        allowed = [OLD] if how == "partly cleaned" else ALLOWED[1:]
        assert found in allowed, f"ended at call {at}: {found}"
        assert world.suffixes() <= FILES


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
def test_giving_up_may_end_anywhere_too(memory_disk: str, by: End, draws: int, ordered: bool) -> None:
    """No index of what was given up stands beside the old segment."""

    def deed(world: World) -> None:
        end_at, world.files.end_at = world.files.end_at - world.files.calls, 0
        world.replace([2, 4, 6], [3, 5])
        world.work(1)
        world.log.flusher.failure = "the disk of another hand has failed"
        world.files.end_at = world.files.calls + end_at
        world.work()

    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 1):
        found = world.offsets()
        assert found in (OLD, [0, 1, 3, 5, 6, 7, 8, 9]), f"ended at call {at}: {found}"
        assert world.suffixes() <= FILES


@pytest.mark.parametrize("ordered", [True, False])
@ENDS
def test_a_truncation_that_makes_it_give_way_may_end_anywhere_too(
    memory_disk: str, by: End, draws: int, ordered: bool
) -> None:
    def deed(world: World) -> None:
        end_at, world.files.end_at = world.files.end_at - world.files.calls, 0
        world.options = world.options._replace(recovery_point=3)
        world.replace([2, 4, 6], [3])
        world.work(1)
        assert ".swap" in world.suffixes()
        world.files.end_at = world.files.calls + end_at
        world.log.truncate_to(3)
        world.ends.append(None)  # it was told that it is cut
        world.work()

    for world, at in ends_of(memory_disk, deed, by, draws, ordered, 1):
        found = world.offsets()
        is_cut = None in world.ends
        assert found == [0, 1, 2] or not is_cut, f"ended at call {at}: {found}"
        assert found == OLD[: len(found)] or found[:3] == [0, 1, 3], f"ended at call {at}: {found}"
        assert world.suffixes() <= FILES
