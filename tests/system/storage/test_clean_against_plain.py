"""Compaction of random logs, held against the plain cleaner, and against what was promised whatever the cleaner.

Each log goes through several passes, some of them hours apart, so that later ones meet what earlier ones left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleanJob, CleanResult
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import list_partition
from kafkalite.inspection.verify.partition_check import check_partition
from kafkalite.log.index.transaction_index import AbortedTxn, TransactionIndex
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.segment.segment import Segment
from kafkalite.log.storage.file_names import CLEANED, LOG, SEGMENT_FILES
from kafkalite.log.storage.files import Files
from kafkalite.record.compression import NONE
from tests.support.cleaner.compaction_guarantees import Contents, check_promises
from tests.support.cleaner.plain_cleaner import PlainGroup, PlainResult, clean_plainly, entries, records_of
from tests.support.cleaner.random_log import (
    HOUR_MS,
    NOW_MS,
    Batch,
    Emptied,
    Event,
    Fence,
    Marker,
    OldSet,
    RandomLog,
    Roll,
)


def _join(parts: tuple[list[Event], Event, list[Event]]) -> list[Event]:
    return [*parts[0], parts[1], *parts[2]]


few = st.integers(0, 3)
counts = st.sampled_from((1, 1, 1, 2, 3, 3, 5, 10, 40))
seeds = st.integers(0, 1000)
horizons = st.sampled_from((None, None, None, -5, 0, 5))
producers = st.sampled_from((None, None, 1, 2, 3))

batches = st.builds(
    Batch, count=counts, key_range=st.sampled_from((1, 3, 10, 100)), seed=seeds, tombstones=few,
    keyless=st.sampled_from((0, 0, 0, 2)), codec=st.sampled_from((0, 0, 0, 1, 2, 3, 4)), producer=producers,
    transactional=st.booleans(), log_append_time=st.booleans(), holes=st.sampled_from((0, 0, 0, 3, 8)),
    horizon_hours=horizons, gap=st.sampled_from((0, 0, 0, 1, 50)),
)  # fmt: skip
large_batches = st.builds(
    Batch, count=st.sampled_from((1000, 1000, 1000, 5000)), key_range=st.sampled_from((10, 5000)), seed=seeds,
    tombstones=few, codec=st.sampled_from((0, 4)),
)  # fmt: skip
old_sets = st.builds(
    OldSet, magic=st.sampled_from((0, 1)), count=st.sampled_from((1, 2, 5, 20)), key_range=st.sampled_from((1, 4, 20)),
    seed=seeds, tombstones=few, keyless=st.sampled_from((0, 0, 2)), codec=st.sampled_from((0, 0, 1, 2, 3)),
    log_append_time=st.booleans(), gap=st.sampled_from((0, 0, 5)),
)  # fmt: skip
markers = st.builds(Marker, producer=st.integers(1, 3), commits=st.booleans(), horizon_hours=horizons)
rolls = st.builds(Roll, hours=st.sampled_from((0, 1, 30)), gap=st.sampled_from((0, 0, 20)))
rare = st.one_of(st.builds(Emptied, producer=st.integers(1, 3)), st.builds(Fence, producer=st.integers(1, 3)))
few_events = st.lists(st.one_of(batches, batches, batches, markers, rolls, rolls, rare), min_size=1, max_size=30)
events = st.one_of(*[few_events] * 15, st.tuples(few_events, large_batches, few_events).map(_join))
old_events = st.lists(st.one_of(old_sets, rolls), max_size=8)


@dataclass(frozen=True)
class Pass:
    """`hours` after the last one. It `goes_on` where that ended, or begins at a share of the log. A share of the
    segments may be compacted."""

    hours: int
    goes_on: bool
    first_dirty: float
    uncleanable: float


@dataclass(frozen=True)
class Setting:
    """`slots` of the map; `expired` producers are forgotten; the log begins at a share of what is there."""

    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    slots: int
    expired: frozenset[int]
    start: float


shares = st.sampled_from((0.0, 0.2, 0.5, 0.9, 1.0))
passes = st.lists(
    st.builds(
        Pass, hours=st.sampled_from((0, 1, 12, 30)), goes_on=st.sampled_from((True, True, True, False)),
        first_dirty=shares, uncleanable=st.sampled_from((1.0, 1.0, 0.5)),
    ),
    min_size=1, max_size=4,
)  # fmt: skip
setting_of_log = st.builds(
    Setting, segment_bytes=st.sampled_from((1500, 10_000, 1 << 20)), index_bytes=st.sampled_from((64, 4096)),
    index_interval_bytes=st.sampled_from((0, 200, 4096)), slots=st.sampled_from((2, 5, 20, 100_000, 100_000)),
    expired=st.frozensets(st.integers(1, 3)), start=st.sampled_from((0.0, 0.0, 0.3)),
)  # fmt: skip

_QUICK = settings(
    max_examples=80, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)  # fmt: skip


@pytest.fixture(scope="module")
def memory_disk() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = Path(tempfile.mkdtemp(dir=where, prefix="kafkalite-clean-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@given(old=old_events, new=events, passes=passes, setting=setting_of_log)
@example(  # seed 120 gives a record the time 0: its entry in the time index looks like padding
    old=[OldSet(1, 1, 4, 120, 0, 0, 0, False, 0), *2 * [OldSet(0, 1, 1, 0, 0, 0, 0, False, 0)], Roll(0, 0)],
    new=[Batch(1, 1, 0, 0, 0, 0, None, False, False, 0, None, 0)],
    passes=[Pass(0, True, 0.0, 1.0)],
    setting=Setting(1500, 64, 0, 2, frozenset(), 0.0),
)
@_QUICK
def test_random_logs(
    old: list[Event], new: list[Event], passes: list[Pass], setting: Setting, memory_disk: Path
) -> None:
    compact([*old, *new], passes, setting, memory_disk)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
@given(old=old_events, new=events, passes=passes, setting=setting_of_log)
@settings(_QUICK, max_examples=5000)
def test_many_random_logs(
    old: list[Event], new: list[Event], passes: list[Pass], setting: Setting, memory_disk: Path,
    part: int,
) -> None:  # fmt: skip
    compact([*old, *new], passes, setting, memory_disk)


def compact(events: list[Event], passes: list[Pass], setting: Setting, memory_disk: Path) -> None:
    directory = memory_disk / "orders-0"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    config = TopicConfig(segment_index_bytes=setting.index_bytes, index_interval_bytes=setting.index_interval_bytes)
    log = RandomLog(directory, [*events, Roll()], config)
    files = Files()
    log.write(files)
    dirty_from = 0
    for one in passes:
        log.now_ms = max(log.now_ms, NOW_MS) + one.hours * HOUR_MS
        result = one_pass(log, files, one, setting, dirty_from)
        if result is not None:
            dirty_from = result.end_offset


def one_pass(log: RandomLog, files: Files, one: Pass, setting: Setting, dirty_from: int) -> CleanResult | None:
    directory = str(log.directory)
    job = make_job(log, one, setting, dirty_from)
    if not job.segments:
        return None
    bases = [int(name[:20]) for name in sorted(os.listdir(directory)) if name.endswith(LOG)]
    logs = {base: files.read(f"{directory}/{base:020d}{LOG}") for base in bases}
    aborted = [txn for base in bases for txn in txns_of(directory, base, "", files)]
    before = Contents.of(logs, aborted)
    plain = clean_plainly(job, logs, aborted)
    groups = iter(plain.groups)

    def swap(cleaned: CleanedSegment) -> bool:
        group = next(groups, None)
        assert group is not None, f"{cleaned} is one segment too many"
        check_segment(cleaned, group, directory, files, job)
        put_in_place(cleaned, directory, job)
        return True

    result = clean(job, files, swap)
    assert next(groups, None) is None, "a segment was left out"
    assert (result.end_offset, result.is_complete) == (plain.end_offset, plain.is_complete)
    names = os.listdir(directory)
    assert not [name for name in names if name.endswith((CLEANED, ".swap"))], f"left behind: {names}"
    bases = [int(name[:20]) for name in sorted(names) if name.endswith(LOG)]
    logs = {base: files.read(f"{directory}/{base:020d}{LOG}") for base in bases}
    after = Contents.of(logs, [txn for base in bases for txn in txns_of(directory, base, "", files)])
    check_promises(job, result.end_offset, before, after, set(plain.last_of_keys))
    check_stats(result, plain, job, before, after)
    told = check_partition(list_partition(directory), lambda count: None, compacted_to=1 << 60, deep=True)
    assert not told.faults, told.faults
    return result


def make_job(log: RandomLog, one: Pass, setting: Setting, dirty_from: int) -> CleanJob:
    segments = log.sources()
    stable = log.stable_offset
    sealed = [source for source in segments[:-1] if source.end_offset <= stable]
    count = round(len(sealed) * one.uncleanable)
    sealed = [source for number, source in enumerate(sealed) if number < count or source.base_offset < dirty_from]
    upto = sealed[-1].end_offset if sealed else segments[0].base_offset
    start = segments[0].base_offset + int((upto - segments[0].base_offset) * setting.start)
    first_dirty = dirty_from if one.goes_on else int(upto * one.first_dirty)
    return CleanJob(
        topic="orders", partition=0, directory=str(log.directory), segments=tuple(sealed),
        first_dirty_offset=min(max(first_dirty, start), upto), first_uncleanable_offset=upto,
        last_records={p: last for p, last in log.lasts.items() if p not in setting.expired},
        now_ms=log.now_ms, delete_retention_ms=10 * HOUR_MS, segment_bytes=setting.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes, index_interval_bytes=log.config.index_interval_bytes,
        dedupe_buffer_bytes=24 * setting.slots, io_buffer_bytes=1 << 19,
        load_factor=0.9,
    )  # fmt: skip


def txns_of(directory: str, base: int, suffix: str, files: Files) -> list[AbortedTxn]:
    return TransactionIndex(f"{directory}/{base:020d}.txnindex{suffix}", base, files).all()


# one new segment


def check_segment(cleaned: CleanedSegment, group: PlainGroup, directory: str, files: Files, job: CleanJob) -> None:
    assert cleaned.sources == group.sources and cleaned.base_offset == group.sources[0]
    path = f"{directory}/{cleaned.base_offset:020d}{LOG}{CLEANED}"
    data = files.read(path)
    check_batches(data, group.batches)
    assert txns_of(directory, cleaned.base_offset, CLEANED, files) == group.aborted
    found = [header for header, _ in entries(data)]
    assert cleaned.size_bytes == len(data)
    if all(header.record_count >= 0 for header in found):
        assert cleaned.record_count == sum(header.record_count for header in found)
    assert cleaned.control_record_count == sum(header.record_count for header in found if header.is_control)
    latest = max((header.max_timestamp for header in found), default=-1)
    offset = next((h.last_offset for h in found if h.max_timestamp == latest >= 0), cleaned.base_offset)
    assert (cleaned.max_timestamp_ms, cleaned.max_timestamp_offset) == (latest, offset)
    last = next(source for source in job.segments if source.base_offset == cleaned.sources[-1])
    assert os.stat(path).st_mtime_ns == last.modified_ns
    check_indexes(path, data, job)


def check_batches(data: bytes, expected: list[bytes]) -> None:
    """Byte for byte; what was packed anew may have other bytes, if it unpacks to the same."""
    if data == b"".join(expected):
        return
    found = [batch for _, batch in entries(data)]
    for batch, plain in zip(found, expected, strict=False):
        (header, _), (plain_header, _) = next(entries(batch)), next(entries(plain))
        assert header._replace(crc=0, batch_length=0) == plain_header._replace(crc=0, batch_length=0)
        assert records_of(header, batch) == records_of(plain_header, plain), f"other records in {header}"
        assert header.codec != NONE or batch == plain, f"{header} has other bytes"
    assert len(found) == len(expected), f"{len(found)} batches instead of {len(expected)}"


def check_indexes(path: str, data: bytes, job: CleanJob) -> None:
    """As an append would have made them: entries lead to batches, and none is missing."""
    stem = path.removesuffix(LOG + CLEANED)
    base = int(stem[-20:])
    for suffix in SEGMENT_FILES[:3]:
        assert os.path.exists(stem + suffix + CLEANED), f"there is no {suffix}"
    raw = Path(f"{stem}.index{CLEANED}").read_bytes()
    offsets = [
        (base + int.from_bytes(raw[n : n + 4]), int.from_bytes(raw[n + 4 : n + 8])) for n in range(0, len(raw), 8)
    ]
    raw = Path(f"{stem}.timeindex{CLEANED}").read_bytes()
    times = [
        (int.from_bytes(raw[n : n + 8]), base + int.from_bytes(raw[n + 8 : n + 12])) for n in range(0, len(raw), 12)
    ]
    positions: dict[int, int] = {}
    largest: list[tuple[int, int]] = []
    position, latest = 0, -1
    for header, batch in entries(data):
        positions[header.last_offset] = position
        if header.max_timestamp > latest:
            latest = header.max_timestamp
            largest.append((latest, header.last_offset))
        position += len(batch)
    assert offsets == sorted(set(offsets)) and times == sorted(set(times))
    for offset, at in offsets:
        assert positions.get(offset) == at, f"{path}: the index says {offset} at {at}: {positions}"
    for time in times:
        assert time in largest, f"{path}: the time index says {time}: {largest}"
    assert (times[-1:] or [(-1, base)]) == (largest[-1:] or [(-1, base)]), "the latest time is missing"
    stops = [0, *(at for _, at in offsets), position]
    widest = max((len(batch) for _, batch in entries(data)), default=0)
    room = job.segment_index_bytes // 8 - 1, job.segment_index_bytes // 12 - 1
    if len(offsets) < room[0] and len(times) < room[1]:
        gaps = [after - before for before, after in pairwise(stops)]
        assert max(gaps) <= job.index_interval_bytes + 2 * widest, f"{path}: entries are missing: {gaps}"


def put_in_place(cleaned: CleanedSegment, directory: str, job: CleanJob) -> None:
    for base in cleaned.sources:
        for suffix in SEGMENT_FILES:
            Path(f"{directory}/{base:020d}{suffix}").unlink(missing_ok=True)
    for suffix in SEGMENT_FILES:
        new = Path(f"{directory}/{cleaned.base_offset:020d}{suffix}{CLEANED}")
        if new.exists():
            new.rename(str(new).removesuffix(CLEANED))
    segment = Segment(
        directory, cleaned.base_offset, cleaned.size_bytes, TopicConfig(segment_index_bytes=job.segment_index_bytes), 0,
        Files(),
    )  # fmt: skip
    data = Path(segment.path).read_bytes()
    lasts = [header.last_offset for header, _ in entries(data)]
    before = -1
    position = 0
    for last, (_, batch) in zip(lasts, entries(data), strict=True):
        assert segment.find(last) == segment.find(before + 1) == (position, len(batch))
        position += len(batch)
        before = last
    assert segment.find(before + 1) is None
    segment.abandon()


def check_stats(result: CleanResult, plain: PlainResult, job: CleanJob, before: Contents, after: Contents) -> None:
    read = {base for group in plain.groups for base in group.sources}
    stats = result.stats
    assert stats.bytes_read == sum(source.size_bytes for source in job.segments if source.base_offset in read)
    assert stats.map_keys == len(plain.last_of_keys)
    dropped = stats.tombstones_dropped + stats.keyless_dropped + stats.aborted_dropped + stats.markers_dropped
    assert stats.records_read - stats.records_kept == before.record_count - after.record_count
    assert dropped <= stats.records_read - stats.records_kept or not result.is_complete
