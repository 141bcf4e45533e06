"""Segments with message sets v0 and v1: found, looked up, recovered and cut like any other."""

from __future__ import annotations

import shutil

import pytest

from kafkalite.record.batch import MAGIC, NewRecord, build_batch
from kafkalite.record.compression import GZIP, SNAPPY
from kafkalite.record.message_set import V0, V1, build_set, entry_header, read_messages
from kafkalite.record.record import Record, read_records
from tests.support import places
from tests.unit.log.conftest import START_MS, Disk, Log

GOLDEN = places.GOLDEN / "log" / "legacy"
KINDS = ("v0", "v1", "v1-stamped", "raised", "rolled")


def read(log: Log, offset: int = 0) -> list[Record]:
    """Every record of the log that is not before `offset`, whatever its format."""
    found: list[Record] = []
    for batch in log.log.batches(offset):
        inside = read_records(batch) if batch[16] == MAGIC else read_messages(batch)
        found += [record for record in inside if record.offset >= offset]
    return found


def stored(disk: Disk, *entries: bytes | bytearray) -> list[int]:
    """Make these the only segment; where each begins."""
    disk.file(0).write_bytes(b"".join(entries))
    return [sum(map(len, entries[:i])) for i in range(len(entries))]


def wrapper(offsets: range, magic: int, codec: int = GZIP, time: int = START_MS) -> bytes:
    return build_set([(at, time + at, b"k", b"%d" % at) for at in offsets], magic, codec=codec)


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_of_kafka_2_7_opens_and_stays_as_it_is(kind: str, disk: Disk) -> None:
    shutil.copytree(GOLDEN / f"{kind}-0", disk.directory, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in (GOLDEN / f"{kind}-0").iterdir()}
    log = disk.open(index_interval_bytes=100)
    records = read(log)
    assert [record.offset for record in records] == list(range(log.log.end_offset))
    for offset in range(len(records)):
        assert read(log, offset) == records[offset:]
    log.log.close()
    assert {name: disk.file(0).with_name(name).read_bytes() for name in before} == before


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_same_after_a_crash_without_its_indexes(kind: str, disk: Disk) -> None:
    shutil.copytree(GOLDEN / f"{kind}-0", disk.directory, dirs_exist_ok=True)
    records = read(disk.open())
    for path in disk.directory.glob("*index"):
        path.unlink()
    log = disk.open(clean=False, index_interval_bytes=100)
    assert log.log.lost_bytes == 0
    for offset in range(0, len(records), 3):
        assert read(log, offset) == records[offset:]


def test_a_wrapper_is_found_by_every_offset_in_it(disk: Disk) -> None:
    places = stored(disk, *(wrapper(range(at, at + 10), at // 10 % 2) for at in range(0, 100, 10)))
    log = disk.open(clean=False, index_interval_bytes=0)
    (segment,) = log.log.segments
    assert segment.offset_index.entries > 5
    for offset in range(100):
        found = segment.find(offset)
        assert found is not None and found[0] == places[offset // 10], offset
    assert log.log.end_offset == segment.next_offset() == 100


def test_a_time_is_found_in_v1_and_not_in_v0(disk: Disk) -> None:
    stored(disk, wrapper(range(10), V0), wrapper(range(10, 20), V1), wrapper(range(20, 30), V1, SNAPPY))
    log = disk.open(clean=False).log
    for time, offset in ((0, 10), (START_MS + 5, 10), (START_MS + 13, 13), (START_MS + 29, 29)):
        found = log.lookup_of_timestamp(time, 30).answer()
        assert found is not None
        assert (found.offset, found.timestamp, found.leader_epoch) == (offset, START_MS + offset, -1)
    assert log.lookup_of_timestamp(START_MS + 30, 30).answer() is None
    latest = log.lookup_of_max_timestamp(30).answer()
    assert latest is not None and latest.offset == 29


def test_without_any_time_a_segment_is_as_old_as_its_file(disk: Disk) -> None:
    stored(disk, wrapper(range(10), V0))
    log = disk.open(clean=False).log
    assert log.segments[0].largest_timestamp_ms() == disk.file(0).stat().st_mtime_ns // 1_000_000
    assert log.lookup_of_timestamp(START_MS, 10).answer() is None
    assert log.lookup_of_max_timestamp(10).answer() is None


@pytest.mark.parametrize("magic", [V0, V1])
def test_a_torn_end_is_cut_and_what_is_whole_stays(magic: int, disk: Disk) -> None:
    entries = [wrapper(range(10), magic), build_set([(10, START_MS, None, b"x")], magic), wrapper(range(11, 15), magic)]
    whole = b"".join(entries)
    ends = [len(b"".join(entries[:i])) for i in range(4)]
    for size in range(len(whole)):
        disk.file(0).write_bytes(whole[:size])
        log = disk.open(clean=False).log
        kept = max(i for i, end in enumerate(ends) if end <= size)
        assert (log.end_offset, log.lost_bytes) == ((0, 10, 11, 15)[kept], size - ends[kept])
        log.abandon()


def test_damage_ends_the_log_there(disk: Disk) -> None:
    entries = [wrapper(range(10), V1), wrapper(range(10, 20), V1), wrapper(range(20, 30), V1)]
    places = stored(disk, *entries)
    disk.flip(0, places[1] + 60)
    log = disk.open(clean=False)
    assert (log.log.end_offset, log.log.lost_bytes) == (10, len(entries[1]) + len(entries[2]))
    assert log.write("new").base_offset == 10


def test_offsets_that_go_back_end_the_log(disk: Disk) -> None:
    stored(disk, wrapper(range(10), V0), wrapper(range(5, 9), V0))
    assert disk.open(clean=False).log.end_offset == 10


def test_the_log_goes_on_in_v2_and_is_cut_back_into_v1(disk: Disk) -> None:
    stored(disk, wrapper(range(10), V1), wrapper(range(10, 20), V1))
    log = disk.open(clean=False)
    assert log.write("a", "b").base_offset == 20
    log = disk.kill(log)
    assert [record.offset for record in read(log)] == list(range(22))
    log.log.truncate_to(13)  # as Kafka: the wrapper that holds it goes as a whole
    assert [record.offset for record in read(log)] == list(range(10))
    log.append(build_batch([NewRecord(None, b"c")]))
    assert (log.log.end_offset, read(log)[-1].value) == (14, b"c")


def test_an_entry_of_v0_may_be_smaller_than_the_header_of_a_batch(disk: Disk) -> None:
    entry = build_set([(0, -1, None, None)], V0)
    assert len(entry) == 26
    stored(disk, *[build_set([(i, -1, None, None)], V0) for i in range(5)])
    log = disk.open(clean=False)
    assert [record.offset for record in read(log)] == [0, 1, 2, 3, 4]
    assert entry_header(entry).size_bytes == 26
