"""The swap lets the cleaner replace only what it was handed, one replacement at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.segment_replacement import ReplacementRefused
from tests.support.log.replacement_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(str(tmp_path / "world"))
    world.write(10)
    world.flush()
    yield world
    world.log.abandon()


def test_sealed_segments_that_end_below_the_limit_are_handed_out(world: World) -> None:
    swap, segments = world.log.swap, world.log.segments
    assert [segment.base_offset for segment in segments] == [0, 2, 4, 6, 8]
    for upto, bases in ((0, []), (1, []), (2, [0]), (5, [0, 2]), (8, [0, 2, 4, 6]), (100, [0, 2, 4, 6])):
        assert [source.base_offset for source in swap.clean_sources(upto)] == bases
    source = swap.clean_sources(4)[1]
    assert (source.base_offset, source.end_offset, source.size_bytes) == (2, 4, segments[1].size_bytes)


def test_only_segments_of_the_latest_call_are_replaced(world: World) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.log.swap.clean_sources(4)  # a later pass, which does not reach the segment at 4
    world.log.swap.replace(cleaned, world.ends.append)
    (refusal,) = world.ends
    assert isinstance(refusal, ReplacementRefused) and "has changed" in str(refusal)
    assert ".cleaned" in world.suffixes(), "the files stay with the cleaner"


def test_while_one_is_under_way_nothing_is_handed_out_and_another_is_refused(world: World) -> None:
    swap = world.log.swap
    cleaned = world.write_cleaned([2, 4], [3])
    swap.replace(cleaned, world.ends.append)
    assert swap.is_under_way and world.ends == []
    with pytest.raises(StorageError, match="is not over yet"):
        swap.clean_sources(8)
    swap.replace(cleaned, world.ends.append)
    assert isinstance(world.ends[0], ReplacementRefused)
    world.work()
    assert world.ends[1:] == [None] and not swap.is_under_way
    assert [source.base_offset for source in swap.clean_sources(8)] == [0, 2, 6]


def test_a_truncation_takes_back_the_segments_that_it_cuts(world: World) -> None:
    world.log.swap.clean_sources(8)
    world.log.truncate_to(5)
    refused = world.write_cleaned([0, 2], [1])  # hands out again
    world.log.swap.cancel_for_truncation(3)  # the segment at 2 may be cut from now on
    world.log.swap.replace(refused, world.ends.append)
    assert isinstance(world.ends[0], ReplacementRefused)


def test_a_closed_or_failed_log_replaces_nothing(world: World) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.log.flusher.failure = "the disk is broken"
    world.log.swap.replace(cleaned, world.ends.append)
    assert isinstance(world.ends[0], StorageError) and "the disk is broken" in str(world.ends[0])
    world.log.flusher.failure = None
    world.log.swap.close()
    world.log.swap.replace(cleaned, world.ends.append)
    assert isinstance(world.ends[1], ReplacementRefused) and "is closed" in str(world.ends[1])
