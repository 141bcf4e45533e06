"""Random histories of a share partition against a plain model: what became of each offset, and who holds it.

Members fetch and acknowledge; writes to the share coordinator are made, refused or lost with the leader, in any order;
locks expire; the log grows, is compacted and loses its beginning; the leader is replaced at any step.
"""

from __future__ import annotations

import random

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.replication.share.acquisition import AcquisitionRequest, FetchedBatch, acquire
from kafkalite.replication.share.durable_state import StateRange
from kafkalite.replication.share.in_flight import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    is_done,
)
from kafkalite.replication.share.share_partition import ShareLimits, SharePartition

MEMBERS = ("one", "two", "three")
LOCK_MS = 1000


class World:
    def __init__(self, rng):
        self.rng = rng
        self.now_ms = 0
        self.limits = ShareLimits(LOCK_MS, rng.choice((2, 3, 5, 10)), rng.choice((5, 20, 200)), True)
        self.log = []  # record batches, in order
        self.aborted = set()  # the first offsets of batches of aborted transactions
        self.log_start = self.log_end = 0
        self.stored_start = 0
        self.stored = {}  # offset -> state and delivery count
        self.held = {}  # offset -> member and the end of its lock
        self.accepted = set()  # durably
        self.given_up = set()  # rejected, delivered too often, deleted, compacted, aborted
        self.waiting = []  # writes that are on their way
        self.delivered = {}  # offset -> how often, as far as this leader knows
        self.reload()

    def reload(self):
        """Another leader: it knows what is durable."""
        for _, writes, _ in self.waiting:
            if self.rng.random() < 0.5:  # it reached the share coordinator, and the answer did not come
                self.store(writes, self.partition.start_offset)
        self.waiting = []
        self.held = {}
        ranges = []
        for offset, (state, count) in sorted(self.stored.items()):
            last = ranges[-1] if ranges else None
            if last and last.last == offset - 1 and (last.state, last.delivery_count) == (state, count):
                ranges[-1] = last._replace(last=offset)
            else:
                ranges.append(StateRange(offset, offset, state, count))
        self.partition = SharePartition(self.stored_start, 1, 1, ranges)
        self.delivered = {offset: count for offset, (_, count) in self.stored.items()}

    def store(self, writes, start):
        for first, last, state, count in writes:
            for offset in range(first, last + 1):
                self.stored[offset] = state, count
                if state == ACKNOWLEDGED:
                    self.accepted.add(offset)
                elif state == ARCHIVED:
                    self.given_up.add(offset)
        self.stored_start = max(self.stored_start, start)
        self.stored = {offset: value for offset, value in self.stored.items() if offset >= self.stored_start}

    def append(self):
        size = self.rng.choice((1, 1, 3, 10))
        if self.rng.random() < 0.1:
            self.aborted.add(self.log_end)
        self.log.append(FetchedBatch(self.log_end, self.log_end + size - 1))
        self.log_end += size

    def compact(self):
        """Some batches are no longer there; not the last one."""
        gone = [batch for batch in self.log[:-1] if self.rng.random() < 0.2]
        self.log = [batch for batch in self.log if batch not in gone]
        for batch in gone:
            self.given_up.update(range(batch.first, batch.last + 1))

    def delete_prefix(self):
        self.log_start = self.rng.randint(self.log_start, self.log_end)
        self.log = [batch for batch in self.log if batch.last >= self.log_start]
        self.given_up.update(range(self.log_start))
        self.partition.move_log_start(self.log_start)

    def fetch(self, member):
        partition, limits = self.partition, self.limits
        if not partition.can_acquire(limits):
            return False
        start = partition.next_fetch_offset()
        if start < self.log_start:
            partition.move_log_start(self.log_start)
            return True
        batches = [batch for batch in self.log if batch.last >= start][: self.rng.choice((1, 2, 5))]
        request = AcquisitionRequest(
            member, start, self.rng.choice((1, 4, 50)), self.rng.choice((1, 5, 50)), self.rng.random() < 0.3
        )
        aborted = [batch for batch in batches if batch.first in self.aborted]
        found = acquire(partition, request, batches, aborted, limits, self.now_ms)
        for batch in aborted:
            self.given_up.update(range(batch.first, batch.last + 1))
        if request.is_record_limited:
            assert sum(last - first + 1 for first, last, _ in found) <= request.max_records
        previous = -1
        for first, last, count in found:
            assert previous < first <= last < self.log_end
            previous = last
            for offset in range(first, last + 1):
                assert offset not in self.held, f"{offset} is held by {self.held[offset]}"
                assert offset not in self.accepted, f"{offset} was acknowledged"
                assert offset >= partition.start_offset
                self.held[offset] = member, self.now_ms + LOCK_MS
                assert count == self.delivered.get(offset, 0) + 1 <= limits.delivery_count_limit
                self.delivered[offset] = count
        return bool(found)

    def acknowledge(self, member):
        mine = sorted(offset for offset, (owner, _) in self.held.items() if owner == member)
        if not mine:
            return
        first = self.rng.choice(mine)
        last = first
        while last + 1 in mine and self.rng.random() < 0.9:
            last += 1
        kinds = (GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)
        one = self.rng.random() < 0.5
        types = [self.rng.choice(kinds)] if one else [self.rng.choice(kinds) for _ in range(first, last + 1)]
        try:
            transition = self.partition.acknowledge(
                member, [Acknowledgement(first, last, types)], self.limits, self.now_ms
            )
        except KafkaError as refusal:
            raise AssertionError(f"{member} may not acknowledge {first} to {last}: {refusal}") from None
        for at, offset in enumerate(range(first, last + 1)):
            if types[0 if one else at] == RENEW and offset >= self.partition.start_offset:
                self.held[offset] = member, self.now_ms + LOCK_MS
        self.begin(transition)

    def acknowledge_of_others(self, member):
        others = [offset for offset, (owner, _) in self.held.items() if owner != member]
        free = [
            offset
            for offset in range(self.log_end)
            if offset not in self.held and offset >= self.partition.start_offset
        ]
        for offsets in (others, free):
            offsets = [offset for offset in offsets if offset >= self.partition.start_offset]
            if offsets:
                offset = self.rng.choice(offsets)
                with pytest.raises(KafkaError) as refusal:
                    self.partition.acknowledge(
                        member, [Acknowledgement(offset, offset, [ACCEPT])], self.limits, self.now_ms
                    )
                assert refusal.value.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

    def begin(self, transition):
        if transition.writes:
            locks = {}
            for first, last, _, _ in transition.writes:
                for offset in range(first, last + 1):
                    locks[offset] = self.held.pop(offset)
            self.waiting.append((transition, transition.writes, locks))

    def complete(self, *, is_durable):
        if not self.waiting:
            return
        transition, writes, locks = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        if is_durable:
            self.store(writes, self.partition.start_offset)
        for offset, lock in locks.items() if not is_durable else ():
            if lock[1] > self.now_ms:
                self.held[offset] = lock
            elif self.delivered[offset] >= self.limits.delivery_count_limit:
                self.given_up.add(offset)
        self.partition.complete(transition, is_durable=is_durable, limits=self.limits, now_ms=self.now_ms)

    def close_session(self, member):
        self.begin(self.partition.release(member, self.limits))
        assert all(owner != member for owner, _ in self.held.values())

    def pass_time(self):
        self.now_ms += self.rng.choice((100, 400, 1200))
        writes = self.partition.expire(self.now_ms, self.limits)
        expired = {offset for offset, (_, deadline) in self.held.items() if deadline <= self.now_ms}
        assert expired == {offset for first, last, _, _ in writes for offset in range(first, last + 1)}
        for offset in expired:
            del self.held[offset]
        if self.rng.random() < 0.7:
            self.store(writes, self.partition.start_offset)
        else:
            self.given_up.update(
                offset for first, last, state, _ in writes if state == ARCHIVED for offset in range(first, last + 1)
            )
        self.partition.advance_start()

    def check(self):
        partition = self.partition
        runs = [run for batch in partition.records for run in batch.runs(batch.first, batch.last)]
        done = sum(
            1
            for run in runs
            for offset in range(run.first, run.last + 1)
            if offset >= partition.start_offset and is_done(run.state)
        )
        assert partition.delivery_complete_count == done
        assert [run.first for run in runs] == sorted(run.first for run in runs)
        deadlines = [deadline for _, deadline in self.held.values()]
        assert not deadlines or partition.next_deadline_ms <= min(deadlines)
        if partition.next_fetch_offset() <= partition.end_offset and runs and runs[-1].last >= partition.start_offset:
            assert any(run.state == AVAILABLE for run in runs) or partition.has_read_gap

    def drain(self):
        """Everything that is left can be read and acknowledged, and then everything is done."""
        while self.waiting:
            self.complete(is_durable=True)
        self.now_ms += LOCK_MS
        self.store(self.partition.expire(self.now_ms, self.limits), 0)
        self.held = {}
        self.partition.advance_start()
        for _ in range(1000):
            if self.partition.start_offset >= self.log_end and not self.fetch("one"):
                break
            was = self.partition.start_offset
            if not self.fetch("one") and not self.held and self.partition.next_fetch_offset() >= self.log_end:
                break
            for offset, (owner, _) in sorted(self.held.items()):
                self.begin(
                    self.partition.acknowledge(
                        owner, [Acknowledgement(offset, offset, [ACCEPT])], self.limits, self.now_ms
                    )
                )
            while self.waiting:
                self.complete(is_durable=True)
            self.check()
            assert self.partition.start_offset >= was
        left = (
            {offset for batch in self.log for offset in range(batch.first, batch.last + 1)}
            - self.accepted
            - self.given_up
        )
        assert not left, f"never delivered: {sorted(left)}"


def run_history(seed, steps=60):
    rng = random.Random(seed)
    world = World(rng)
    for _ in range(steps):
        member = rng.choice(MEMBERS)
        step = rng.choices(
            (
                world.append,
                lambda member=member: world.fetch(member),
                lambda member=member: world.acknowledge(member),
                lambda: world.complete(is_durable=rng.random() < 0.7),
                lambda member=member: world.acknowledge_of_others(member),
                lambda member=member: world.close_session(member),
                world.pass_time,
                world.compact,
                world.delete_prefix,
                world.reload,
            ),
            weights=(12, 20, 20, 15, 4, 2, 6, 2, 2, 3),
        )[0]
        step()
        world.check()
    world.drain()


@pytest.mark.parametrize("block", range(5))
def test_random_histories(block):
    for seed in range(100):
        run_history(block * 100 + seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_twenty_thousand_histories(block):
    for seed in range(500):
        run_history(10_000 + block * 500 + seed, steps=80)
