"""Exact numbers after random histories, with disks that work and with disks that fail, against a plain recount."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.record.batch import build_batch, parse_header
from kafkalite.record.compression import GZIP, NONE
from kafkalite.record.record import read_records
from tests.support.log.history import LogHistory, run, tell
from tests.support.log.record_count_disk import Disk, marker, records, recount


class History:
    """Steps that may happen to a log; each looks at its number and does something with it."""

    def __init__(self, directory: Path, *, later: bool) -> None:
        self.disk = Disk(directory, later=later)

    def append(self, number: int) -> None:
        random = Random(number)
        self.disk.append(build_batch(records(random.randint(1, 6), random), codec=random.choice((NONE, NONE, GZIP))))

    def end_transaction(self, number: int) -> None:
        self.disk.append(marker(number % 2))

    def delete(self, number: int) -> None:
        log = self.disk.log
        log.delete_records_before(log.start_offset + number % (log.end_offset - log.start_offset + 1))

    def delete_segments(self, number: int) -> None:
        log = self.disk.log
        log.delete_records_before(max(log.start_offset, log.segments[number % len(log.segments)].base_offset))

    def truncate(self, number: int) -> None:
        """To where a batch begins: a log is never cut inside one."""
        log = self.disk.log
        bases = [parse_header(batch).base_offset for batch in log.batches(log.start_offset)]
        bases = [base for base in bases if base >= log.start_offset]
        if bases and number % 4 == 0:
            log.truncate_to(bases[number % len(bases)])

    def restart(self, number: int) -> None:
        self.disk.restart()

    def kill(self, number: int) -> None:
        if number % 2:
            self.disk.work()
            self.disk.log.flusher.flush()
        self.disk.kill()

    def clean(self, number: int) -> None:
        """Apache Kafka was here, and its cleaner: a sealed segment is another file with fewer records."""
        disk, random = self.disk, Random(number)
        disk.stop()
        sealed = disk.log.segments[:-1]
        if sealed:
            path = Path(random.choice(sealed).path)
            before = path.stat()
            swap = path.with_suffix(".swap")
            swap.write_bytes(compacted(path.read_bytes(), random))
            os.utime(swap, ns=(before.st_atime_ns, before.st_mtime_ns // 1_000_000 * 1_000_000))
            swap.replace(path)
            for suffix in (".index", ".timeindex"):
                path.with_suffix(suffix).write_bytes(b"")
        disk.log = disk._open()

    def damage(self, number: int) -> None:
        noted, random = self.disk.noted, Random(number)
        if noted.exists() and (data := bytearray(noted.read_bytes())):
            at = random.randrange(len(data))
            if number % 3 == 0:
                del data[at:]
            elif number % 3 == 1:
                data[at] ^= random.randint(1, 255)
            else:
                data[at:at] = data[:at]
            noted.write_bytes(data)

    def ask(self, number: int) -> None:
        """A count that is reported is right."""
        counts = self.disk.log.record_counts.current()
        for told, (base, size, live, control) in zip(counts.segments, self.disk.recount(), strict=True):
            assert told[:2] == (base, size)
            assert told[2:] in ((live, control), (None, None))
        assert counts.is_counting or None not in (counts.live_records, counts.control_records)

    def work(self, number: int) -> None:
        """The other hand carries out a job, and the owner may not have heard of it."""
        if self.disk.pending:
            self.disk.pending.popleft()()
            if number % 2:
                self.disk.background.run_completions()


def compacted(data: bytes, random: Random) -> bytes:
    out = bytearray()
    position = 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        batch = data[position : position + size]
        position += size
        header = parse_header(batch)
        if header.is_control or random.random() < 0.3:
            out += batch
            continue
        kept = [record for record in read_records(batch) if random.random() < 0.5]
        if kept or random.random() < 0.5:
            out += build_batch(
                kept,
                base_offset=header.base_offset,
                codec=header.codec,
                offset_deltas=[record.offset - header.base_offset for record in kept],
                last_offset_delta=header.last_offset_delta,
                leader_epoch=header.leader_epoch,
            )
    return bytes(out)


STEPS = {
    "append": 10, "end_transaction": 3, "delete": 3, "delete_segments": 1, "truncate": 2, "restart": 3, "kill": 2,
    "clean": 2, "damage": 2, "ask": 5, "work": 4,
}  # fmt: skip
steps = st.lists(
    st.tuples(
        st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]), st.integers(0, 1 << 20)
    ),
    min_size=1,
    max_size=40,
)


def play(directory: Path, steps: list[tuple[str, int]], *, later: bool) -> None:
    history = History(directory, later=later)
    for name, number in steps:
        getattr(history, name)(number)
    history.disk.check()
    history.disk.log.abandon()


@pytest.fixture
def new_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # nobody loses power here
    made = iter(range(1 << 30))
    return lambda: tmp_path / str(next(made))


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)


@relaxed
@given(steps, st.booleans())
def test_whatever_happens_the_numbers_are_those_of_a_recount(
    new_directory: Callable[[], Path], steps: list[tuple[str, int]], later: bool
) -> None:
    play(new_directory(), steps, later=later)


@pytest.mark.long
@pytest.mark.timeout(1200)
@settings(relaxed, max_examples=20000)
@given(steps, st.booleans())
def test_whatever_happens_for_longer_the_numbers_are_those_of_a_recount(
    new_directory: Callable[[], Path], steps: list[tuple[str, int]], later: bool
) -> None:
    play(new_directory(), steps, later=later)


class CountedHistory(LogHistory):
    """One on a disk that fails in every way, where now and then somebody asks for the numbers."""

    def ask(self) -> None:
        log = self.log
        self.files.heal()
        counts = log.record_counts.current()
        sizes = {segment.base_offset: segment.size_bytes for segment in log.segments}
        told = recount(Path(log.directory), log.start_offset, sizes)
        for one, (base, size, live, control) in zip(counts.segments, told, strict=True):
            assert tuple(one[:2]) == (base, size)
            assert tuple(one[2:]) in ((live, control), (None, None)), f"{one}, counted {live} and {control}"

    def wait(self, random: Random) -> None:
        super().wait(random)
        self.ask()

    def check(self, random: Random) -> None:
        super().check(random)
        self.ask()

    def _reopen(self, random: Random, *, everything: bool) -> None:
        super()._reopen(random, everything=everything)
        if random.random() < 0.5:
            self.ask()


def play_with_faults(root: Path, seeds: range) -> None:
    for seed in seeds:
        steps = CountedHistory.plan(seed)
        try:
            run(CountedHistory, str(root), seed, steps)
        except Exception:
            pytest.fail(tell(CountedHistory, str(root), seed, steps))


def test_on_a_disk_that_fails_no_number_is_wrong(new_directory: Callable[[], Path]) -> None:
    play_with_faults(new_directory(), range(150))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_on_a_disk_that_fails_for_longer_no_number_is_wrong(new_directory: Callable[[], Path]) -> None:
    play_with_faults(new_directory(), range(150, 5000))
