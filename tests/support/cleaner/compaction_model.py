"""Random histories of one compacted log on a disk that forgets: as `history`, with keys, transactions, the
cleaner's passes in between and all that may happen during one.

A cleaning is what the broker makes of one: its plan and its job, the worker's function in this process, and the swap of
each group by the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.cleaner.schedule import CleanerState
from kafkalite.cleaner.workers.cleaning_task import make_job
from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.file_names import CLEANED
from kafkalite.record.batch import NewRecord, build_batch, parse_header, stamp
from kafkalite.record.record import read_records
from tests.support.cleaner.compacted_ledger import CompactedLedger, Put, Transaction
from tests.support.cleaner.readers import Readers
from tests.support.log.history import LogHistory, Step

_STEPS = {
    "put": 60, "clean": 24, "transaction": 14, "without_key": 2, "roll": 8, "flush": 4, "work": 4, "hear": 4,
    "checkpoint": 4, "wait": 8, "retain": 3, "delete_before": 2, "look_slowly": 8, "hold": 3, "check": 3, "fault": 3,
    "configure": 2, "restart": 3, "kill": 4, "power_cut": 5, "end_soon": 8,
}  # fmt: skip
_PRODUCERS = range(3)
_IN_TRANSACTIONS = range(10, 13)
_BROKER = BrokerConfig()
_MANY = 1500
_DAY_MS = 86_400_000


class CompactedHistory(LogHistory):
    """`cleaned_to` is what the cleaner's checkpoint says in memory, `cleaned_kept` what it says on the disk."""

    @staticmethod
    def plan(seed: int) -> list[Step]:
        random = Random(seed)
        names = random.choices(list(_STEPS), list(_STEPS.values()), k=random.randint(10, 70))
        return [(name, random.randrange(1 << 30)) for name in [*names, "power_cut", "put", "clean"]]

    def __init__(self, directory: str, seed: int) -> None:
        self.cleaned_to: int | None = None
        self.cleaned_kept: int | None = None
        self.keys = Random(seed).choice((2, 5, 20))
        self.open: dict[int, Transaction] = {}
        self.readers = Readers()
        super().__init__(directory, seed)
        self.ledger: CompactedLedger = CompactedLedger()
        self.passes = self.swaps = 0

    def _config(self, random: Random) -> TopicConfig:
        return TopicConfig(
            cleanup_policy=random.choice((("compact",), ("compact",), ("compact", "delete"))),
            segment_bytes=random.choice((400, 1000, 4000, 100_000)),
            segment_index_bytes=random.choice((48, 96, 4800)),
            index_interval_bytes=random.choice((0, 100, 300)),
            flush_messages=random.choice((1, 3, 1 << 62, 1 << 62, 1 << 62)),
            segment_ms=random.choice((1000, 604_800_000)),
            file_delete_delay_ms=random.choice((0, 100)),
            delete_retention_ms=random.choice((0, 300, 2000, _DAY_MS)),
            min_compaction_lag_ms=random.choice((0, 0, 0, 400)),
            min_cleanable_dirty_ratio=random.choice((0.0, 0.0, 0.5)),
            retention_ms=random.choice((3000, 604_800_000)),
        )

    # what is written

    def put(self, random: Random) -> None:
        """A batch, by an idempotent producer at times."""
        producer_id = epoch = sequence = -1
        if random.random() < 0.5:
            producer_id = random.choice(_PRODUCERS)
            epoch, sequence = self.sequences.get(producer_id, (0, 0))
            if random.random() < 0.05:
                epoch, sequence = epoch + 1, 0
        batch = build_batch(
            self._records(random), codec=random.choice((0, 0, 0, 1, 2, 3, 4)),
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
        )  # fmt: skip
        if random.random() < 0.1:
            self.epoch += 1
        written = self._append(batch, None, None)
        if written is not None and producer_id >= 0:
            self.sequences[producer_id] = (epoch, written.header.last_sequence + 1)

    def _records(self, random: Random) -> list[NewRecord]:
        roll = random.random()
        count = _MANY if roll < 0.003 else 60 if roll < 0.03 else random.choice((1, 1, 1, 2, 3, 5))
        now_ms = self.clock.wall_ms()
        self.batches += 1
        records = []
        for number in range(count):
            value = None if random.random() < 0.2 else b"%d.%d" % (self.batches, number)
            headers = [("h", b"x"), ("h", None)][: random.randrange(3)] if random.random() < 0.2 else []
            key = b"k%d" % random.randrange(self.keys * (1 if count < 60 else 40))
            records.append(NewRecord(key, value, headers, now_ms + random.randint(-200, 200)))
        return records

    def _append(self, batch: bytearray, within: Transaction | None, ends: Transaction | None) -> Put | None:
        """None when the disk refused it, or the log has failed."""
        log, ledger = self.log, self.ledger
        end = log.end_offset
        stamp(batch, end, self.epoch)
        put = Put(parse_header(batch), read_records(batch), within, ends)
        stamp(batch, 0, -1)
        if len(batch) > self.config.segment_bytes:
            return None
        ledger.tried = put
        by_hand = within is not None or ends is not None
        producer_id, epoch = put.header.producer_id, put.header.producer_epoch
        guard = log.producers.begin_verification(producer_id, epoch, 0) if within is not None else None
        try:
            log.append(memoryview(batch), self.epoch, self.clock.wall_ms(), trusted=by_hand, guard=guard)
        except StorageError:
            if log.end_offset == end:
                ledger.tried = None
                return None
            assert log.end_offset == put.last + 1, "it failed, and half of it is there"
        ledger.acknowledge(put)
        producer = log.producers.get(producer_id)
        if ends is not None and (producer is None or producer.txn_first_offset >= 0):
            self._kill(Random(end))  # the abort could not be indexed; a start reads the marker
            return put
        self._heed()
        return put

    def transaction(self, random: Random) -> None:
        """One begins, goes on or ends."""
        producer_id = random.choice(_IN_TRANSACTIONS)
        transaction = self.open.get(producer_id)
        if transaction is not None and random.random() < 0.6:
            self._end_transaction(transaction, random.random() < 0.6)
            return
        begun = Transaction(producer_id) if transaction is None else transaction
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        batch = build_batch(
            self._records(random), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            transactional=True, codec=random.choice((0, 0, 4)),
        )  # fmt: skip
        put = self._append(batch, begun, None)
        if put is not None:
            self.sequences[producer_id] = (epoch, put.header.last_sequence + 1)
            if self.ledger.of_transaction(begun):
                self.open[producer_id] = begun

    def _end_transaction(self, transaction: Transaction, commits: bool) -> None:
        producer_id = transaction.producer_id
        epoch, _ = self.sequences.get(producer_id, (0, 0))
        record = NewRecord(struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 1), (), self.clock.wall_ms())
        batch = build_batch(
            [record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
        )  # fmt: skip
        was, transaction.commits = transaction.commits, commits
        if self._append(batch, None, transaction) is None:
            transaction.commits = was
        else:
            self.open.pop(producer_id, None)

    def without_key(self, random: Random) -> None:
        """Refused, all of the batch."""
        records = self._records(random)
        records[random.randrange(len(records))] = NewRecord(None, b"?", (), self.clock.wall_ms())
        end = self.log.end_offset
        if len(build_batch(records)) > self.config.segment_bytes:
            return
        try:
            self.log.append(memoryview(build_batch(records)), self.epoch, self.clock.wall_ms())
        except KafkaError as error:
            assert error.code == ErrorCode.INVALID_RECORD, error
        else:
            raise AssertionError("a record without a key was taken")
        assert self.log.end_offset == end

    def roll(self, random: Random) -> None:
        try:
            self.log.roll(self.clock.wall_ms())
        except StorageError:
            return
        self._heed()

    # what becomes old

    def retain(self, random: Random) -> None:
        self.keep_up()
        log = self.log
        self.ledger.start_asked = max(self.ledger.start_asked, log.end_offset)
        try:
            log.delete_old_segments(self.clock.wall_ms(), random.choice((1, 5)))
        except StorageError:
            return
        self.ledger.start_asked = max(self.ledger.start_kept, log.start_offset)

    # the cleaner

    def clean(self, random: Random) -> None:
        """A cleaning over the log, if there is anything to do."""
        self.keep_up()
        if random.random() < 0.5:
            self.roll(random)
        if random.random() < 0.2:
            self.end_soon(random)
        log = self.log
        self._let_time_pass(random)
        now_ms = self.clock.wall_ms()
        try:
            plan = CleanerState(log).make_plan(self.cleaned_to, now_ms)
            if plan.must_reset:
                self.cleaned_to = plan.first_dirty_offset
            if not plan.dirty_bytes:
                return
            job = make_job(log, plan, _BROKER, now_ms)
        except (OSError, StorageError):
            return
        slots = random.choice((2, 4, 30, 1000))
        job = job._replace(dedupe_buffer_bytes=24 * slots)
        self.ledger.begins_pass(job)
        self.passes += 1
        try:
            result = clean(job, self.files, lambda cleaned: self._swap(cleaned, random))
        except (OSError, CleaningFailed) as error:
            assert isinstance(error, OSError), f"{error}"
            self._remove_cleaned()
            return
        if self.log is not log:
            return
        if result.end_offset > job.first_dirty_offset or result.is_complete:
            self.cleaned_to = result.end_offset
            if random.random() < 0.6:
                self.cleaned_kept = self.cleaned_to

    def _let_time_pass(self, random: Random) -> None:
        """Flushes and checkpoints are a matter of seconds. Where tombstones and markers go sooner than they do in
        earnest, these have to come before: what a checkpoint says may be older than delete.retention.ms else."""
        always = self.log.config.delete_retention_ms < _DAY_MS and self.log.failure is None
        while self.background.pending and (always or random.random() < 0.7):
            self.work(random)
            self.hear(random)
        if always:
            self.flush(random)
            self.checkpoint(random)

    def _swap(self, cleaned: CleanedSegment, random: Random) -> bool:
        """As the broker does it, while others go on."""
        log = self.log
        told: list[Exception | None] = []
        log.swap.replace(cleaned, told.append)
        while not told:
            if random.random() < 0.3:
                getattr(self, random.choice(("put", "look_slowly", "hold", "transaction", "check")))(random)
                if self.log is not log:
                    return False
            assert self.pending or self.background.pending, "nobody will tell how the replacement ended"
            self.work(random)
            self.hear(random)
        self.swaps += 1
        if told[0] is None and random.random() < 0.3:
            self.check(random)
        return told[0] is None

    def _remove_cleaned(self) -> None:
        for name in self.files.listdir(self.log.directory):
            if name.endswith(CLEANED):
                try:
                    self.files.unlink_if_exists(f"{self.log.directory}/{name}")
                except OSError:
                    return

    # those who read

    def keep_up(self) -> None:
        if self.log.failure is None:
            with self._undisturbed():
                self.readers.keep_up(self.log, self.ledger)

    def look_slowly(self, random: Random) -> None:
        if self.log.failure is None:
            with self._undisturbed():
                self.readers.look_slowly(self.log, self.ledger, self.clock.wall_ms(), random)

    def hold(self, random: Random) -> None:
        self.readers.hold(self.log, random)

    def check(self, random: Random) -> None:
        if self.log.failure is None:
            with self._undisturbed():
                self.ledger.check(self.log)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Faults wait until those who look have looked."""
        files = self.files
        kept = files._faults.copy(), files.free_bytes
        files.heal()
        yield
        files._faults[:], files.free_bytes = kept

    def end_soon(self, random: Random) -> None:
        super().end_soon(random)
        self.files.end_at = self.files.calls + random.randint(1, random.choice((5, 20, 60, 120)))

    # the starts

    def restart(self, random: Random) -> None:
        """A stop during which no fsync fails: what becomes of one that does is a matter of all logs."""
        self.files.heal()
        super().restart(random)

    def _stop(self) -> None:
        super()._stop()
        self.cleaned_to = self.cleaned_kept
        self.readers.begin_anew()

    def _reopen(self, random: Random, *, everything: bool) -> None:
        super()._reopen(random, everything=everything)
        ledger = self.ledger
        self.readers.caught_up = min(self.readers.caught_up, self.log.end_offset)
        self.open.clear()
        for producer_id, transactions in ledger.unended().items():
            decided = [t.commits for t in transactions if t.commits is not None]
            if decided:
                for transaction in transactions:  # one marker ends all that was written since the last
                    transaction.commits = decided[0]
                self._end_transaction(transactions[0], decided[0])
            else:
                self.open[producer_id] = transactions[0]
        ledger.check(self.log)

    def _opens_the_same(self, random: Random) -> None:
        """But for the times of producers' batches, which a snapshot does not have where a marker came behind them."""
        before = self._producers()
        self.log.abandon()
        self.files = self.files.kill()
        self.log = self.open_on(self.files)
        after = self._producers()
        assert after == before, f"opened twice, and found\n{before}, then\n{after}"

    def _producers(self) -> dict[int, tuple[int, ...]]:
        known = self.log.producers._producers
        return {i: (p.epoch, p.last_sequence, p.coordinator_epoch, p.txn_first_offset) for i, p in known.items()}

    def _forget_sequences(self) -> None:
        self.sequences.clear()
        for producer_id in (*_PRODUCERS, *_IN_TRANSACTIONS):
            producer = self.log.producers.get(producer_id)
            if producer is not None:
                self.sequences[producer_id] = (producer.epoch, producer.last_sequence + 1)
