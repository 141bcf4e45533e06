"""A compacted segment takes the place of others: what readers see, what may come between, what is refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import StorageError
from kafkalite.log.partition.segment_replacement import ReplacementRefused
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.record import read_records
from tests.support.log.faulty_files import Ended, Killed
from tests.support.log.plain_compaction import compact
from tests.support.log.replacement_world import DELAY_MS, FILES, OLD, START_MS, World


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[str]:
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="kafkalite-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def world(memory_disk: str) -> Iterator[World]:
    world = World(f"{memory_disk}/world")
    world.write(10)
    world.flush()
    assert [segment.base_offset for segment in world.log.segments] == [0, 2, 4, 6, 8]
    yield world
    world.log.abandon()


def test_it_takes_the_place_of_its_sources_and_their_files_go_later(world: World) -> None:
    world.replace([2, 4], [3])
    world.work()
    assert world.ends == [None]
    log = world.log
    assert [segment.base_offset for segment in log.segments] == [0, 2, 6, 8]
    assert world.offsets() == [0, 1, 3, 6, 7, 8, 9]
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
    counts = log.record_counts.current()
    assert [segment.live_records for segment in counts.segments] == [2, 1, 2, 2] and not counts.is_counting
    assert log.segments[1].latest() == (START_MS + 3, 3)
    assert world.suffixes() >= {".deleted"} and not {".swap", ".cleaned"} & world.suffixes()
    world.clock.advance(DELAY_MS)
    world.work()
    assert world.suffixes() == FILES


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_finds_it_with_the_same_numbers(world: World, clean: bool) -> None:
    world.replace([2, 4], [3])
    world.work()
    if clean:
        world.options = LoadOptions(True, world.log.end_offset, 0)
        world.log.close()
        world.files = world.files.kill()
        log = world.open(clean=True)
    else:
        log = world.kill()
    assert world.offsets() == [0, 1, 3, 6, 7, 8, 9]
    log.record_counts.current()
    world.work()
    assert [segment.live_records for segment in log.record_counts.current().segments] == [2, 1, 2, 2]
    assert log.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
    world.write(12)
    assert world.offsets() == [0, 1, 3, 6, 7, 8, 9, 10, 11]


def test_its_numbers_are_noted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.replace([2, 4], [3])
    world.work()
    world.options = LoadOptions(True, world.log.end_offset, 0)
    world.log.close()
    world.files = world.files.kill()
    monkeypatch.setattr("kafkalite.log.segment.record_counts.count", None)  # nobody counts again
    log = world.open(clean=True)
    assert log.record_counts.current().live_records is None
    world.work()
    assert log.record_counts.current().live_records == 7


def test_nothing_may_be_left(world: World) -> None:
    world.replace([2, 4], [])
    world.work()
    log = world.log
    assert [(segment.base_offset, segment.size_bytes) for segment in log.segments][1] == (2, 0)
    for offset in (2, 3, 4, 5, 6):
        region = log.read(offset, 1, log.end_offset)
        assert region is not None and read_records(region.read())[0].offset == 6
    assert log.read(3, 1 << 20, 6) is None and log.read(3, 1 << 20, 5) is None
    assert log.record_counts.current().live_records == 6
    for time, found in ((START_MS, 0), (START_MS + 1, 1), (START_MS + 2, 6), (START_MS + 6, 6)):
        record = log.lookup_of_timestamp(time, log.end_offset).answer()
        assert record is not None and record.offset == found
    latest = log.lookup_of_max_timestamp(log.end_offset).answer()
    assert latest is not None and latest.offset == 9
    assert [len(list(log.batches(offset))) for offset in (0, 2, 4, 6, 10)] == [6, 4, 4, 4, 0]
    world.kill()
    assert world.offsets() == [0, 1, 6, 7, 8, 9]
    assert [segment.base_offset for segment in world.log.segments] == [0, 2, 6, 8]
    assert world.log.end_offset == 10


def test_an_empty_one_goes_like_any_other(world: World) -> None:
    world.replace([0, 2, 4], [])
    world.work()
    world.log.delete_records_before(7)
    world.work()
    assert [segment.base_offset for segment in world.log.segments] == [6, 8]
    world.clock.advance(DELAY_MS)
    world.work()
    assert not [name for name in world.names() if name.startswith("0" * 19 + "0")]


def test_the_end_of_the_log_stays_where_it_is_when_nothing_lies_before_it(world: World) -> None:
    world.log.roll(START_MS)
    world.flush()
    world.replace([6, 8], [])
    world.work()
    assert world.ends == [None]
    for reopen in (world.kill, lambda: world.cut_power(Random(1))):
        assert reopen().end_offset == 10
        assert world.offsets() == [0, 1, 2, 3, 4, 5]
    world.write(11)
    assert world.offsets() == [0, 1, 2, 3, 4, 5, 10]


def test_the_snapshot_at_its_begin_stays_and_those_inside_go(memory_disk: str) -> None:
    world = World(f"{memory_disk}/world")
    world.write(10, producer_id=7, producer_epoch=0)
    world.flush()
    world.replace([2, 4, 6], [6])
    world.work()
    assert world.log.producers.snapshots.offsets == [2, 8]
    assert not [name for name in world.names() if name.endswith(".snapshot") and name[19] not in "28"]
    world.kill()
    producer = world.log.producers.get(7)
    assert producer is not None and producer.last_sequence == 9
    world.log.truncate_to(7)
    producer = world.log.producers.get(7)
    assert producer is not None and producer.last_sequence == 6
    world.stop()


def emptied(batch: bytes) -> bytes:
    """An empty batch, which compaction keeps for its producer's sequence."""
    head = bytearray(batch[:61])
    head[8:12] = (49).to_bytes(4)
    head[57:61] = bytes(4)
    head[17:21] = crc32c(memoryview(head)[21:]).to_bytes(4)
    return bytes(head)


