"""Random histories of a data directory with a few logs that come and go, on a disk that forgets.

As `history`, with the log manager as the owner: it writes the checkpoints and the mark of an orderly stop, and the next
start believes them. The owner of the topics, here the history, deletes the directories of deleted ones that a power cut
brought back.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import deque
from random import Random
from unittest.mock import patch

from kafkalite.common.errors import StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import log_directory
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN
from tests.support.log.faulty_files import Ended, FaultyFiles, Killed, PowerCut
from tests.support.log.history import START_MS, LogHistory, Step
from tests.support.log.ledger import Ledger
from tests.support.manual_clock import ManualClock

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_NAMES = ("a", "b", "c")
_STEPS = {
    "append": 32, "follow": 8, "retry": 2, "flush": 5, "work": 10, "checkpoint": 6, "delete_before": 4, "keep_start": 3,
    "truncate": 4, "restart_at": 2, "wait": 6, "check": 2, "fault": 3, "create": 6, "delete": 3, "restart": 4,
    "kill": 4, "power_cut": 8, "end_soon": 7,
}  # fmt: skip


_OF_A_LOG = ("append", "follow", "retry", "flush", "delete_before", "keep_start", "truncate", "restart_at", "check")


class _Topic:
    """One life of a topic. `start_after_kill`: its log begins there or behind, unless the power failed."""

    def __init__(self, config: TopicConfig, random: Random) -> None:
        self.config = config
        self.id = uuid.UUID(int=random.getrandbits(128))
        self.ledger = Ledger()
        self.sequences: dict[int, tuple[int, int]] = {}
        self.start_after_kill = 0
        self.truncations = 0
        self.committed_before = 0


class DirectoryHistory(LogHistory):
    """`topics` are those that should be there, by name; `gone` the names of those that were deleted."""

    @staticmethod
    def plan(seed: int) -> list[Step]:
        random = Random(seed)
        names = random.choices(list(_STEPS), list(_STEPS.values()), k=random.randint(5, 40))
        return [(name, random.randrange(1 << 30)) for name in ["create", *names, "power_cut"]]

    def __init__(self, directory: str, seed: int) -> None:
        random = Random(seed)
        self.topics: dict[str, _Topic] = {}
        self.loop = asyncio.new_event_loop()
        self.directory = directory
        self.epoch = 0
        self.batches = 0
        self.disks = 0
        self.clock = ManualClock(START_MS)
        self.gone: set[str] = set()
        os.makedirs(f"{directory}/disk-0")
        self.files = FaultyFiles(
            f"{directory}/disk-0", ordered=random.random() < 0.4, block_bytes=random.choice((64, 4096)),
            open_segments=random.choice((4, 64)),
        )  # fmt: skip
        self._open_anew()
        self.manager.complete_start()

    def play(self, steps: list[Step]) -> None:
        try:
            with patch.object(log_directory, "_SYNC_THREADS", 1 << 30):
                super().play(steps)
        finally:
            self.loop.close()

    def step(self, name: str, random: Random) -> None:
        """Steps of a log are those of one of them."""
        if name in _OF_A_LOG:
            here = [topic for topic in sorted(self.topics) if self.manager.get(topic, 0) is not None]
            if not here:
                return
            self._turn_to(random.choice(here))
        getattr(self, name)(random)

    def _turn_to(self, name: str) -> PartitionLog:
        log = self.manager.get(name, 0)
        assert log is not None
        topic = self.topic = self.topics[name]
        self.log, self.ledger, self.sequences, self.config = log, topic.ledger, topic.sequences, topic.config
        self.committed_before = topic.committed_before
        return log

    # what happens

    def create(self, random: Random) -> None:
        name = random.choice(_NAMES)
        if name in self.topics:
            return
        topic = _Topic(self._config(random), random)
        self.gone.add(name)  # a power cut may bring back what came of an attempt
        try:
            self.manager.create(name, 0, topic.id, topic.config)
        except StorageError:
            return
        self.topics[name] = topic

    def delete(self, random: Random) -> None:
        if not self.topics:
            return
        name = random.choice(sorted(self.topics))
        if self.manager.get(name, 0) is None:
            return
        del self.topics[name]
        self.gone.add(name)
        try:
            self.manager.delete(name, 0)
        except StorageError:
            self._kill(random)

    def keep_start(self, random: Random) -> None:
        topic, start, refusals = self.topic, self.log.start_offset, self.files.refusals
        truncations = topic.truncations

        def kept() -> None:
            if self.files.refusals > refusals or self.manager.offline or topic.truncations > truncations:
                return  # what could not be written is logged, and done all the same; what was written since is newer
            topic.start_after_kill = max(topic.start_after_kill, start)

        self.manager.write_start_offsets([(self.log.topic, 0)], kept)

    def _before_truncation(self, start_offset: int, end_offset: int, empties: bool) -> None:
        """The manager writes this down."""
        self.topic.truncations += 1
        self.topic.start_after_kill = min(self.topic.start_after_kill, start_offset)

    def _keep_start(self, offset: int) -> None:
        """Whether the manager has done so is not known before the log has begun anew."""

    def work(self, random: Random) -> None:
        super().work(random)
        self.manager.run_completions()
        self._heed_all()

    def checkpoint(self, random: Random) -> None:
        self.manager.checkpoint()
        self._heed_all()

    def wait(self, random: Random) -> None:
        super().wait(random)
        self.manager.flush_if_due()
        self._heed_all()

    def _heed_all(self) -> None:
        for name, topic in self.topics.items():
            log = self.manager.get(name, 0)
            if log is not None:
                topic.ledger.promised = max(topic.ledger.promised, log.flusher.recovery_point)

    # the ends, and the starts behind them

    def restart(self, random: Random) -> None:
        manager = self.manager
        while self.pending:
            self.work(random)
        starts = {name: log.start_offset for (name, _), log in manager.logs.items()}
        manager.close()
        if not os.path.exists(f"{self.files.root}/{CLEAN_SHUTDOWN}"):
            self._kill(random)
            return
        for name, topic in self.topics.items():
            topic.ledger.promised = topic.ledger.end
            topic.ledger.start_kept = topic.ledger.start_asked = starts[name]
        self.files = self._cut(random) if random.random() < 0.3 else self.files.kill()
        self._reopen(random, everything=True, clean=True)

    def _stop(self) -> None:
        self.manager.directories.close()
        self.manager.logs.clear()
        self.pending.clear()

    def _reopen(self, random: Random, *, everything: bool, clean: bool = False) -> None:
        power_was_cut = not everything
        while random.random() < 0.3:  # the start does not come to its end
            self.files.end_at = self.files.calls + random.randint(1, 25)
            self.files.end_by = random.choice((PowerCut, PowerCut, Killed))
            try:
                self._open_anew()
            except Ended:
                cut = self.files.ended is PowerCut
            else:
                cut = False
            self._stop()
            if cut:
                self.files = self._cut(random)
                everything = everything and clean
                power_was_cut = True
            else:
                self.files = self.files.kill()
        self._open_anew()
        self._take_up(everything=everything, power_was_cut=power_was_cut)

    def _take_up(self, *, everything: bool, power_was_cut: bool) -> None:
        """Checks what the start has found, and goes on with it."""
        for name, topic in self.topics.items():
            log = self.manager.get(name, 0)
            if log is not None and self._is_of_another_life(log, topic):
                assert not everything and not topic.ledger.promised, f"{name} is an earlier one"
                log = None
            if log is None:
                assert not everything and not topic.ledger.promised, f"{name} is gone, promised {topic.ledger.promised}"
                continue
            topic.committed_before = log.flusher.ack_offset
            self._turn_to(name)
            self.ledger.reopened(log, everything=everything, forgets_names=not self.files.ordered)
            if power_was_cut:
                topic.start_after_kill = 0
            assert log.start_offset >= topic.start_after_kill
            self._forget_sequences()
            self.epoch = max(self.epoch, log.epochs.latest)
        self._see_to_topics()
        self.manager.complete_start()

    @staticmethod
    def _is_of_another_life(log: PartitionLog, topic: _Topic) -> bool:
        """A topic of that name was deleted before, and the power cut undid that. Its id may be lost."""
        if log.metadata.topic_id is not None:
            return log.metadata.topic_id != topic.id
        return any(not topic.ledger.knows(batch) for batch in log.batches(log.segments[0].base_offset))

    def _see_to_topics(self) -> None:
        """Checks that exactly the expected directories exist."""
        for name, _ in list(self.manager.logs):
            log = self.manager.get(name, 0)
            topic = self.topics.get(name)
            assert log is not None and (topic is not None or name in self.gone)
            if topic is None or self._is_of_another_life(log, topic):
                self.manager.delete(name, 0)
        for name in list(self.topics):
            if self.manager.get(name, 0) is None:
                del self.topics[name]
                self.gone.add(name)

    def _open_anew(self) -> None:
        self.clock = ManualClock(self.clock.wall_ms())  # the timers of the one before are gone
        self._open_manager(self.files.root, 0)

    def _open_manager(self, path: str, broker_id: int) -> None:
        self.pending = deque()
        settings = BrokerConfig.load({"broker.id": str(broker_id), "num.recovery.threads.per.data.dir": "1"})
        self.manager = LogManager([path], self.clock, settings, self.pending.append, self.files)
        configs = {name: topic.config for name, topic in self.topics.items()}
        self.loop.run_until_complete(
            self.manager.load(CLUSTER, lambda topic: configs.get(topic) or TopicConfig(segment_index_bytes=96))
        )
