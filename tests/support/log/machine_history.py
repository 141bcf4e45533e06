"""Random histories of two brokers of one machine, whose logs share sealed segments by links, on a disk that forgets.

As `directory_history`, with a directory for each broker. What one of them has of a topic the other may take over by
links (`linked_copy`), and from then on both are written, cut and deleted as if there were no other. Each has a ledger
of its own, so a byte that comes from the other log is one that nobody wrote. The ends are those of the machine.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections import deque
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

from kafkalite.common.errors import StorageError
from kafkalite.log.directories import linked_copy
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN
from kafkalite.log.storage.files import Job
from tests.support.log.directory_history import _STEPS, DirectoryHistory, _Topic
from tests.support.log.faulty_files import FaultyFiles
from tests.support.log.history import START_MS, Step
from tests.support.manual_clock import ManualClock

_BROKERS = 2


class _Side:
    """One broker: what `DirectoryHistory` has of the only one."""

    manager: LogManager

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self.gone: set[str] = set()
        self.pending: deque[Job] = deque()


class MachineHistory(DirectoryHistory):
    """Each step is one of the broker that its seed chooses, and `take_over` links what only the other has."""

    @staticmethod
    def plan(seed: int) -> list[Step]:
        random = Random(seed)
        steps = {**_STEPS, "take_over": 40, "delete": 8, "truncate": 10}
        names = random.choices(list(steps), list(steps.values()), k=random.randint(5, 50))
        return [(name, random.randrange(1 << 30)) for name in ["create", *names, "power_cut"]]

    def __init__(self, directory: str, seed: int) -> None:
        random = Random(seed)
        self.loop = asyncio.new_event_loop()
        self.directory = directory
        self.epoch = self.batches = self.disks = self.taken_over = 0
        self.clock = ManualClock(START_MS)
        self.sides = [_Side() for _ in range(_BROKERS)]
        for number in range(_BROKERS):
            os.makedirs(f"{directory}/disk-0/broker{number}")
        self.files = FaultyFiles(
            f"{directory}/disk-0", ordered=random.random() < 0.4, block_bytes=random.choice((64, 4096)),
            open_segments=random.choice((4, 64)),
        )  # fmt: skip
        self._open_anew()
        for _ in self._each():
            self.manager.complete_start()

    def play(self, steps: list[Step]) -> None:
        with patch.object(linked_copy, "_PAUSE_S", 0), patch.object(linked_copy, "_ATTEMPTS", 2):
            super().play(steps)

    def step(self, name: str, random: Random) -> None:
        self._turn_to_broker(random.randrange(_BROKERS))
        super().step(name, random)

    def _turn_to_broker(self, number: int) -> _Side:
        side = self.sides[number]
        self.number, self.manager = number, side.manager
        self.topics, self.gone, self.pending = side.topics, side.gone, side.pending
        return side

    def _each(self) -> Iterator[_Side]:
        return map(self._turn_to_broker, range(_BROKERS))

    # what happens

    def take_over(self, random: Random) -> None:
        source = self.sides[1 - self.number]
        names = [name for name in sorted(source.topics.keys() - self.topics.keys()) if source.manager.get(name, 0)]
        if not names:
            return
        name = random.choice(names)
        theirs, topic, key = source.manager.get(name, 0), source.topics[name], (name, 0)
        assert theirs is not None
        if random.random() < 0.8:
            try:
                theirs.roll(self.clock.wall_ms())
            except StorageError:
                return
        self.gone.add(name)  # a power cut may bring back what came of an attempt
        if (found := self.manager.link(key, 1 - self.number, topic.id)) is None:
            return
        try:
            self.manager.create_from(key, found, topic.config)
            log = self.manager.get(name, 0)
            assert log is not None
            log.delete_records_before(min(theirs.start_offset, log.end_offset))  # as the leader's answers tell
        except StorageError:
            self._kill(random)
            return
        self.topics[name] = self._copy_of(topic, name)
        self.taken_over += 1

    def _copy_of(self, topic: _Topic, name: str) -> _Topic:
        """Promises what is flushed under the new name."""
        log = self.manager.get(name, 0)
        assert log is not None
        own = copy.copy(topic)
        own.ledger, own.sequences = copy.deepcopy(topic.ledger), {}
        own.start_after_kill = own.truncations = own.committed_before = 0
        ledger = own.ledger
        ledger.chain = [each for each in ledger.chain if each.last < log.end_offset]
        ledger.promised, ledger.start_kept = log.flusher.recovery_point, 0
        ledger.start_asked = ledger.start_reached = log.start_offset
        ledger.check(log)
        self.log, self.ledger, self.sequences = log, ledger, own.sequences
        self._forget_sequences()
        return own

    # the ends, and the starts behind them

    def restart(self, random: Random) -> None:
        starts = []
        for side in self._each():
            while self.pending:
                self.work(random)
            starts.append({name: log.start_offset for (name, _), log in side.manager.logs.items()})
        for side in self.sides:
            side.manager.close()
        if not all(os.path.exists(f"{self.files.root}/broker{n}/{CLEAN_SHUTDOWN}") for n in range(_BROKERS)):
            self._kill(random)
            return
        for side, start_offsets in zip(self.sides, starts, strict=True):
            for name, topic in side.topics.items():
                topic.ledger.promised = topic.ledger.end
                topic.ledger.start_kept = topic.ledger.start_asked = start_offsets[name]
        self.files = self._cut(random) if random.random() < 0.3 else self.files.kill()
        self._reopen(random, everything=True, clean=True)

    def _stop(self) -> None:
        for _ in self._each():
            super()._stop()

    def _take_up(self, *, everything: bool, power_was_cut: bool) -> None:
        for _ in self._each():
            super()._take_up(everything=everything, power_was_cut=power_was_cut)

    def _open_anew(self) -> None:
        self.clock = ManualClock(self.clock.wall_ms())
        for number, side in enumerate(self.sides):
            self.topics = side.topics
            if hasattr(side, "manager"):
                self.manager = side.manager
            try:
                self._open_manager(f"{self.files.root}/broker{number}", number)
            finally:  # it is to be stopped also if it does not come to its end
                side.manager, side.pending = self.manager, self.pending
        handlers = [side.manager._on_io_error for side in self.sides]
        root = len(f"{self.files.root}/broker")
        self.files.on_io_error = lambda path, error: handlers[int(path[root])](path, error)