def test_an_empty_batch_keeps_its_producers_sequence(memory_disk: str) -> None:
    world = World(f"{memory_disk}/world")
    world.write(4, producer_id=7, producer_epoch=0)
    world.write(10)
    world.flush()
    sources = world.log.swap.clean_sources(4)
    batches = [bytes(batch) for batch in world.log.batches(0)]
    left = emptied(batches[1]) + emptied(batches[3])
    made = compact(world.files, world.log, sources, lambda header, batch: False).replacement
    path = f"{world.log.directory}/{0:020d}.log.cleaned"
    world.files.write_new(path, left)
    world.files.sync(path)
    world.log.swap.replace(made._replace(size_bytes=len(left)), world.ends.append)
    world.work()
    assert world.ends == [None]
    assert world.offsets() == [4, 5, 6, 7, 8, 9]
    assert world.log.record_counts.current().live_records == 6
    for name in world.names():
        if name.endswith(".snapshot"):
            world.files.unlink(f"{world.log.directory}/{name}")
    world.options = LoadOptions(False)  # everything is read again
    log = world.kill()
    producer = log.producers.get(7)
    assert producer is not None and [batch.last_sequence for batch in producer.batches] == [1, 3]
    assert log.end_offset == 10 and log.record_counts.current().live_records == 6
    again = build_batch([NewRecord(b"k", b"03", (), START_MS)], producer_id=7, producer_epoch=0, base_sequence=3)
    assert log.append(memoryview(again), 9, START_MS).duplicate
    assert log.lookup_of_timestamp(START_MS, 10).answer() == (START_MS + 4, 4, 1)
    world.stop()


def test_whoever_reads_goes_on_reading(world: World) -> None:
    log = world.log
    region = log.read(2, 1 << 20, 4)
    assert region is not None
    before = region.read()
    walk = log.batches(0)
    assert [read_records(next(walk))[0].offset for _ in range(3)] == [0, 1, 2]
    lookup = log.lookup_of_timestamp(START_MS + 4, 10)
    world.replace([0, 2, 4], [5])
    world.work()
    assert region.read() == before
    assert lookup.answer() is not None
    world.clock.advance(DELAY_MS)
    world.work()
    assert region.read() == before
    assert [read_records(batch)[0].offset for batch in walk] == [3, 5, 6, 7, 8, 9]


