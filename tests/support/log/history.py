"""Random histories of one log on a disk that forgets: each a list of steps, each step with a seed of its own.

So a history that goes wrong is told by its number, and made shorter by leaving steps out (`shorten`); what stays does
what it did before. The steps act on the log as it is then; background work waits until a step carries it out. The owner
of a log, here the history, writes the checkpoint and hands it to the next start.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable
from random import Random

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.files import Job
from kafkalite.log.storage.io_executor import SerialExecutor
from kafkalite.record.batch import stamp
from tests.support.log.faulty_files import Ended, FaultyFiles, Killed, PowerCut
from tests.support.log.ledger import NEVER, Ledger, make_batch, state_of, times_around
from tests.support.log.plain_compaction import compact
from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000
FAR = 1 << 31
Step = tuple[str, int]

_STEPS = {
    "append": 32, "follow": 12, "retry": 4, "flush": 6, "work": 8, "hear": 8, "checkpoint": 6, "delete_before": 4,
    "truncate": 3, "restart_at": 1, "wait": 6, "check": 2, "fault": 4, "configure": 2, "restart": 3, "kill": 4,
    "power_cut": 8, "end_soon": 6, "compact": 10, "overflow": 1, "fetch_again": 3,
}  # fmt: skip


def shorten(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave out what can be left out so that it still fails."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


class LogHistory:
    """One log, its disk and what is owed to it. `directory` is where its disks are made, one behind another."""

    @staticmethod
    def plan(seed: int) -> list[Step]:
        random = Random(seed)
        names = random.choices(list(_STEPS), list(_STEPS.values()), k=random.randint(5, 40))
        return [(name, random.randrange(1 << 30)) for name in [*names, "power_cut"]]

    def __init__(self, directory: str, seed: int) -> None:
        random = Random(seed)
        self.directory = directory
        self.ledger = Ledger()
        self.clock = ManualClock(START_MS)
        self.epoch = 0
        self.batches = 0
        self.kept = LoadOptions(clean=True)  # what the checkpoints say
        self.pending: deque[Job] = deque()
        self.background = SerialExecutor(self.pending.append)
        self.is_compacting = False
        self.committed_before = 0  # by other settings than those of now
        self.sequences: dict[int, tuple[int, int]] = {}
        self.config = self._config(random)
        self.disks = 0
        os.makedirs(f"{directory}/disk-0/orders-0")
        self.files = FaultyFiles(
            f"{directory}/disk-0", ordered=random.random() < 0.4, block_bytes=random.choice((64, 4096)),
            open_segments=random.choice((4, 64)),
        )  # fmt: skip
        self.log: PartitionLog = self.open_on(self.files)

    def _config(self, random: Random) -> TopicConfig:
        return TopicConfig(
            segment_bytes=random.choice((300, 500, 1000, 4000)),
            segment_index_bytes=random.choice((24, 48, 96, 4800)),
            index_interval_bytes=random.choice((0, 100, 300)),
            flush_messages=random.choice((1, 2, 3, 7, 1 << 62, 1 << 62)),
            segment_ms=random.choice((300, 1000, 604_800_000)),
            file_delete_delay_ms=random.choice((0, 100)),
            preallocate=random.random() < 0.1,
        )

    def play(self, steps: list[Step]) -> None:
        for name, seed in steps:
            random = Random(seed)
            try:
                self.step(name, random)
            except Ended:
                self._start_again(random)
        self._stop()

    def step(self, name: str, random: Random) -> None:
        getattr(self, name)(random)

    # what happens

    def append(self, random: Random) -> None:
        sequences = self.sequences.copy()
        batch, times, producer = self._make(random, sequences)
        log, ledger = self.log, self.ledger
        end = log.end_offset
        written = ledger.attempt(batch, end, self.epoch, times, **producer)
        try:
            result = log.append(memoryview(batch), self.epoch, self.clock.wall_ms())
        except StorageError:
            if log.end_offset == end:
                return
            assert log.end_offset == written.last + 1, "it failed, and half of it is there"
            ledger.accept(written)
        else:
            assert (result.base_offset, result.last_offset, result.duplicate) == (end, written.last, False)
            ledger.accept(written)
        self.sequences.update(sequences)
        self._heed()

    def _make(
        self, random: Random, sequences: dict[int, tuple[int, int]]
    ) -> tuple[bytearray, list[int], dict[str, int]]:
        """The next batch, its records' timestamps and its producer; perhaps the first of an epoch."""
        count = random.choice((1, 1, 1, 2, 3, 10))
        producer: dict[str, int] = {}
        if random.random() < 0.6:
            producer_id = random.randrange(3)
            epoch, sequence = sequences.get(producer_id, (0, 0))
            if random.random() < 0.05:
                epoch, sequence = epoch + 1, 0
            producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
            sequences[producer_id] = (epoch, sequence + count)
        if random.random() < 0.15:
            self.epoch += random.randint(1, 2)
        times = times_around(random, self.clock.wall_ms(), count)
        if not producer and random.random() < 0.2:
            times = [-1] * count  # a producer without a time would be forgotten at the next start
        self.batches += 1
        return make_batch(self.batches, times, random.choice((0, 128, 128, 256)), **producer), times, producer

    def follow(self, random: Random) -> None:
        """A leader's answer is appended: some batches, and a part of the next one. After an error, or the end, some of
        them are there."""
        log, ledger = self.log, self.ledger
        sequences = [self.sequences.copy()]
        answer = bytearray()
        offset = log.end_offset
        attempted = []
        try:
            for _ in range(random.choice((1, 2, 3, 8))):
                sequences.append(sequences[-1].copy())
                batch, times, producer = self._make(random, sequences[-1])
                offset += random.choice((0, 0, 0, 0, 3))  # compaction has removed some
                attempted.append(ledger.attempt(batch, offset, self.epoch, times, **producer))
                ledger.accept(attempted[-1])
                answer += attempted[-1].data
                offset = attempted[-1].last + 1
            cut = answer[: random.randrange(60)]
            with contextlib.suppress(StorageError):
                end = log.append_as_follower(memoryview(bytes(answer + cut)), self.clock.wall_ms(), self.epoch)
                assert end == offset == log.end_offset
        finally:
            there = [written for written in attempted if written.last < log.end_offset]
            del ledger.chain[len(ledger.chain) - len(attempted) + len(there) :]
        self.sequences.update(sequences[len(there)])
        self._heed()

    def retry(self, random: Random) -> None:
        known = [w for w in (self.ledger.last_of(producer_id) for producer_id in range(3)) if w is not None]
        known = [w for w in known if self.log.producers.get(w.producer_id) is not None]
        if not known:
            return
        written = random.choice(known)
        end = self.log.end_offset
        try:
            batch = bytearray(written.data)
            stamp(batch, 0, -1)
            result = self.log.append(memoryview(batch), self.epoch, self.clock.wall_ms())
        except StorageError:
            pass
        else:
            assert result.duplicate
            assert self.ledger.has_the_same(result.base_offset, written), f"{result} for {written}"
        assert self.log.end_offset == end
        self._heed()

    def flush(self, random: Random) -> None:
        try:
            self.log.flusher.flush()
        except StorageError:
            return
        self.ledger.promised = self.ledger.end
        assert self.log.flusher.recovery_point == self.log.end_offset

    def work(self, random: Random) -> None:
        """The other hand carries out some of its jobs."""
        for _ in range(random.randint(1, 3)):
            if self.pending:
                self.pending.popleft()()

    def hear(self, random: Random) -> None:
        """The owner hears of those that have ended."""
        self.background.run_completions()
        self._heed()

    def checkpoint(self, random: Random) -> None:
        self.hear(random)
        self.kept = LoadOptions(False, self.log.flusher.kept_recovery_point, self.log.start_offset)
        self.ledger.start_kept = self.log.start_offset

    def delete_before(self, random: Random) -> None:
        log = self.log
        offset = random.randint(log.start_offset, log.end_offset)
        self.ledger.start_asked = max(self.ledger.start_asked, offset)
        try:
            log.delete_records_before(offset)
        except StorageError:
            return
        self.ledger.start_reached = max(self.ledger.start_reached, log.start_offset)
        assert log.start_offset == offset

    def truncate(self, random: Random) -> None:
        log = self.log
        low = 0 if random.random() < 0.1 else max(log.start_offset, log.end_offset - 8)
        offset = random.randint(low, log.end_offset)
        ends = {written.last + 1 for written in self.ledger.chain} | {log.end_offset}
        self._truncate_to(max((end for end in ends if end <= offset), default=0), random)

    def fetch_again(self, random: Random) -> None:
        """A follower drops what lies behind a gap: its leader has all of it."""
        if self.log.gap_offset < self.log.end_offset:
            self._truncate_to(self.log.gap_offset, random)

    def _truncate_to(self, offset: int, random: Random) -> None:
        log = self.log
        empties = offset < log.segments[0].base_offset
        if offset < log.end_offset:
            self._before_truncation(min(log.start_offset, offset), offset, empties)
        promised = min(self.ledger.promised, offset)
        # where compaction has dropped the last batches before the cut, nothing tells the end until the cut is over; and
        # without any segment the log begins at the start that was written down, which may be before deleted records
        self.ledger.promised = 0 if empties else min(promised, self.ledger.end_before(offset))
        self.ledger.start_kept = min(self.ledger.start_kept, offset)
        self.ledger.cutting_at = offset
        try:
            log.truncate_to(offset)
        except StorageError:
            self._kill(random)  # the owner of a log that is in between starts it again
            return
        assert log.end_offset == offset
        self.ledger.promised = promised
        self.ledger.truncate(offset)
        self._forget_sequences()

    def _before_truncation(self, start_offset: int, end_offset: int, empties: bool) -> None:
        """The owner has to write this down first: what it said before does not hold in between."""
        recovery_point = 0 if empties else min(self.kept.recovery_point, end_offset)
        self.kept = LoadOptions(False, recovery_point, min(self.kept.start_offset, start_offset))

    def restart_at(self, random: Random) -> None:
        """The log begins anew behind its end, as if all before had been deleted."""
        log, ledger = self.log, self.ledger
        offset = log.end_offset + random.choice((0, 1, 5, 100))
        self._before_truncation(offset, offset, empties=True)
        self._keep_start(offset)
        ledger.promised = ledger.cutting_at = 0
        ledger.start_asked = offset
        try:
            log.restart_at(offset)
        except StorageError:
            self._kill(random)
            return
        assert (log.start_offset, log.end_offset) == (offset, offset)
        ledger.promised = ledger.start_kept = offset
        ledger.cutting_at = NEVER
        self._forget_sequences()

    def _keep_start(self, offset: int) -> None:
        self.kept = LoadOptions(False, self.kept.recovery_point, offset)
        self.ledger.start_kept = offset

    def compact(self, random: Random) -> None:
        """Some segments that are on the disk for good keep the last batch of each key, and of each producer."""
        if self.is_compacting:
            return
        if random.random() < 0.6:
            self.flush(random)
            self.checkpoint(random)
        log, ledger = self.log, self.ledger
        upto = self.kept.recovery_point
        try:
            sources = log.swap.clean_sources(upto)
            if not sources:
                return
            first = random.randrange(len(sources))
            group = sources[first : first + random.choice((1, 1, 2, 3, 5))]
            group = [source for source in group if source.end_offset - group[0].base_offset < FAR] or group[:1]
            superseded = ledger.superseded(upto, log.producers.last_batches(upto))
            batches_max = random.choice((1, 2, 1 << 30, 1 << 30))
            compaction = compact(self.files, log, group, lambda header, batch: batch not in superseded, batches_max)
        except (OSError, StorageError):
            return  # the next one makes up for what is left of it; the last one may not be over, if the disk refused
        ledger.compactions.append(compaction)
        self.is_compacting = True

        def done(error: Exception | None) -> None:
            self.is_compacting = False
            if error is None:
                ledger.compacted(compaction)

        log.swap.replace(compaction.replacement, done)
        for _ in range(random.choice((0, 0, 1, 2, 3, 5))):
            self.work(random)
            self.hear(random)

    def wait(self, random: Random) -> None:
        self.clock.advance(random.choice((1, 50, 100, 400, 1200)))

    def check(self, random: Random) -> None:
        if self.log.failure is None:
            self.files.heal()
            self.ledger.check(self.log)

    def fault(self, random: Random) -> None:
        where = random.choice(("", ".log", "index", "epoch", "snapshot"))
        what = random.choice(
            ("fsync", "fsync", "pwrite", "pwrite", "truncate", "rename", "open", "unlink", "full", "short")
        )
        after = random.randint(0, 3)
        if what == "full":
            self.files.free_bytes = random.choice((0, 64, 200, 4096, 10_000))
        elif what == "short":
            self.files.write_short(where, random.randint(0, 100), after=after)
        else:
            number = errno.EMFILE if what == "open" else random.choice((errno.EIO, errno.ENOSPC))
            self.files.fail(what, where, number, times=random.choice((1, 1, 3)), after=after)

    def configure(self, random: Random) -> None:
        self.files.heal()
        self.config = self.log.config = self._config(random)
        self.committed_before = self.log.flusher.ack_offset
        self._heed()

    def end_soon(self, random: Random) -> None:
        self.files.end_at = self.files.calls + random.randint(1, 20)
        self.files.end_by = random.choice((PowerCut, PowerCut, Killed))
        self.files.torn_bytes = random.choice((None, random.randint(0, 200)))

    def restart(self, random: Random) -> None:
        """An orderly stop, and a start; perhaps the power fails in between."""
        log = self.log
        while self.background.pending:
            self.work(random)
            self.hear(random)
        start = log.start_offset
        try:
            log.close()
        except StorageError:
            self._kill(random)
            return
        self.ledger.promised = self.ledger.end
        self.ledger.start_kept = self.ledger.start_asked = start
        self.kept = LoadOptions(True, log.end_offset, start)
        if random.random() < 0.3:
            self.files = self._cut(random)
        else:
            self.files = self.files.kill()
        self._reopen(random, everything=True)

    def overflow(self, random: Random) -> None:
        """A broker before Kafka 1.1 ran here: its last segment has offsets too far from the first."""
        while self.background.pending:
            self.work(random)
            self.hear(random)
        if self.log.failure is not None:
            self._kill(random)
            return
        self._stop()
        self.files = self.files.kill()
        if self.write_far(random):
            self._reopen(random, everything=True)
        else:
            self._kill(random)

    def write_far(self, random: Random) -> bool:
        """Appends batches to the last segment of a stopped log, far behind each other, and fsyncs them. False if it
        does not end where it should, or nothing was written."""
        ledger = self.ledger
        log = self.open_on(self.files)
        log.close()
        self.files = self.files.kill()
        offset = log.end_offset
        if offset != ledger.end or log.epochs.latest < 0:
            return False
        fd = self.files.open(log.segments[-1].path, os.O_RDWR)
        position = os.fstat(fd).st_size
        is_clean = random.random() < 0.5
        for distance in random.choices((0, 3, FAR - 20, FAR, 3 * FAR), k=random.choice((1, 2, 5))):
            sequences = self.sequences.copy()
            batch, times, producer = self._make(random, sequences)
            while producer and is_clean:  # a clean stop would have left a snapshot of them
                sequences = self.sequences.copy()
                batch, times, producer = self._make(random, sequences)
            self.sequences = sequences
            offset += distance
            written = ledger.attempt(batch, offset, log.epochs.latest, times, **producer)
            ledger.accept(written)
            self.files.write_fully(fd, written.data, position)
            position += len(written.data)
            offset = written.last + 1
        self.files.fsync(fd)
        self.files.close(fd)
        ledger.promised = ledger.end
        # a clean stop leaves whole indexes, but for what no index can express
        is_clean = is_clean and ledger.end - log.segments[-1].base_offset > FAR
        self.kept = LoadOptions(is_clean, self.kept.recovery_point, self.kept.start_offset)
        return True

    def kill(self, random: Random) -> None:
        self._kill(random)

    def power_cut(self, random: Random) -> None:
        self.files.ended = PowerCut
        self._start_again(random)

    # the ends, and the starts behind them

    def _start_again(self, random: Random) -> None:
        if self.files.ended is Killed:
            self._kill(random)
            return
        self._stop()
        self.files = self._cut(random)
        self._reopen(random, everything=False)

    def _kill(self, random: Random) -> None:
        self._stop()
        self.files = self.files.kill()
        self._reopen(random, everything=True)

    def _stop(self) -> None:
        self.log.abandon()
        self.is_compacting = False
        self.pending.clear()
        self.background = SerialExecutor(self.pending.append)
        if self.kept.clean:
            # somebody ran on these files since
            self.kept = LoadOptions(False, self.kept.recovery_point, self.kept.start_offset)

    def _cut(self, random: Random) -> FaultyFiles:
        self.disks += 1
        return self.files.power_cut(f"{self.directory}/disk-{self.disks}", random)

    def _reopen(self, random: Random, *, everything: bool) -> None:
        kept = self.kept
        while random.random() < 0.3:  # the start does not come to its end
            self.files.end_at = self.files.calls + random.randint(1, 25)
            self.files.end_by = random.choice((PowerCut, PowerCut, Killed))
            try:
                log = self.open_on(self.files)
            except Ended:
                if self.files.ended is PowerCut:
                    everything = everything and kept.clean
                    self.files = self._cut(random)
                else:
                    self.files = self.files.kill()
            else:
                log.abandon()
                self.files = self.files.kill()
            kept = self.kept = LoadOptions(False, kept.recovery_point, kept.start_offset)
        self._open_anew()
        self.committed_before = self.log.flusher.ack_offset
        self.ledger.reopened(self.log, everything=everything, forgets_names=not self.files.ordered)
        if not kept.clean and random.random() < 0.3:
            self._opens_the_same(random)
        self._forget_sequences()
        self.epoch = max(self.epoch, self.log.epochs.latest)
        self.kept = LoadOptions(False, self.kept.recovery_point, self.kept.start_offset)

    def _open_anew(self) -> None:
        self.log = self.open_on(self.files)

    def _opens_the_same(self, random: Random) -> None:
        before = state_of(self.log)
        self.log.abandon()
        self.files = self.files.kill()
        self.log = self.open_on(self.files)
        after = state_of(self.log)
        assert after == before, f"opened twice, and found\n{before}, then\n{after}"

    def open_on(self, files: FaultyFiles) -> PartitionLog:
        """The log on this or another disk."""
        services = LogContext(
            self.clock, self.background.serial_queue, files, run_completions=self.background.run_completions
        )
        return open_log("orders", 0, f"{files.root}/orders-0", self.config, self.kept, services)

    def _forget_sequences(self) -> None:
        """Producers go on behind what the log has of them."""
        self.sequences.clear()
        for producer_id in range(3):
            producer = self.log.producers.get(producer_id)
            if producer is not None:
                self.sequences[producer_id] = (producer.epoch, producer.last_sequence + 1)

    def _heed(self) -> None:
        """The offsets that the log reports are promises, and so is an acknowledgement where each append is flushed."""
        log = self.log
        assert log.flusher.recovery_point <= log.end_offset == max(self.ledger.end, log.segments[-1].base_offset)
        assert log.flusher.ack_offset <= log.end_offset
        self.ledger.promised = max(self.ledger.promised, log.flusher.recovery_point)
        if log.flusher.ack_offset > self.committed_before:
            unflushed = log.flusher.ack_offset - log.flusher.recovery_point
            assert unflushed < self.config.flush_messages, f"{unflushed} records are committed and not flushed"


def run(make: type[LogHistory], root: str, seed: int, steps: list[Step]) -> LogHistory:
    """Play one history in a directory of its own below `root`."""
    directory = f"{root}/history-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    logging.disable(logging.CRITICAL)
    try:
        history = make(directory, seed)
        history.play(steps)
        return history
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(directory, ignore_errors=True)


def tell(make: type[LogHistory], root: str, seed: int, steps: list[Step]) -> str:
    """The shortest form of a history that fails, for whoever has to mend it."""

    def fails(fewer: list[Step]) -> bool:
        try:
            run(make, root, seed, fewer)
        except Exception:
            return True
        return False

    shortest = shorten(steps, fails)
    try:
        run(make, root, seed, shortest)
    except Exception as error:
        return f"history {seed}: {type(error).__name__}: {error}\n{shortest}"
    return f"history {seed} fails only at times: {steps}"
