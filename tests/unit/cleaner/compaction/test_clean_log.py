"""One cleaning over small logs, rule by rule: which offsets are left, and in which batches."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.file_names import CLEANED
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.record.message_set import build_set
from tests.support.cleaner.compacted_log import DAY_MS, NOW_MS, Log, records
from tests.support.log.faulty_files import FaultyFiles


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


# keys


def test_the_last_value_of_each_key_stays(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "a=2"), log.batch("c=1", "a=3"))
    result = log.compact()
    assert log.offsets() == [1, 3, 4]
    assert log.said() == ["b=1", "c=1", "a=3"]
    assert (result.end_offset, result.is_complete) == (5, True)


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_batch_that_keeps_everything_is_not_touched(log: Log, codec: int) -> None:
    whole = [log.batch("a=1", "b=1", codec=codec), log.batch("c=1", codec=codec)]
    changed = log.batch("d=1", "e=1", codec=codec)
    gone = log.batch("d=2")
    whole.append(log.batch("d=3", "f=1", codec=codec))
    log.segment(*whole[:2], changed, gone, whole[2])
    log.compact()
    after = [data for _, data in log.batches()]
    assert [after[0], after[1], after[3]] == whole
    assert log.offsets() == [0, 1, 2, 4, 6, 7]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_batch_that_keeps_some_keeps_its_place_and_producer(log: Log, codec: int) -> None:
    new = [NewRecord(key, b"x" * 40, (("h", b"1"),), NOW_MS + n) for n, key in enumerate((b"a", b"b", b"c", b"a"))]
    log.segment(
        log.raw(new, codec=codec, producer_id=7, producer_epoch=2, base_sequence=5, leader_epoch=9),
        log.batch("c=2", codec=codec),
    )
    log.compact()
    header = log.headers()[0]
    assert log.offsets() == [1, 3, 4]
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (7, 2, 5, 9)
    assert (header.codec, header.last_sequence) == (codec, 8)
    # times are counted from the first record that is left
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 1, NOW_MS + 3)
    assert [record.timestamp for record in log.records()[:2]] == [NOW_MS + 1, NOW_MS + 3]
    assert log.records()[0].headers == (("h", b"1"),)


def test_log_append_time_stays_that_of_the_batch(log: Log) -> None:
    new = [NewRecord(key, b"1", (), NOW_MS + n) for n, key in enumerate((b"a", b"b", b"a"))]
    log.segment(log.raw(new, timestamp_type=1))
    log.compact()
    header = log.headers()[0]
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (1, NOW_MS + 2, NOW_MS + 2)
    assert {record.timestamp for record in log.records()} == {NOW_MS + 2}


def test_records_without_a_key_go_as_far_as_the_log_is_clean(log: Log) -> None:
    log.segment(log.batch("a=1", "=1", "b=1"))
    result = log.compact()
    assert log.offsets() == [0, 2]
    assert result.stats.keyless_dropped == 1


def test_what_was_clean_is_looked_up_by_key(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "c=1", "=1"))
    log.segment(log.batch("b=2"), log.batch("d=1", "d=2"))
    log.compact(dirty=4)
    assert log.offsets() == [0, 2, 4, 6]


def test_a_dirty_range_may_begin_inside_a_segment_and_a_batch(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "a=2", "b=2", "a=3"))
    log.compact(dirty=3)
    assert log.offsets() == [3, 4]


def test_a_clean_range_may_hold_a_key_twice_that_is_not_dirty(log: Log) -> None:
    """An earlier pass that ended early left it so."""
    log.segment(log.batch("a=1", "a=2"))
    log.segment(log.batch("b=1"))
    log.compact(dirty=2)
    assert log.offsets() == [0, 1, 2]


def test_the_first_segments_may_be_missing(log: Log) -> None:
    log.end_offset = 500
    log.segment(log.batch("a=1", "b=1"))
    log.segment(log.batch("a=2"))
    log.compact(dirty=0)
    assert log.offsets() == [501, 502]


def test_a_pass_over_a_compacted_log_changes_nothing(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "a=2"), log.batch("c=1", "b=2", codec=4))
    log.compact()
    before = [data for _, data in log.batches()]
    log.compact()
    assert [data for _, data in log.batches()] == before


# tombstones


def test_a_tombstone_stays_until_its_horizon_and_goes_then(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "a"))
    log.compact()
    assert log.said() == ["b=1", "a"]
    header = log.headers()[0]
    assert header.has_delete_horizon and header.base_timestamp == NOW_MS + DAY_MS
    assert [record.timestamp for record in log.records()] == [NOW_MS, NOW_MS]
    before = log.batches()
    log.compact(now_ms=NOW_MS + DAY_MS - 1)
    assert log.batches() == before
    result = log.compact(now_ms=NOW_MS + DAY_MS)
    assert log.said() == ["b=1"]
    assert result.stats.tombstones_dropped == 1
    assert log.headers()[0].base_timestamp == NOW_MS + DAY_MS  # the horizon of a batch never moves


def test_a_tombstone_in_the_clean_range_gets_its_horizon_too(log: Log) -> None:
    log.segment(log.batch("a", "b=1"))
    log.segment(log.batch("c=1"))
    log.compact(dirty=2)
    assert [header.has_delete_horizon for header in log.headers()] == [True, False]


def test_a_horizon_past_the_end_of_time_is_none(log: Log) -> None:
    log.segment(log.batch("a=1", "a"))
    log.compact(delete_retention_ms=(1 << 63) - 1)
    assert log.said() == ["a"]
    assert not log.headers()[0].has_delete_horizon


@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_stay_what_they_are(log: Log, magic: int, codec: int) -> None:
    at_ms = NOW_MS if magic else -1
    some = [(0, at_ms, b"a", b"1"), (1, at_ms, b"b", b"1"), (2, at_ms, None, b"x"), (3, at_ms, b"c", None)]
    log.segment(build_set(some, magic, codec=codec), base=0)
    log.end_offset = 4
    log.segment(log.batch("a=2"))
    log.compact()
    assert log.offsets() == [1, 3, 4]
    assert [header.magic for header in log.headers()][-1] == 2
    assert {header.magic for header in log.headers()[:-1]} == {magic}
    assert {header.codec for header in log.headers()[:-1]} == {codec}


def test_tombstones_of_old_formats_go_by_the_time_of_their_segment(log: Log) -> None:
    log.segment(build_set([(0, NOW_MS, b"a", None)], 1), base=0, modified_ms=NOW_MS - DAY_MS)
    log.segment(build_set([(1, NOW_MS, b"b", None)], 1), base=1, modified_ms=NOW_MS - DAY_MS + 1)
    log.end_offset = 2
    log.segment(build_set([(2, NOW_MS, b"c", b"1")], 1), base=2, modified_ms=NOW_MS)
    log.end_offset = 3
    log.segment(log.batch("d=1"))
    log.compact(dirty=3)
    assert log.offsets() == [1, 2, 3]


# the map


def test_a_full_map_ends_the_pass_and_the_next_one_goes_on(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1", "a=2", "c=1", "a=3", "b=2"))
    first = log.compact(dedupe_buffer_bytes=3 * 24)  # two keys of three slots
    assert (first.end_offset, first.is_complete) == (3, False)
    assert log.offsets() == [1, 2, 3, 4, 5]  # what lies behind is as it was
    second = log.compact(dirty=3)
    assert second.is_complete
    assert log.offsets() == [3, 4, 5]


def test_a_map_without_room_is_said(log: Log) -> None:
    log.segment(log.batch("a=1"))
    with pytest.raises(CleaningFailed, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        log.compact(dedupe_buffer_bytes=24)
    assert log.names() == ["00000000000000000000.log"]


def test_a_gap_behind_the_last_record_is_clean_too(log: Log) -> None:
    log.segment(log.batch("a=1"))
    log.end_offset = 100
    log.segment(log.batch("a=2"))
    log.end_offset = 1000
    assert log.compact().end_offset == 1000
    assert log.offsets() == [100]


# groups and files


def test_small_neighbours_become_one_segment(log: Log) -> None:
    for _ in range(3):
        log.segment(log.batch("a=1", "b=1"))
    log.compact()
    assert log.bases == [0]
    assert log.offsets() == [4, 5]


def test_a_segment_in_which_nothing_is_left(log: Log) -> None:
    log.segment(log.batch("a=1"))
    log.segment(log.batch("a=2"))
    log.compact(segment_bytes=1)
    assert log.bases == [0, 1]
    assert log.path(0).stat().st_size == 0
    assert log.path(0, ".timeindex").stat().st_size == 0


def test_the_files_say_what_the_new_segment_is(log: Log) -> None:
    log.segment(log.batch("a=1", at_ms=NOW_MS + 9), log.batch("b=1"), modified_ms=NOW_MS - 5)
    log.segment(log.batch("a=2", at_ms=NOW_MS + 3), log.batch("c=1", at_ms=NOW_MS + 3), modified_ms=NOW_MS - 2)
    found: list[CleanedSegment] = []
    log.run(log.job(), lambda cleaned: (found.append(cleaned), log.put_in_place(cleaned))[1])
    (cleaned,) = found
    assert (cleaned.base_offset, cleaned.sources) == (0, (0, 2))
    assert (cleaned.record_count, cleaned.control_record_count) == (3, 0)
    assert (cleaned.max_timestamp_ms, cleaned.max_timestamp_offset) == (NOW_MS + 3, 2)
    assert log.path(0).stat().st_mtime_ns == (NOW_MS - 2) * 1_000_000
    assert log.path(0, ".timeindex").read_bytes() == (NOW_MS + 3).to_bytes(8, "big") + (2).to_bytes(4, "big")


def test_the_index_has_an_entry_for_every_interval(log: Log) -> None:
    log.segment(*(log.batch(f"{n}={'x' * 50}") for n in range(100)))
    log.compact(index_interval_bytes=1000)
    raw = log.path(0, ".index").read_bytes()
    found = [(int.from_bytes(raw[n : n + 4]), int.from_bytes(raw[n + 4 : n + 8])) for n in range(0, len(raw), 8)]
    expected = []
    position = indexed = 0
    for header in log.headers():
        if position - indexed > 1000:
            expected.append((header.last_offset, position))
            indexed = position
        position += header.size_bytes
    assert found == expected
    assert len(found) > 5


def test_pieces_smaller_than_a_batch(log: Log) -> None:
    log.pieces = 100
    log.segment(log.batch(*(f"{n % 7}={'x' * n}" for n in range(50))), log.batch("a=1"), log.batch("a=2", "0=1"))
    log.compact()
    assert log.offsets() == [*range(43, 49), 51, 52]


# what goes wrong


def test_a_wrong_checksum_is_told_with_its_place(log: Log) -> None:
    first, second = log.batch("a=1"), bytearray(log.batch("b=1"))
    second[-1] ^= 1
    log.segment(first, bytes(second))
    with pytest.raises(CleaningFailed, match=rf"00000000000000000000\.log.*position {len(first)}.*checksum"):
        log.compact()
    assert log.names() == ["00000000000000000000.log"]


def test_a_wrong_checksum_in_the_clean_range(log: Log) -> None:
    bad = bytearray(log.batch("a=1", "b=1"))
    bad[-1] ^= 1
    log.segment(bytes(bad))
    log.segment(log.batch("a=2"))
    with pytest.raises(CleaningFailed, match="checksum"):
        log.compact(dirty=2)
    assert not [name for name in log.names() if name.endswith(CLEANED)]


def test_a_torn_batch(log: Log) -> None:
    log.segment(log.batch("a=1"), log.batch("b=1")[:-1])
    with pytest.raises(CleaningFailed, match="cut off"):
        log.compact()


def test_a_swap_that_says_no_ends_the_pass(log: Log) -> None:
    log.segment(log.batch("a=1"))
    log.segment(log.batch("a=2"))
    before = log.names()
    result = log.run(log.job(segment_bytes=1), lambda cleaned: False)
    assert (result.end_offset, result.is_complete) == (0, False)
    assert log.names() == before


@pytest.mark.parametrize("what", ["open", "pwrite", "fsync", "set_modified"])
def test_a_disk_that_fails_leaves_nothing_behind(tmp_path: Path, what: str) -> None:
    plain = Log(tmp_path)
    plain.segment(plain.batch("a=1", "a=2"))
    before = plain.names()
    plain.files = _Failing(what)
    with pytest.raises(OSError, match="full"):
        plain.compact()
    assert plain.names() == before


class _Failing(Files):
    """One call fails, wherever the cleaner writes."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._real = getattr(self, what)
        self._what = what
        setattr(self, what, self._fail)

    def _fail(self, *arguments: object) -> object:
        if self._what == "open" and CLEANED not in str(arguments[0]):
            return self._real(*arguments)
        raise OSError(errno.ENOSPC, "full")


