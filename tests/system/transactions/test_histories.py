"""After any history of transactional producers, and any end of the broker in it, readers of what is committed find
exactly that, and nothing stays open.

Two hundred random histories each time, 20,000 in the long form; an end of a transaction, and a start after it, that end
at each of their calls to the disk; and brokers with a fault of their own, which the checker must not take for good. A
history that fails is told in its shortest form, and can be told again by its number.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.coordinator.marker_writer import MarkerWriter
from kafkalite.coordinator.offset_manager import OffsetManager
from kafkalite.coordinator.transaction import transaction
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.replication.partition import Partition
from tests.support.transactions.history import History, run, tell
from tests.support.transactions.steps import ORDERS, SHORT, WAITS, Plan, Step, plan


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[str]:
    """A directory in memory, where there is one: a history opens a thousand files."""
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="kafkalite-transactions-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def play(root: str, seeds: range) -> list[History]:
    histories = []
    for seed in seeds:
        try:
            histories.append(run(root, plan(seed)))
        except Exception as error:
            raise AssertionError(tell(root, plan(seed))) from error
    return histories


@pytest.mark.parametrize("part", range(8))
def test_some_histories(part: int, memory_disk: str) -> None:
    """They have all kinds of ends, of transactions and of brokers."""
    histories = play(memory_disk, range(part * 25, (part + 1) * 25))
    outcomes = Counter(each.outcome for history in histories for each in history.ledger.transactions)
    assert min(outcomes[True], outcomes[False], outcomes[None]) > 5, outcomes
    assert sum(history.driver.ends for history in histories) > 5


@pytest.mark.parametrize("seed", [9427, 19388])
def test_histories_that_have_failed_once(seed: int, memory_disk: str) -> None:
    """A marker that a full disk refuses; a power cut after a kill, with flush.messages."""
    play(memory_disk, range(seed, seed + 1))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(16))
def test_twenty_thousand_histories(part: int, memory_disk: str) -> None:
    play(memory_disk, range(1000 + part * 1250, 1000 + (part + 1) * 1250))


# Every call may be the last one

_BEGUN: tuple[Step, ...] = (
    ("send", "p2", ORDERS, 0, 2, WAITS),
    ("send", "p2", SHORT, 0, 1, WAITS),
    ("commit_offset", "p2", "g", ORDERS, 0, WAITS),
)
_DEEDS: dict[str, tuple[Step, ...]] = {
    "begin": _BEGUN,
    "commit": (("end", "p2", True, WAITS), ("work", 30)),
    "abort": (("end", "p2", False, WAITS), ("work", 30)),
    "replace": (("send", "p0", ORDERS, 1, 1, WAITS), ("init", "p1"), ("work", 30)),
    "time-out": (("wait", 70_000),),
    "compaction": (("end", "p2", True, WAITS), *((name, "__transaction_state", 1) for name in ("roll", "clean"))),
}


@pytest.mark.parametrize("by", ["kill", "power_cut"])
@pytest.mark.parametrize("dialect", ["mid", "new"])
@pytest.mark.parametrize("deed", _DEEDS)
@pytest.mark.parametrize(
    "stride", [23, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(1800)])], ids=["some", "every"]
)
def test_every_call_may_be_the_last(deed: str, dialect: str, by: str, stride: int, memory_disk: str) -> None:
    at, was_reached = 1, True
    while was_reached:
        steps: tuple[Step, ...] = (*(() if deed == "begin" else _BEGUN), ("end_soon", at, by, None), *_DEEDS[deed])
        dialects = tuple((name, dialect) for name in ("p0", "p1", "p2"))
        told = Plan(at, True, at % 2 == 0, dialects, 60_000, steps)
        try:
            was_reached = run(memory_disk, told).driver.ends > 0
        except Exception as error:
            raise AssertionError(f"ended at call {at} of {deed}: {tell(memory_disk, told)}") from error
        at += stride


# What it would find


def _reads_what_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def _forgets_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogTransactions, "aborted_in", lambda *_: [])


def _forgets_the_markers(patch: pytest.MonkeyPatch) -> None:
    write = MarkerWriter.write

    def write_most(self: MarkerWriter, job: object) -> None:
        job.missing = {each for each in job.missing if each[0] != SHORT}  # type: ignore[attr-defined]
        write(self, job)  # type: ignore[arg-type]

    patch.setattr(MarkerWriter, "write", write_most)


def _commits_every_offset(patch: pytest.MonkeyPatch) -> None:
    end = OffsetManager.on_transaction_end

    def always_committed(self: OffsetManager, index: int, producer_id: int, *, is_committed: bool) -> None:
        end(self, index, producer_id, is_committed=True)

    patch.setattr(OffsetManager, "on_transaction_end", always_committed)


def _takes_what_it_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerState, "check", lambda *_: None)


def _never_times_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction.Transaction, "abort_if_timed_out", lambda *_: [])


def _does_not_finish_after_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction.Transaction, "on_loaded", lambda *_: [])


@pytest.mark.parametrize(
    "break_it",
    [
        _reads_what_is_open,
        _forgets_what_was_aborted,
        _forgets_the_markers,
        _commits_every_offset,
        _takes_what_it_has,
        _never_times_out,
        _does_not_finish_after_a_start,
    ],
)
def test_a_broker_with_a_fault_is_found_out(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, memory_disk: str
) -> None:
    break_it(monkeypatch)
    for seed in range(40):
        try:
            run(memory_disk, plan(seed))
        except AssertionError:
            return
    raise AssertionError("the checker has found nothing")
