"""After any history of writes, passes of the cleaner, crashes and starts, a compacted log keeps what it promised.

Some histories each time, and 20,000 in the long form, eight parts that may run side by side; a cleaning that ends at
every one of its calls to the disk; and the same steps as a state machine, for which hypothesis looks for short
failures. A history that fails is told in its shortest form, and can be played again by its number.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.cleaner.compaction_model import CompactedHistory
from tests.support.log.faulty_files import Ended, Killed, PowerCut
from tests.support.log.history import Step, run, tell

PARTS = 8
HISTORIES = 20_000


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[str]:
    """A directory in memory, where there is one: a history opens a thousand files."""
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="kafkalite-model-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def play(root: str, seeds: range) -> tuple[int, int]:
    """How many passes and swaps there were."""
    passes = swaps = 0
    for seed in seeds:
        steps = CompactedHistory.plan(seed)
        try:
            history = run(CompactedHistory, root, seed, steps)
            assert isinstance(history, CompactedHistory)
            passes += history.passes
            swaps += history.swaps
        except Exception as error:
            raise AssertionError(tell(CompactedHistory, root, seed, steps)) from error
    return passes, swaps


def test_some_histories(memory_disk: str) -> None:
    passes, swaps = play(memory_disk, range(60))
    assert passes > 60 and swaps > 60, "the histories do not compact"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_twenty_thousand_histories(part: int, memory_disk: str) -> None:
    count = HISTORIES // PARTS
    play(memory_disk, range(1000 + part * count, 1000 + (part + 1) * count))


# a cleaning that ends at any of its calls


class _Ending(CompactedHistory):
    """Ends at call `at` of a cleaning, starts again, and must have everything."""

    at = 0
    by: type[Ended] = PowerCut

    def play(self, steps: list[Step]) -> None:
        self.is_armed, self.was_reached = False, False
        super().play(steps)

    def arm(self, random: Random) -> None:
        self.is_armed = True
        self.files.end_at = self.files.calls + self.at
        self.files.end_by = self.by

    def end_soon(self, random: Random) -> None:
        if not self.is_armed:  # else it ends where it is to end
            super().end_soon(random)

    def disarm(self, random: Random) -> None:
        self.is_armed = False
        self.files.end_at = 0

    def _start_again(self, random: Random) -> None:
        if self.is_armed:
            self.is_armed, self.was_reached = False, True
        super()._start_again(random)


def steps_of(seed: int) -> list[Step]:
    random = Random(seed)
    names = random.choices(("put", "put", "put", "put", "transaction", "roll"), k=20)
    before = [(name, random.randrange(1 << 30)) for name in names]
    deed = [("arm", 0), ("clean", random.randrange(1 << 30)), ("disarm", 0)]
    return [*before, ("flush", 1), ("roll", 1), *deed, ("put", 3), ("clean", 4), ("check", 5), ("power_cut", 6)]


_MINUTES = pytest.mark.timeout(1800)  # some minutes each on busy cores


@pytest.mark.parametrize("by", [PowerCut, Killed])
@pytest.mark.parametrize(
    ("seeds", "stride"),
    [
        pytest.param((1, 3), 7, id="some"),
        *(pytest.param((n,), 1, id=f"every-{n}", marks=[pytest.mark.long, _MINUTES]) for n in range(4, 30)),
    ],
)
def test_every_call_of_a_pass_may_be_the_last(
    by: type[Ended], seeds: Sequence[int], stride: int, memory_disk: str
) -> None:
    for seed in seeds:
        at = 1 - stride
        was_reached = True
        while was_reached:
            at += stride
            ending = type("_Ending", (_Ending,), {"at": at, "by": by})
            try:
                history = run(ending, memory_disk, seed, steps_of(seed))
            except Exception as error:
                raise AssertionError(f"seed {seed}, ended at call {at} of the cleaning: {error}") from error
            assert isinstance(history, _Ending)
            was_reached = history.was_reached


# the same as a state machine

seeds = st.integers(0, (1 << 30) - 1)


class CompactedLogMachine(RuleBasedStateMachine):
    """The rules are the steps of a history."""

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = tempfile.mkdtemp(dir=where, prefix="kafkalite-machine-")
        self.history = CompactedHistory(f"{self.root}/log", seed)

    def _do(self, name: str, seed: int) -> None:
        random = Random(seed)
        try:
            self.history.step(name, random)
        except Ended:
            self.history._start_again(random)

    @rule(seed=seeds, count=st.integers(1, 4))
    def put(self, seed: int, count: int) -> None:
        for number in range(count):
            self._do("put", seed + number)

    @rule(seed=seeds)
    def transaction(self, seed: int) -> None:
        self._do("transaction", seed)

    @rule(seed=seeds)
    def without_key(self, seed: int) -> None:
        self._do("without_key", seed)

    @rule(seed=seeds)
    def roll(self, seed: int) -> None:
        self._do("roll", seed)

    @precondition(lambda self: len(self.history.log.segments) > 1)
    @rule(seed=seeds)
    def clean(self, seed: int) -> None:
        self._do("clean", seed)

    @rule(seed=seeds)
    def time_passes(self, seed: int) -> None:
        self._do("wait", seed)

    @rule(seed=seeds, what=st.sampled_from(("retain", "delete_before")))
    def grow_old(self, seed: int, what: str) -> None:
        self._do(what, seed)

    @rule(seed=seeds, what=st.sampled_from(("look_slowly", "hold", "check")))
    def look(self, seed: int, what: str) -> None:
        self._do(what, seed)

    @rule(seed=seeds, what=st.sampled_from(("flush", "work", "hear", "checkpoint", "configure", "fault")))
    def others_work(self, seed: int, what: str) -> None:
        self._do(what, seed)

    @rule(seed=seeds, what=st.sampled_from(("restart", "kill", "power_cut", "end_soon")))
    def end(self, seed: int, what: str) -> None:
        self._do(what, seed)

    def teardown(self) -> None:
        if hasattr(self, "history"):
            try:
                self._do("kill", 0)
                self._do("check", 0)
            finally:
                self.history._stop()
                shutil.rmtree(self.root, ignore_errors=True)


CompactedLogMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = CompactedLogMachine.TestCase
