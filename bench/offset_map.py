"""`python -m bench.offset_map`: what it costs to remember the latest offset of every key of a log, and to ask for it.

Records of 120 bytes with a key of 16 in chunks of 150,000, as the first reading of a compaction gives them. The map of
the cleaner beside a plain dict from MD5 to offset, which is how one would write it: the same rows for both. Seconds are
of CPU, the kernel's included.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kafkalite.cleaner.compaction.key_hash import KeyHash
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes

_MEMORY_BYTES = 128 << 20
_LOAD_FACTOR = 0.9
_RECORD_BYTES = 120
_KEY_BYTES = 16
_CHUNK_ROWS = 150_000


@dataclass(frozen=True, slots=True)
class Chunk:
    data: Bytes
    key_start: Array
    key_end: Array
    offset: Array


def chunks(number: Array) -> Iterator[Chunk]:
    """Records with these keys, a number each: the number, mixed, and twelve digits of it."""
    for begin in range(0, len(number), _CHUNK_ROWS):
        part = number[begin : begin + _CHUNK_ROWS]
        records = np.zeros((len(part), _RECORD_BYTES), np.uint8)
        records[:, 8:12] = (part.astype(np.uint32) * np.uint32(2654435761)).view(np.uint8).reshape(-1, 4)
        for digit in range(12):
            records[:, 12 + digit] = part // 10 ** (11 - digit) % 10 + ord("0")
        start = np.arange(len(part), dtype=np.int64) * _RECORD_BYTES + 8
        yield Chunk(records.reshape(-1), start, start + _KEY_BYTES, np.arange(begin, begin + len(part)))


def seconds_of(work: Callable[[Chunk], object], number: Array) -> float:
    """The seconds of `work` alone for all chunks; making them does not count."""
    total = 0.0
    for chunk in chunks(number):
        begin = time.process_time()
        work(chunk)
        total += time.process_time() - begin
    return total


def plain_put(offsets: dict[bytes, int], chunk: Chunk) -> None:
    data = chunk.data.tobytes()
    for start, end, offset in zip(chunk.key_start.tolist(), chunk.key_end.tolist(), chunk.offset.tolist(), strict=True):
        offsets[hashlib.md5(data[start:end], usedforsecurity=False).digest()] = offset


def plain_get(offsets: dict[bytes, int], chunk: Chunk) -> list[int]:
    data = chunk.data.tobytes()
    return [
        offsets.get(hashlib.md5(data[start:end], usedforsecurity=False).digest(), -1)
        for start, end in zip(chunk.key_start.tolist(), chunk.key_end.tolist(), strict=True)
    ]


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)


def measure(what: str, number: Array, plain: bool) -> None:
    rows = len(number)
    keys = len(np.unique(number))

    def line(name: str, seconds: float, mib: float | None = None) -> None:
        held = "" if mib is None else f"{mib:8.0f} MiB"
        print(f"{what:24} {rows:>12,} {keys:>11,}  {name:28} {seconds:8.2f} s {seconds / rows * 1e9:8.0f} ns{held}")

    hash_of = KeyHash()
    line("hash", seconds_of(lambda chunk: hash_of(chunk.data, chunk.key_start, chunk.key_end), number))
    offsets = SkimpyOffsetMap(_MEMORY_BYTES, _LOAD_FACTOR)
    seconds = seconds_of(lambda chunk: offsets.put(chunk.data, chunk.key_start, chunk.key_end, chunk.offset), number)
    line("put (with hash)", seconds, offsets.table_bytes / (1 << 20))
    assert offsets.size == keys
    line("get (with hash)", seconds_of(lambda chunk: offsets.get(chunk.data, chunk.key_start, chunk.key_end), number))
    begin = time.process_time()
    offsets.into_offsets()
    line("all offsets, sorted", time.process_time() - begin)
    if plain:
        del offsets
        gc.collect()
        before = resident_mib()
        plain_offsets: dict[bytes, int] = {}
        seconds = seconds_of(lambda chunk: plain_put(plain_offsets, chunk), number)
        line("put, dict of MD5", seconds, resident_mib() - before)
        line("get, dict of MD5", seconds_of(lambda chunk: plain_get(plain_offsets, chunk), number))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offset_map", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the first workload")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the first workload")
    parser.add_argument("--no-dict", action="store_true", help="only the map")
    options = parser.parse_args()
    random = np.random.default_rng(1)
    capacity = SkimpyOffsetMap(_MEMORY_BYTES, _LOAD_FACTOR).capacity
    measure("rows over keys", random.integers(0, options.keys, options.rows), not options.no_dict)
    measure("a full map", random.permutation(capacity), not options.no_dict)


if __name__ == "__main__":
    main()
