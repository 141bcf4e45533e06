"""Records the appends to one log and the promises made for them, and checks that a reopened log keeps the promises.

The ledger remembers every batch that was ever handed to the disk, acknowledged or not, and which batch stood before it
then. The batches that a log serves must be a path through that tree: each batch as it was written, right behind one
that it was written behind. Of the way that the log was on when it ended it must go as far as was promised: to the last
acknowledged batch after a kill or a stop, to the last flushed one after a power cut. A power cut may also take the end
of a segment and spare the next one: the log goes on behind such a gap, and says where it is. Batches that compaction
has dropped may be missing in between: of one compaction all or none, but for those in its last segments, and none comes
back once its end was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.record.batch import NewRecord, build_batch, stamp
from tests.support.log.plain_compaction import Compaction

SEQUENCE_MASK = 0x7FFFFFFF
NEVER = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """A batch as it stands in the file. `times` are its records' timestamps."""

    base: int
    last: int
    data: bytes
    epoch: int
    times: tuple[int, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1

    @property
    def key(self) -> int:
        """Of two with the same key the later one counts."""
        return self.data[20] % 5

    def __repr__(self) -> str:
        producer = f" of {self.producer_id}/{self.producer_epoch}@{self.sequence}" if self.producer_id >= 0 else ""
        return f"{self.base}..{self.last} ({len(self.data)} B, epoch {self.epoch}{producer})"


def make_batch(number: int, times: list[int], size_bytes: int, **producer: int) -> bytearray:
    """Batch `number`, with these timestamps, of about `size_bytes` bytes."""
    name = b"%d" % number
    records = [NewRecord(None, name, (), time) for time in times]
    batch = build_batch(records, **producer)
    missing = size_bytes - len(batch)
    for more in range(missing, max(0, missing - 3), -1):  # longer lengths take longer varints
        padded = [*records[:-1], NewRecord(None, name.ljust(len(name) + more, b"."), (), times[-1])]
        batch = build_batch(padded, **producer)
        if len(batch) == size_bytes:
            break
    return batch


class Ledger:
    """Fields: `chain` is what the log holds, from offset 0 on, with what was deleted. Everything below `promised`
    survives a power cut. The log's start lies between `start_kept`, which is written down, and `start_asked`, the last
    that was asked for; `start_reached` is the highest that it has had. `cutting_at` is where a truncation under way
    cuts. `compactions` are those that may have taken place, or may not; what was `gone` with one that has does not come
    back."""

    def __init__(self) -> None:
        self.chain: list[Written] = []
        self.promised = 0
        self.start_kept = 0
        self.start_asked = self.start_reached = 0
        self.cutting_at = NEVER
        self.compactions: list[Compaction] = []
        self.gone: set[bytes] = set()
        self._known: dict[bytes, Written] = {}
        self._parents: dict[bytes, set[bytes | None]] = {}

    @property
    def end(self) -> int:
        return self.chain[-1].last + 1 if self.chain else 0

    def attempt(self, batch: bytes | bytearray, base: int, epoch: int, times: list[int], **producer: int) -> Written:
        """A batch is about to be appended."""
        copy = bytearray(batch)
        stamp(copy, base, epoch)
        data = bytes(copy)
        written = Written(
            base, base + len(times) - 1, data, epoch, tuple(times), producer.get("producer_id", -1),
            producer.get("producer_epoch", -1), producer.get("base_sequence", -1),
        )  # fmt: skip
        written = self._known.setdefault(data, written)
        self._parents.setdefault(data, set()).add(self.chain[-1].data if self.chain else None)
        return written

    def accept(self, written: Written) -> None:
        self.chain.append(written)

    def truncate(self, offset: int) -> None:
        while self.chain and self.chain[-1].last >= offset:
            self.chain.pop()
        self.promised = min(self.promised, offset)
        self.start_asked = min(self.start_asked, offset)
        self.start_kept = min(self.start_kept, offset)
        self.cutting_at = NEVER
        self._forget_gone(offset)

    # compaction

    def _forget_gone(self, end_offset: int) -> None:
        """Others may come to stand where these would be."""
        self.gone = {data for data in self.gone if self._known[data].last < end_offset}
        for compaction in self.compactions:
            compaction.dropped = [data for data in compaction.dropped if self._known[data].last < end_offset]

    def superseded(self, upto: int, last_of_producers: dict[int, tuple[int, int]]) -> set[bytes]:
        """The batches before `upto` that have a later one with the same key there, and may go."""
        kept = {last_offset for last_offset, _ in last_of_producers.values()}
        keys: set[int] = set()
        found = set()
        for written in reversed(self.chain):
            if written.last >= upto:
                continue
            if written.key in keys and written.last not in kept:
                found.add(written.data)
            keys.add(written.key)
        return found

    def compacted(self, compaction: Compaction) -> None:
        """It is over, and on the disk."""
        self.compactions.remove(compaction)
        self.gone.update(compaction.dropped)

    def _may_be_missing(self) -> set[bytes]:
        return self.gone.union(*(compaction.dropped for compaction in self.compactions))

    def _find_out(self, log: PartitionLog, found: set[bytes]) -> list[set[bytes]]:
        """The missing part of each compaction, which must be all of it or nothing. Segments behind its last batch may
        be there as they were, but none of them when one before it is."""
        first = log.segments[0].base_offset
        missing = []
        for compaction in self.compactions:
            others = self.gone.union(*(one.dropped for one in self.compactions if one is not compaction))
            dropped = [self._known[data] for data in compaction.dropped if self._known[data].base >= first]
            # the truncation under way may have cut some
            dropped = [written for written in dropped if written.last < self.cutting_at or written.data in found]
            missing.append({written.data for written in dropped} - found)
            # what another one drops as well may be missing because of that one
            dropped = [written for written in dropped if written.data in found or written.data not in others]
            there = [written for written in dropped if written.data in found]
            left = {max(b for b in compaction.sources if b <= written.base) for written in there}
            if len(there) < len(dropped):
                assert all(base >= compaction.end_offset for base in left), (
                    f"of {compaction.replacement} there is a mix: {there} of {dropped}"
                )
                behind = [written for written in dropped if left and written.base >= min(left)]
                assert there == behind, f"of {compaction.replacement} there is a hole: {there} of {behind}"
        return missing

    def _keep_undecided(self, log: PartitionLog) -> None:
        """Of what lies before the log's start nobody can tell, and a disk that lost its deletion may bring it back."""
        for compaction in self.compactions:
            before = [data for data in compaction.dropped if self._known[data].base < log.start_offset]
            compaction.dropped = [data for data in before if data not in self.gone]
        self.compactions = [compaction for compaction in self.compactions if compaction.dropped]

    def end_before(self, offset: int) -> int:
        """The end of the last batch below `offset` that compaction cannot have dropped."""
        missing = self._may_be_missing()
        return max((w.last + 1 for w in self.chain if w.last < offset and w.data not in missing), default=0)

    def has_the_same(self, base: int, written: Written) -> bool:
        """Whether the batch at `base` is `written`, or one that its producer cannot tell from it."""
        return any(
            w.base == base
            and (w.producer_id, w.producer_epoch, w.sequence, w.last - w.base)
            == (written.producer_id, written.producer_epoch, written.sequence, written.last - written.base)
            for w in self.chain
        )

    def knows(self, batch: memoryview) -> bool:
        return bytes(batch) in self._known

    def last_of(self, producer_id: int) -> Written | None:
        """The producer's last batch; None if compaction may have dropped it, for a later one that has been cut off."""
        last = next((w for w in reversed(self.chain) if w.producer_id == producer_id), None)
        return None if last is None or last.data in self._may_be_missing() else last

    # what a log must be like

    def reopened(self, log: PartitionLog, *, everything: bool, forgets_names: bool = False) -> None:
        """The log was opened again: check it, and go on from where it stands. `everything`: nothing may be missing.
        `forgets_names`: the disk may have lost the name of one file and kept that of a later one."""
        path = self._way(log)
        whole = self.end if self.cutting_at == NEVER else min(self.end, self.end_before(self.cutting_at))
        missing = self._find_out(log, {written.data for written in path})
        self.gone.update(*missing)
        self._keep_undecided(log)
        self._forget_gone(log.end_offset)
        promised = whole if everything else self.promised
        found = {written.data for written in path}
        start = log.start_offset
        asked = self.start_asked
        if forgets_names and not everything and self.promised <= asked:
            asked = start  # nothing says that there was an older segment, and nothing in it was flushed
        assert self.start_kept <= start <= asked, (
            f"the log starts at {start}; {self.start_kept} was written down, {self.start_asked} was asked for"
        )
        for written in self.chain:
            if written.last >= start and written.last < promised and written.data not in self.gone:
                assert written.data in found, f"{written} is lost; promised up to {self.promised}; found {path}"
        # the end of a segment that was lost: nothing of it was promised, and it does not come back
        lost = {w.data for w in self.chain if log.gap_offset <= w.base < log.end_offset} - found - self.gone
        self.gone |= lost
        end = path[-1].last + 1 if path else log.segments[-1].base_offset
        if any(written.last + 1 == log.segments[-1].base_offset > end for written in self._all(self.gone)):
            end = log.segments[-1].base_offset  # nothing is left of what lay before it
        if log.segments[-1].base_offset <= start:
            end = max(end, log.segments[-1].base_offset)  # what lay before it was deleted
        assert log.end_offset == end, f"the log ends at {log.end_offset}, its batches at {end}"
        assert log.end_offset >= promised, f"the log ends at {log.end_offset}, promised up to {promised}"
        assert log.flusher.recovery_point <= log.end_offset
        first = path[0].base if path else log.end_offset
        kept = [w for w in self.chain if w.data not in lost]  # also of a log that is nothing but empty segments
        left = [w for w in kept if w.last < first or (w.last < end and w.data in self.gone)]
        self.chain = sorted([*left, *path], key=lambda written: written.base)
        self.cutting_at = NEVER
        self.start_asked = max(self.start_asked, start)
        self.check(log)
        starts = [offset for _, offset in log.epochs.entries()]
        assert all(offset <= log.end_offset for offset in starts), f"epochs {log.epochs.entries()} past the end"

    def check(self, log: PartitionLog) -> None:
        """That the log and everything beside it agrees with the chain."""
        path = self._way(log)
        self._find_out(log, {written.data for written in path})
        self._check_reads(log, path)
        self._check_epochs(log, path)
        self._check_producers(log, path)
        self._check_indexes(log)
        self._check_times(log, path)

    def _way(self, log: PartitionLog) -> list[Written]:
        path: list[Written] = []
        bases = [segment.base_offset for segment in log.segments]
        for view in log.batches(log.segments[0].base_offset):
            data = bytes(view)
            written = self._known.get(data)
            assert written is not None, f"a batch that nobody wrote stands behind {path}"
            assert data not in self.gone, f"{written} was compacted, and came back"
            segment_base = max(base for base in bases if base <= written.base)
            is_first = not path or path[-1].base < segment_base
            # some may be missing before a segment that begins where records were deleted
            is_after_deleted = is_first and segment_base <= log.start_offset and written in self.chain
            is_over_gap = is_first and segment_base > log.gap_offset
            if path and not is_after_deleted:
                assert self._may_follow(data, path[-1].data, over_gap=is_over_gap), (
                    f"{written} was not written behind {path}; was {self.chain}"
                )
            path.append(written)
        return path

    def _may_follow(self, data: bytes, before: bytes, *, over_gap: bool) -> bool:
        """Whether nothing was written between the two but what compaction has dropped; `over_gap`: or what is lost."""
        may_be_missing = self._known.keys() if over_gap else self._may_be_missing()
        parents = self._parents[data]
        while before not in parents:
            parents = {more for p in parents if p and p in may_be_missing for more in self._parents[p]}
            if not parents:
                return False
        return True

    def _all(self, batches: set[bytes]) -> list[Written]:
        return [self._known[data] for data in batches]

    def _check_reads(self, log: PartitionLog, path: list[Written]) -> None:
        for written in path:
            for offset in {max(written.base, log.start_offset), written.last}:
                if log.start_offset <= offset <= written.last:
                    region = log.read(offset, 1, log.end_offset)
                    assert region is not None and region.read() == written.data, (
                        f"reading {offset} does not yield {written}"
                    )
        for missing in self._all(self._may_be_missing() - {written.data for written in path}):
            if log.start_offset <= missing.last < log.end_offset:
                behind = next((written for written in path if written.base > missing.last), None)
                region = log.read(missing.last, 1, log.end_offset)
                assert (region and region.read()) == (behind and behind.data), f"reading {missing.last} yields {region}"
        assert log.read(log.end_offset, 1, log.end_offset) is None
        assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases)) and bases[0] <= log.start_offset <= log.end_offset

    def _check_epochs(self, log: PartitionLog, path: list[Written]) -> None:
        for written in path:
            if written.last >= log.start_offset:
                offset = max(written.base, log.start_offset)
                assert log.epochs.epoch_at(offset) == written.epoch, (
                    f"offset {offset} is of epoch {written.epoch}, not {log.epochs.epoch_at(offset)}"
                    f": {log.epochs.entries()}"
                )

    def _check_producers(self, log: PartitionLog, path: list[Written]) -> None:
        first = path[0].base if path else log.end_offset
        latest: dict[int, list[Written]] = {}
        for written in self.chain:
            if written.producer_id >= 0 and written.last < log.end_offset:
                mine = latest.setdefault(written.producer_id, [])
                if mine and mine[-1].producer_epoch != written.producer_epoch:
                    mine.clear()
                mine.append(written)
        missing = self._may_be_missing()
        for producer_id, mine in latest.items():
            last = mine[-1]
            producer = log.producers.get(producer_id)
            if producer is None:
                # a later one of the same producer has let it go, and was cut off since
                is_gone = last.data in missing
                is_deleted = last.base < max(first, log.start_offset, self.start_reached)
                assert is_gone or is_deleted, f"{producer_id} is forgotten: {last}"
                continue
            at = producer.epoch, producer.last_sequence
            while len(mine) > 1 and at != _stand_behind(mine[-1]):
                has_lost = log.gap_offset < NEVER or not path
                is_lost = has_lost and mine[-1].last < log.start_offset  # before it could be deleted
                if mine[-1].data not in missing and not is_lost:
                    break
                mine.pop()  # the same, and an earlier one is there
            last = mine[-1]
            assert at == _stand_behind(last), f"producer {producer_id} stands at {at[0]}/{at[1]}, not at {last}"
            remembered = [batch.last_offset for batch in producer.batches]
            offsets = [written.last for written in mine if written.last in remembered or written.data not in self.gone]
            assert remembered == offsets[-len(remembered) :], f"{remembered} of {mine}"
        for producer_id in log.producers._producers:
            assert producer_id in latest, f"producer {producer_id} never wrote what there is"

    def _check_indexes(self, log: PartitionLog) -> None:
        for segment in log.segments:
            positions: dict[int, tuple[int, int]] = {}
            largest: dict[int, int] = {}
            latest = -1
            for position, header, _ in segment.iter_batches():
                latest = max(latest, header.max_timestamp)
                positions[header.last_offset] = position, header.max_timestamp
                largest[header.last_offset] = latest
            entries = segment.offset_index.all()
            assert entries == sorted(set(entries))
            for offset, position in entries:
                assert offset in positions and positions[offset][0] == position, (
                    f"{segment.offset_index.path} says {offset} at {position}: {positions}"
                )
            times = segment.time_index.all()
            assert times == sorted(set(times))
            for time, offset in times:
                assert largest.get(offset) == time == positions[offset][1], (
                    f"{segment.time_index.path} says {time} up to {offset}: {positions}"
                )
            assert segment.latest()[0] == latest, f"{segment.path}: {segment.latest()}, not {latest}"

    def _check_times(self, log: PartitionLog, path: list[Written]) -> None:
        records = [(time, w.base + i, w.epoch) for w in path for i, time in enumerate(w.times)]
        asked = {time for time, _, _ in records if time >= 0}
        for time in [*sorted(asked)[:: max(1, len(asked) // 6)], max(asked, default=0) + 1]:
            expected = next((r for r in records if r[0] >= time and r[1] >= log.start_offset), None)
            found = log.lookup_of_timestamp(time, log.end_offset).answer()
            assert found == expected, f"time {time} is found at {found}, not {expected}"
        if records:
            newest = max(time for time, _, _ in records)
            expected = next(r for r in records if r[0] == newest)
            if newest >= 0 and expected[1] >= log.start_offset:
                found = log.lookup_of_max_timestamp(log.end_offset).answer()
                assert found == expected, f"the latest is found at {found}, not {expected}"


def state_of(log: PartitionLog) -> object:
    """Everything that opening a log again must find the same."""
    producers = {
        producer_id: (p.epoch, p.last_sequence, p.batches[-1:], p.last_timestamp_ms, p.coordinator_epoch)
        for producer_id, p in log.producers._producers.items()
    }
    segments = [
        (s.base_offset, s.size_bytes, s.offset_index.all(), s.time_index.all(), s.txn_index.all()) for s in log.segments
    ]
    epochs = log.epochs.entries()
    if epochs:  # the first one begins at the log's start or, read from the batches, behind the gap that compaction left
        bases = (header.base_offset for one in log.segments for _, header, _ in one.iter_batches()
                 if header.last_offset >= log.start_offset)  # fmt: skip
        epochs[0] = epochs[0][0], max(epochs[0][1], next(bases, log.start_offset))
    return log.start_offset, log.end_offset, epochs, producers, segments


def times_around(random: Random, now_ms: int, count: int) -> list[int]:
    """Timestamps that go back and forth."""
    return [now_ms + random.randint(-500, 500) for _ in range(count)]


def _stand_behind(written: Written) -> tuple[int, int]:
    """Epoch and last sequence of its producer."""
    return written.producer_epoch, (written.sequence + written.last - written.base) & SEQUENCE_MASK
