"""The rest of a group goes to a further segment where one file has no room for it, or no index could express it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.cleaner.compaction.cleaned_segment_writer import CleanedSegmentWriter
from kafkalite.cleaner.compaction.segment_reader import read_pieces
from kafkalite.cleaner.job.job import CleanJob
from kafkalite.log.index.transaction_index import AbortedTxn, TransactionIndex
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import GZIP
from tests.support.cleaner.partition_directory import bases, batches, clean_job, run

FAR = 1 << 31
NOW_MS = 1_700_000_000_000


def job_of(directory: Path, bytes_max: int) -> CleanJob:
    (directory / f"{0:020d}.log").touch()
    plan = {"first_dirty": 0, "first_uncleanable": 1, "producers": {}}
    return clean_job(directory, plan, NOW_MS, index_interval_bytes=0, segment_bytes_max=bytes_max)


def written(directory: Path, cleaned: CleanedSegment) -> list[list[tuple[int, int]]]:
    """(base offset, last offset) of the batches in each segment."""
    found = []
    for each in cleaned.all:
        with open(directory / f"{each.base_offset:020d}.log.cleaned", "rb") as file:
            found.append([(h.base_offset, h.last_offset) for _, h in iter_headers(file.fileno(), 0, each.size_bytes)])
    return found


@given(
    spans=st.lists(
        st.tuples(st.sampled_from((0, 1, 9, FAR - 2, FAR, 3 * FAR)), st.integers(1, 3)), min_size=1, max_size=12
    ),
    bytes_max=st.sampled_from((50, 100, 250, 700, 1 << 30)),
    at_once=st.integers(1, 12),
)
def test_every_batch_is_in_one_of_them_and_each_has_room(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], bytes_max: int, at_once: int
) -> None:
    directory = tmp_path_factory.mktemp("t") / "t-0"
    directory.mkdir()
    offset, made = 0, []
    for span, count in spans:
        records = [NewRecord(b"k", b"v" * 9, (), NOW_MS + number) for number in range(count)]
        made.append((offset + span, count, bytes(build_batch(records, base_offset=offset + span))))
        offset += span + count
    job = job_of(directory, bytes_max)
    writer = CleanedSegmentWriter(Files(), job, 0)
    aborted = [AbortedTxn(7, first, first + count - 1, first) for first, count, _ in made[::2]]
    for at in range(0, len(made), at_once):
        part = made[at : at + at_once]
        size = np.array([len(data) for _, _, data in part])
        last = np.array([first + count - 1 for first, count, _ in part])
        writer.append(b"".join(data for _, _, data in part), size, last, np.full(len(part), NOW_MS))
    for txn in aborted:
        writer.add_aborted(txn)
    cleaned = writer.finish(job.segments)

    segments = written(directory, cleaned)
    assert [pair for found in segments for pair in found] == [(f, f + count - 1) for f, count, _ in made]
    for each, found in zip(cleaned.all, segments, strict=True):
        assert each.size_bytes <= bytes_max or len(found) == 1
        assert all(each.base_offset <= first and last - each.base_offset < FAR for first, last in found)
        index = TransactionIndex(
            str(directory / f"{each.base_offset:020d}.txnindex.cleaned"), each.base_offset, Files()
        )
        lasts = {last for _, last in found}
        assert index.all() == [txn for txn in aborted if txn.last_offset in lasts]
        stored = np.frombuffer((directory / f"{each.base_offset:020d}.index.cleaned").read_bytes(), ">i4")[0::2]
        assert {each.base_offset + int(one) for one in stored} <= lasts
    assert [each.base_offset for each in cleaned.all] == sorted({each.base_offset for each in cleaned.all})
    assert cleaned.record_count == (0 if len(cleaned.all) == 1 else -1)
    writer.remove()
    assert [path.name for path in directory.iterdir()] == [f"{0:020d}.log"]


def test_batches_that_grow_when_they_are_compressed_again_take_one_segment_more(tmp_path: Path) -> None:
    """KAFKA-20036: the producer compressed better than the broker does, so what is left may be larger than before."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    random, data = Random(1), b""
    for number in range(20):
        records = [NewRecord(b"%d" % (number * 7 + at), random.randbytes(30), (), NOW_MS) for at in range(7)]
        records.append(NewRecord(b"superseded", b"", (), NOW_MS))
        data += bytes(build_batch(records, base_offset=number * 8, codec=GZIP))
    (directory / f"{0:020d}.log").write_bytes(data)
    (directory / f"{160:020d}.log").touch()
    plan = {"first_dirty": 0, "first_uncleanable": 160, "producers": {}}
    job = clean_job(directory, plan, NOW_MS, segment_bytes_max=len(data) // 3)
    result = run(job)
    assert result.is_complete and result.end_offset == 160
    offsets = [record.offset for one in batches(directory) for record in one["records"]]
    assert offsets == [at for at in range(160) if at % 8 != 7 or at == 159]
    assert len(bases(directory)) > 4
    sizes = [path.stat().st_size for path in sorted(directory.glob("*.log"))]
    assert max(sizes) <= len(data) // 3
    assert all(read_pieces(Files(), str(path), path.stat().st_size, 1 << 20) for path in directory.glob("*.log"))
