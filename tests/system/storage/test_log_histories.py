"""After any history, and any end of it, a log serves what was appended up to somewhere, and at least what was promised.

Some hundred random histories each time, 21,000 in the long form; and the ends that are worth trying one by one: an
append torn at every byte, and every call of a roll, a deletion, a checkpoint, a new epoch, a snapshot, a recovery and a
stop as the last one. A history that fails is told in its shortest form, and can be played again by its number.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.log_loader import LoadOptions
from tests.support.log.directory_history import DirectoryHistory
from tests.support.log.faulty_files import Ended, Killed, PowerCut
from tests.support.log.history import LogHistory, Step, run, tell
from tests.support.log.ledger import make_batch
from tests.support.log.machine_history import MachineHistory


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[str]:
    """A directory in memory, where there is one: a history opens a thousand files."""
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="kafkalite-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def play(make: type[LogHistory], root: str, seeds: range) -> None:
    for seed in seeds:
        steps = make.plan(seed)
        try:
            run(make, root, seed, steps)
        except Exception as error:
            raise AssertionError(tell(make, root, seed, steps)) from error


@pytest.mark.parametrize(("make", "count"), [(LogHistory, 150), (DirectoryHistory, 50), (MachineHistory, 50)])
def test_some_histories(make: type[LogHistory], count: int, memory_disk: str) -> None:
    play(make, memory_disk, range(count))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize(("make", "count"), [(LogHistory, 1800), (DirectoryHistory, 750), (MachineHistory, 375)])
def test_many_histories(make: type[LogHistory], count: int, part: int, memory_disk: str) -> None:
    play(make, memory_disk, range(1000 + part * count, 1000 + (part + 1) * count))


# What comes before, and the deed during which it all ends. The numbers are the seeds of the steps.
_BEFORE: list[Step] = [("append", n) for n in range(6)]
_DEEDS: dict[str, list[Step]] = {
    "append": [("append", 7)],
    "roll": [("append", n) for n in range(7, 12)],
    "flush": [("flush", 1)],
    "deletion": [("flush", 1), ("delete_before", 3), ("wait", 1), ("work", 1)],
    "replication": [("follow", n) for n in range(7, 11)],
    "truncation": [("truncate", 4)],
    "new beginning": [("flush", 1), ("restart_at", 3), ("follow", 1)],
    "background work": [("work", 1), ("hear", 1), ("work", 2), ("hear", 2), ("work", 3)],
    "epochs": [("append", n) for n in (20, 31, 42, 53, 64, 75)],
    "compaction": [("append", 8), ("flush", 1), ("checkpoint", 1), ("compact", 20), *[("work", 3), ("hear", 1)] * 3],
    "stop": [("restart", 2)],
    "start": [("start", 1)],
    "split": [("split", 5)],
    "split after a clean stop": [("split", 4)],
}
_DEEDS_OF_TOPICS: dict[str, list[Step]] = {
    "creation": [("create", n) for n in range(4)],
    "deletion": [("delete", 1), ("wait", 1), ("work", 1), ("create", 1), ("create", 2), ("append", 1)],
    "checkpoint": [("flush", 1), ("checkpoint", 1), ("work", 3), ("work", 3)],
    "truncation": [("flush", 1), ("checkpoint", 1), ("work", 3), ("work", 3), ("truncate", 5), ("append", 1)],
    "new beginning": [("flush", 1), ("checkpoint", 1), ("work", 3), ("restart_at", 1), ("append", 1)],
    "records deleted": [("delete_before", 5), ("keep_start", 1), ("work", 1), ("work", 2)],
    "stop": [("restart", 1)],
    "start": [("start", 1)],
}


class _Ending(LogHistory):
    """Ends at call `at` behind the first steps, goes on as well as it can, and ends again without a warning."""

    at = 0
    by: type[PowerCut] | type[Killed] = PowerCut
    first: list[Step] = _BEFORE

    def play(self, steps: list[Step]) -> None:
        super().play([*self.first, ("arm", 0), *steps, ("disarm", 0), ("check", 0), ("append", 5), ("power_cut", 6)])

    def arm(self, random: Random) -> None:
        self.is_armed, self.was_reached = True, False
        self.files.end_at = self.files.calls + self.at
        self.files.end_by = self.by

    def disarm(self, random: Random) -> None:
        self.is_armed = False
        self.files.end_at = 0

    def start(self, random: Random) -> None:
        """After a kill; the start is what does not come to its end."""
        self._stop()
        self.files = self.files.kill()
        self._try_start(random)

    def split(self, random: Random) -> None:
        """A start that splits the last segment, which is on the disk."""
        self._stop()
        self.files = self.files.kill()
        self.write_far(random)
        self._try_start(random)

    def _try_start(self, random: Random) -> None:
        self.arm(random)
        try:
            self._open_anew()
        except Ended:
            self._start_again(random)
        else:
            self._kill(random)

    def _start_again(self, random: Random) -> None:
        if self.is_armed:
            self.is_armed, self.was_reached = False, True
        super()._start_again(random)


class _LogEnding(_Ending):
    pass


class _DirectoryEnding(_Ending, DirectoryHistory):
    first: ClassVar[list[Step]] = [("create", 0), ("create", 1), *_BEFORE, ("append", 6), ("append", 7), ("append", 8)]


@pytest.mark.parametrize("by", [PowerCut, Killed])
@pytest.mark.parametrize(
    ("make", "deed"),
    [*((_LogEnding, deed) for deed in _DEEDS), *((_DirectoryEnding, deed) for deed in _DEEDS_OF_TOPICS)],
)
@pytest.mark.parametrize(
    ("seeds", "stride"),
    [(range(1), 9), pytest.param(range(1, 9), 1, marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
    ids=["some", "every"],
)
def test_every_call_may_be_the_last(
    make: type[_Ending], deed: str, by: type[PowerCut] | type[Killed], seeds: range, stride: int, memory_disk: str
) -> None:
    steps = (_DEEDS if make is _LogEnding else _DEEDS_OF_TOPICS)[deed]
    for seed in seeds:
        at = 1 - stride
        was_reached = True
        while was_reached:
            at += stride
            ending = type(make.__name__, (make,), {"at": at, "by": by})
            try:
                was_reached = run(ending, memory_disk, seed, steps).was_reached
            except Exception as error:
                raise AssertionError(f"seed {seed}, ended at call {at} of {deed}: {error}") from error


@pytest.mark.parametrize("tail", [b"", b"\0", b"\xff"], ids=["cut off", "zeros", "nonsense"])
def test_an_append_torn_at_every_byte(tail: bytes, memory_disk: str) -> None:
    """Earlier batches are there; the batch itself is there whole, or the next one takes its place."""
    history = LogHistory(memory_disk, 8)
    history.log.config = history.config = TopicConfig(segment_index_bytes=96)
    for number in range(3):
        history.append(Random(number))
    history.flush(Random(0))
    history.kept = LoadOptions(clean=False)
    path = history.log.segments[-1].path
    flushed = os.path.getsize(path)
    history.append(Random(5))
    whole = Path(path).read_bytes()
    assert len(history.ledger.chain) == 4 and len(whole) > flushed
    for upto in range(flushed, len(whole) + 1):
        content = whole[:upto] + tail * (len(whole) - upto)
        files = history.files.power_cut(f"{memory_disk}/torn-{upto}", Random(upto), {os.path.basename(path): content})
        log = history.open_on(files)
        ledger = copy(history.ledger)
        ledger.chain = history.ledger.chain.copy()
        ledger.reopened(log, everything=False)
        is_whole = content == whole  # it ends in a zero
        assert len(ledger.chain) == (4 if is_whole else 3)
        batch = make_batch(99, [1], 0)
        base = log.append(memoryview(batch), 9, 1).base_offset
        torn = history.ledger.chain[-1]
        assert base == (torn.last + 1 if is_whole else torn.base)
        log.abandon()