# what may come between


STAGES = {"written": 0, "ready": 1, "live": 2}  # so many jobs of the other hand before it


@pytest.mark.parametrize("offset", [0, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("stage", STAGES)
def test_a_truncation_while_it_is_under_way_brings_nothing_back(world: World, stage: str, offset: int) -> None:
    world.replace([2, 4], [3])
    world.work(STAGES[stage])
    world.log.truncate_to(offset)
    assert world.log.end_offset == offset
    old = list(range(offset))
    kept = [o for o in (0, 1, 3, 6) if o < offset]
    half = [o for o in (0, 1, 3, 4, 5, 6) if o < offset]  # the last source lies behind what is left
    assert world.offsets() == (kept if stage == "live" else old)
    world.options = world.options._replace(recovery_point=offset)
    random = Random(offset)
    for _ in range(5):
        world.cut_power(random)
        assert world.offsets() in ([kept] if stage == "live" else [kept, half, old] if offset >= 6 else [old])
        assert world.log.end_offset == offset
        assert world.suffixes() <= FILES
    world.write(8)
    assert world.offsets()[-(8 - offset) :] == list(range(offset, 8))


@pytest.mark.parametrize("offset", [3, 6])
@pytest.mark.parametrize("stage", STAGES)
def test_a_truncation_tells_the_cleaner(world: World, stage: str, offset: int) -> None:
    world.replace([2, 4], [3])
    world.work(STAGES[stage])
    world.log.truncate_to(offset)
    world.work()
    replaced = stage == "live" or offset == 6
    assert [error is None for error in world.ends] == [replaced]
    assert not {".swap", ".cleaned"} & world.suffixes()
    world.replace([0], [])
    world.work()
    assert len(world.ends) == 2 and world.ends[1] is None


@pytest.mark.parametrize("stage", STAGES)
def test_retention_leaves_its_sources_alone_until_it_is_live(world: World, stage: str) -> None:
    world.replace([2, 4], [3])
    world.work(STAGES[stage])
    world.log.delete_records_before(7)
    assert world.log.start_offset == 7
    assert [s.base_offset for s in world.log.segments] == ([6, 8] if stage == "live" else [2, 4, 6, 8])
    assert world.log.segment_list.waits_for_disk == (stage != "live")
    world.work()
    assert world.ends == [None]
    world.log.delete_old_segments(START_MS, 8)
    assert [s.base_offset for s in world.log.segments] == [6, 8] and not world.log.segment_list.waits_for_disk
    world.kill()
    assert [s.base_offset for s in world.log.segments] == [6, 8]


@pytest.mark.parametrize("how", ["close", "abandon"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_log_that_closes_leaves_it_to_the_next_start(world: World, stage: str, how: str) -> None:
    world.replace([2, 4], [3])
    world.work(STAGES[stage])
    getattr(world.log, how)()
    assert len(world.ends) == 1 and isinstance(world.ends[0], ReplacementRefused)
    calls = world.files.calls
    for job in world.pending:
        job()
    world.background.run_completions()
    assert world.files.calls <= calls + 1, "it only waits for the disk"
    world.stop()
    world.files = world.files.kill()
    log = world.open(clean=how == "close")
    left = {"written": OLD, "ready": [0, 1, 3, 4, 5, 6, 7, 8, 9], "live": [0, 1, 3, 6, 7, 8, 9]}
    assert world.offsets() == left[stage]
    assert log.end_offset == 10
    assert world.suffixes() == FILES


def test_many_sources_go_a_few_at_a_time(memory_disk: str) -> None:
    world = World(f"{memory_disk}/world")
    world.write(60)
    world.flush()
    bases = [segment.base_offset for segment in world.log.segments[:-1]]
    assert len(bases) == 29
    world.replace(bases, [5])
    deleted = []
    while world.pending:
        world.work(1)
        deleted.append(sum(name.endswith(".log.deleted") for name in world.names()))
        if deleted[-1]:
            assert world.offsets() == [5, 58, 59], "readers see the new one at once"
    assert deleted[:6] == [0, 8, 16, 24, 29, 29] and world.ends == [None]
    world.stop()


@pytest.mark.parametrize("how", ["truncate", "close", "kill", "retention"])
def test_what_comes_when_some_sources_have_gone(memory_disk: str, how: str) -> None:
    world = World(f"{memory_disk}/world")
    world.write(60)
    world.flush()
    world.replace([segment.base_offset for segment in world.log.segments[:-1]], [5, 50])
    world.work(3)
    assert {".swap", ".deleted"} < world.suffixes()
    end = [58, 59]
    if how == "truncate":
        world.log.truncate_to(20)
        end = []
    elif how == "close":
        world.log.close()
    elif how == "retention":
        world.log.delete_records_before(58)
        assert world.log.segments[0].base_offset == 0
    if how != "close":
        world.work(0 if how == "kill" else 1 << 30)
    world.options = world.options._replace(
        recovery_point=min(world.options.recovery_point, 20 if how == "truncate" else 60)
    )
    world.kill()
    if how == "kill":
        end = list(range(52, 60))  # these segments lie behind what is left, and may be there as they were
    assert world.offsets() == ([5, 50, *end] if end else [5])
    assert world.suffixes() == FILES
    world.stop()


# what is refused


def test_what_is_not_there_any_more_is_not_replaced(world: World) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    log = world.log
    ends: list[Exception | None] = []
    wrong = [
        cleaned._replace(sources=(2, 6)),
        cleaned._replace(sources=(2,), base_offset=4),
        cleaned._replace(sources=(4, 6), base_offset=4),
        cleaned._replace(sources=(6, 8), base_offset=6),
        cleaned._replace(sources=()),
        cleaned._replace(size_bytes=cleaned.size_bytes + 1),
    ]
    for replacement in wrong:
        log.swap.replace(replacement, ends.append)
    assert [type(error) for error in ends] == [ReplacementRefused] * len(wrong)
    log.truncate_to(3)
    world.write(10)
    world.flush()
    log.swap.replace(cleaned, ends.append)
    assert isinstance(ends[-1], ReplacementRefused), "it was written again since"
    world.write_cleaned([2, 4], [3])
    log.swap.replace(cleaned, ends.append)
    log.swap.replace(cleaned, ends.append)
    assert isinstance(ends[-1], ReplacementRefused) and "not over" in str(ends[-1])
    world.work()
    assert ends[-1] is None
    log.swap.replace(cleaned, ends.append)
    assert isinstance(ends[-1], ReplacementRefused), "it was given out once"
    log.abandon()
    log.swap.replace(cleaned, ends.append)
    assert isinstance(ends[-1], ReplacementRefused) and "closed" in str(ends[-1])


@pytest.mark.parametrize("after", [0, 1])
def test_a_disk_that_does_not_know_the_names_ends_it(world: World, after: int) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.files.fail("fsync", "orders-0", times=1, after=after)
    world.log.swap.replace(cleaned, world.ends.append)
    world.work()
    assert len(world.ends) == 1 and isinstance(world.ends[0], StorageError)
    assert world.log.failure is not None
    assert not {".swap", ".cleaned"} & world.suffixes()
    world.files.heal()
    world.kill()
    assert world.offsets() == list(range(10))


@pytest.mark.parametrize("after", range(3))
def test_a_name_that_cannot_be_given_yet_ends_it(world: World, after: int) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.files.fail("rename", ".cleaned", times=1, after=after)
    world.log.swap.replace(cleaned, world.ends.append)
    world.work()
    assert isinstance(world.ends[0], StorageError)
    assert not {".swap", ".cleaned"} & world.suffixes()
    assert world.offsets() == list(range(10)) and world.log.failure is None
    world.replace([2, 4], [3])
    world.work()
    assert world.ends[1:] == [None]


@pytest.mark.parametrize("after", range(9))
@pytest.mark.parametrize("then", ["retention", "replace", "close", "kill", "truncate"])
def test_a_name_that_cannot_be_given_later_is_tried_again(world: World, after: int, then: str) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.log.swap.replace(cleaned, world.ends.append)
    world.work(1)
    world.files.fail("rename", "", times=1, after=after)
    world.work()
    assert len(world.ends) == 1 and isinstance(world.ends[0], StorageError)
    assert world.offsets() == [0, 1, 3, 6, 7, 8, 9], "readers see it all the same"
    if then == "retention":
        world.log.delete_records_before(2)
        world.work()
    elif then == "replace":
        with pytest.raises(StorageError, match="not over yet"):
            world.replace([0], [])  # what the cleaner would write now, a start would take for a reason to undo it
        world.work()
        assert world.log.swap.clean_sources(8)
    elif then == "close":
        world.log.close()
        world.stop()
    elif then == "truncate":
        world.log.truncate_to(8)
        world.options = world.options._replace(recovery_point=8)
    assert then == "kill" or ".swap" not in world.suffixes()
    world.kill()
    found = world.offsets()
    if then == "kill" and after < 4:  # the last source lies behind what is left: it may be there as it was
        assert found == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    else:
        assert found == {"retention": [3, 6, 7, 8, 9], "truncate": [0, 1, 3, 6, 7]}.get(then, [0, 1, 3, 6, 7, 8, 9])


def test_an_undoing_that_fails_is_tried_again(world: World) -> None:
    world.replace([2, 4], [3])
    world.work(1)
    fault = world.files.fail("rename", ".log.swap", times=2)
    for _ in range(2):
        with pytest.raises(StorageError):
            world.log.truncate_to(3)
        assert world.log.end_offset == 10 and not world.ends
    assert fault.came == 2
    world.log.truncate_to(3)
    world.work()
    assert isinstance(world.ends[0], ReplacementRefused) and world.offsets() == [0, 1, 2]
    world.kill()
    assert world.offsets() == [0, 1, 2]


def test_an_undoing_that_the_disk_does_not_know_is_tried_again(world: World) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.files.fail("fsync", "orders-0", times=2, after=1)
    world.log.swap.replace(cleaned, world.ends.append)
    world.work()
    assert isinstance(world.ends[0], StorageError) and world.log.swap.is_under_way
    world.files.heal()
    with pytest.raises(StorageError, match="not over yet"):
        world.log.swap.clean_sources(8)
    world.work()
    assert not world.log.swap.is_under_way and not {".swap", ".cleaned"} & world.suffixes()
    world.kill()
    assert world.offsets() == list(range(10))


def test_what_a_cleaner_left_behind_that_died_is_in_nobodys_way(world: World) -> None:
    """A start would think that a .swap behind the .cleaned is not complete."""
    world.files.write_new(f"{world.log.directory}/{0:020d}.log.cleaned", b"half of it")
    world.files.sync(world.log.directory)
    world.replace([2, 4], [3])
    world.work(1)
    world.files.end_at, world.files.end_by = world.files.calls + 5, Killed
    with pytest.raises(Ended):
        world.work()
    world.kill()
    assert world.offsets() == [0, 1, 3, 6, 7, 8, 9]


def test_a_full_disk_does_not_hinder_it(world: World) -> None:
    cleaned = world.write_cleaned([2, 4], [3])
    world.files.free_bytes = 0
    world.log.swap.replace(cleaned, world.ends.append)
    world.work()
    assert world.ends == [None]


def test_a_segment_that_begins_now_lets_the_last_one_be_compacted(world: World) -> None:
    log = world.log
    assert [source.base_offset for source in log.swap.clean_sources(10)] == [0, 2, 4, 6]
    assert [source.base_offset for source in log.swap.clean_sources(7)] == [0, 2, 4]
    assert log.roll(START_MS) and not log.roll(START_MS)
    sources = log.swap.clean_sources(10)
    assert [(source.base_offset, source.end_offset) for source in sources][-1] == (8, 10)
    for source, segment in zip(sources, log.segments, strict=False):
        stem = segment.path.removesuffix(".log")
        assert source.size_bytes == os.path.getsize(segment.path)
        assert source.index_bytes == os.path.getsize(stem + ".index")
        assert source.time_index_bytes == os.path.getsize(stem + ".timeindex")
        assert source.modified_ns == os.stat(segment.path).st_mtime_ns