def test_everything_is_on_the_disk_before_the_swap(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.segment(log.batch("a=1", "a=2"))
    files = FaultyFiles(str(tmp_path))
    log.files = files
    log.run(log.job(), lambda cleaned: True)
    done = [what for what, path in files.log if path.endswith(CLEANED)]
    synced = {path for what, path in files.log if what == "fsync"}
    assert synced == {f"{0:020d}{suffix}{CLEANED}" for suffix in (".log", ".index", ".timeindex")}
    assert done[-1] == "fsync"


def test_the_throttle_is_told_of_what_was_read_and_written(log: Log) -> None:
    log.segment(log.batch("a=1", "b=1"), log.batch("a=2", "c=2"))
    size = log.path(0).stat().st_size
    throttled: list[int] = []
    result = clean(log.job(), log.files, log.put_in_place, throttled.append)
    assert sum(throttled) == 2 * size + result.stats.bytes_kept
    assert result.stats.bytes_kept == log.path(0).stat().st_size


# a dict says the same


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40), st.integers(0, 4)),
        min_size=1,
        max_size=12,
    ),
    per_segment=st.integers(1, 5),
    dirty=st.floats(0, 1),
    pieces=st.sampled_from((1, 300, 8 << 20)),
)
def test_what_is_left_is_the_last_of_each_key(
    batches: list[tuple[list[tuple[int, bool]], int]], per_segment: int, dirty: float, pieces: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    log = Log(tmp_path_factory.mktemp("log"), pieces=pieces)
    made = []
    keys: list[str] = []
    for content, codec in batches:
        pairs = [f"k{key}" if is_tombstone else f"k{key}=v" for key, is_tombstone in content]
        made.append(log.batch(*pairs, codec=codec))
        keys += [f"k{key}" for key, _ in content]
    for first in range(0, len(made), per_segment):
        log.segment(*made[first : first + per_segment])
    begin = int(dirty * len(keys))
    last = {key: offset for offset, key in enumerate(keys) if offset >= begin}
    log.compact(begin)
    assert log.offsets() == [offset for offset, key in enumerate(keys) if last.get(key, -1) <= offset]


def test_records_makes_what_it_says() -> None:
    assert [(r.key, r.value) for r in records("a=1", "a=", "a", "=1")] == [
        (b"a", b"1"), (b"a", b""), (b"a", None), (None, b"1"),
    ]  # fmt: skip


@pytest.mark.parametrize("dirty", [0, 5])
@pytest.mark.parametrize("codec", [0, 1])
def test_records_behind_the_last_offset_of_their_batch(log: Log, codec: int, dirty: int) -> None:
    """Brokers of old took batches whose last offset delta was left at 0; no record that is the last of its key is
    dropped, and the next batch's are not taken for them."""
    how: dict[str, int | bool] = {"codec": codec, "last_offset_delta": 0}
    log.end_offset = 2
    first = log.batch("a=1", "b=1", "c=1", **how)
    second = log.batch("a=2", "d=1", "b=2", **how)
    log.segment(first, second, base=0)
    log.segment(log.batch("e=1", "c=2"))
    log.compact(dirty=dirty)
    assert {(one.key, one.value) for one in log.records()} >= {
        (b"a", b"2"), (b"b", b"2"), (b"c", b"2"), (b"d", b"1"), (b"e", b"1")
    }  # fmt: skip
