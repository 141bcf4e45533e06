"""Partition directories with everything in them that a log may hold, drawn from a seed: sound, or with some damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from kafkalite.record.batch import NewRecord, build_batch, stamp_log_append_time
from kafkalite.record.message_set import V0, V1, build_set

TIME_MS = 1_700_000_000_000
TXN_ENTRY = struct.Struct(">hqqqq")


class RandomLog:
    """One segment that grows batch by batch, and index entries that point into it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.data = bytearray()
        self.base_offset = self.random.choice((0, 0, 17, 4_000_000_000))
        self.offset = self.base_offset
        self.index: list[tuple[int, int]] = []
        self.times: list[tuple[int, int]] = []
        self.latest = -1

    def text(self, limit: int = 40) -> bytes | None:
        """Null, words, words in any script, or any bytes."""
        draw = self.random
        kind = draw.randrange(6)
        if kind == 0:
            return None
        size = draw.choice((0, 1, draw.randrange(limit), draw.randrange(limit * 20) if kind == 5 else 3))
        if kind == 1:
            return draw.randbytes(size)
        letters = 'abc \t"\\é中\U0001f600{},' if kind > 2 else "xyz01"
        return "".join(draw.choice(letters) for _ in range(size)).encode()

    def records(self) -> list[NewRecord]:
        draw = self.random
        count = draw.choice((1, 1, 2, 3, draw.randrange(1, 60)))
        headers = [
            (f"h{number}é"[: draw.randrange(1, 4)], self.text(5)) for number in range(draw.choice((0, 0, 0, 1, 3)))
        ]
        return [NewRecord(self.text(), self.text(), headers, TIME_MS + draw.randrange(-5, 5000)) for _ in range(count)]

    def add_batch(self) -> None:
        draw = self.random
        records = self.records()
        producer = draw.random() < 0.5
        sequence = draw.choice((0, 7, 2**31 - 3)) if producer else -1
        deltas = sorted(draw.sample(range(len(records) * 2), len(records))) if draw.random() < 0.15 else None
        batch = build_batch(
            records,
            base_offset=self.offset,
            codec=draw.randrange(5),
            producer_id=draw.randrange(1 << 40) if producer else -1,
            producer_epoch=draw.randrange(1 << 15) if producer else -1,
            base_sequence=sequence,
            leader_epoch=draw.choice((-1, 0, 5)),
            transactional=producer and draw.random() < 0.4,
            offset_deltas=deltas,
        )
        if draw.random() < 0.2:
            stamp_log_append_time(batch, TIME_MS + draw.randrange(9000))
        self._put(batch, int.from_bytes(batch[23:27], "big"), int.from_bytes(batch[35:43], "big", signed=True))

    def add_marker(self) -> None:
        kind = self.random.choice((0, 1, 0, 1, 2, 9))
        value = struct.pack(">hi", 0, self.random.randrange(9))
        batch = build_batch(
            [NewRecord(struct.pack(">hh", 0, kind), value, (), TIME_MS)],
            base_offset=self.offset,
            producer_id=5,
            producer_epoch=1,
            transactional=kind < 2,
            control=True,
        )
        self._put(batch, 0, TIME_MS)

    def add_empty(self) -> None:
        delta = self.random.randrange(30)
        batch = build_batch([], base_offset=self.offset, producer_id=9, base_sequence=3, last_offset_delta=delta)
        self._put(batch, delta, -1)

    def add_legacy(self) -> None:
        draw = self.random
        magic = draw.choice((V0, V1))
        codec = draw.randrange(4)
        count = draw.randrange(1, 9) if codec else 1
        stamped = magic == V1 and draw.random() < 0.3
        entries = [
            (self.offset + number, TIME_MS + draw.randrange(5000) if magic else -1, self.text(), self.text())
            for number in range(count)
        ]
        self._put(bytearray(build_set(entries, magic, codec=codec, timestamp_type=int(stamped))), count - 1, -1)

    def _put(self, batch: bytearray, delta: int, latest: int) -> None:
        position = len(self.data)
        self.data += batch
        last = self.offset + delta
        if latest > self.latest:
            self.latest = latest
            if self.random.random() < 0.5:
                self.times.append((latest, last - self.base_offset))
        if position and self.random.random() < 0.4:
            self.index.append((last - self.base_offset, position))
        self.offset = last + 1 + self.random.choice((0, 0, 0, 0, 3))

    def write(self, directory: Path) -> None:
        """The segment's files. Half of the indexes are preallocated, as a kill leaves them."""
        directory.mkdir(parents=True, exist_ok=True)
        padding = self.random.choice((0, 0, 8, 800))
        stem = directory / f"{self.base_offset:020d}"
        stem.with_suffix(".log").write_bytes(self.data)
        index = b"".join(struct.pack(">ii", *entry) for entry in self.index)
        stem.with_suffix(".index").write_bytes(index + bytes(padding))
        times = b"".join(struct.pack(">qi", *entry) for entry in self.times)
        stem.with_suffix(".timeindex").write_bytes(times + bytes(padding // 8 * 12))


def draw_log(seed: int, batches: int = 12) -> RandomLog:
    log = RandomLog(seed)
    for _ in range(batches):
        log.random.choice(
            (log.add_batch, log.add_batch, log.add_batch, log.add_batch, log.add_marker, log.add_empty, log.add_legacy)
        )()
    return log


def harm(log: RandomLog) -> None:
    """Damage that Kafka's tool can still pass: wrong checksums, a torn or zero-filled end."""
    draw = log.random
    kind = draw.randrange(4)
    if kind == 0:
        log.data[12 + draw.randrange(3)] ^= 1  # the leader epoch of v2, the checksum of older ones
    elif kind == 1:
        log.data += draw.randbytes(draw.randrange(1, 16))
    elif kind == 2:
        log.data += build_batch([NewRecord(b"torn", b"torn")], base_offset=log.offset)[: draw.randrange(17, 60)]
