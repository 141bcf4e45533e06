"""Batches of keyed records for compaction: many writes to few keys, the same in each run.

    key    ten digits: a number below `key_count`, drawn evenly
    value  something like JSON, half of it the same everywhere, so that codecs find what they find in practice

All records of a shape have the same size, so whole batches are laid out as columns: 10 M records in some seconds.
Source: KIP-98 for the layout.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import crc32c
import lz4.frame
import numpy as np
import numpy.typing as npt
import zstandard

from bench.records import varint

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

KEY_BYTES = 10
SEED = 20_260_101
_PREFIX = struct.Struct(">qiibI")
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_CHUNK_RECORDS = 120_000
_POOL = 1 << 15
_TEXT = b'{"id":"%s","state":"open","currency":"EUR","note":"%s","filler":"'
_ONE_BYTE_DELTAS = 64  # zigzag: up to 63


def _lz4(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))


@cache
def _zstd_compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=3)


def _zstd(data: bytes) -> bytes:
    return _zstd_compressor().compress(data)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}
"""Name -> number in the attributes, and how its producers compress."""


@dataclass(frozen=True, slots=True)
class KeyedLog:
    """`record_count` writes to `key_count` keys, in batches of `batch_records`, of which the last may be smaller."""

    record_count: int
    key_count: int
    batch_records: int
    record_bytes: int = 100
    """Key and value together."""
    codec: str = "none"

    @property
    def value_bytes(self) -> int:
        return self.record_bytes - KEY_BYTES

    def keys(self) -> Numbers:
        """The key of each record, by offset."""
        return np.random.default_rng(SEED).integers(0, self.key_count, self.record_count)

    def survivors(self, clean_end: int) -> int:
        """How many records are left when everything below offset `clean_end` is compacted once."""
        return int(np.unique(self.keys()[:clean_end]).size) + self.record_count - clean_end

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """The batches in order, each with its number of records; timestamps are now."""
        keys, pool = self.keys(), _pool(self.value_bytes)
        now_ms = time.time_ns() // 1_000_000
        size = self.batch_records
        for start in range(0, self.record_count, per := max(1, _CHUNK_RECORDS // size) * size):
            chunk = keys[start : start + per]
            values = pool[np.random.default_rng(start).integers(0, _POOL, len(chunk))]
            whole = len(chunk) // size * size
            if whole:
                bodies = _bodies(chunk[:whole].reshape(-1, size), values[:whole].reshape(-1, size, self.value_bytes))
                for body in bodies:
                    yield self._batch(body.tobytes(), size, now_ms), size
            if rest := len(chunk) - whole:
                (body,) = _bodies(chunk[whole:].reshape(1, rest), values[whole:].reshape(1, rest, self.value_bytes))
                yield self._batch(body.tobytes(), rest, now_ms), rest

    def _batch(self, body: bytes, count: int, now_ms: int) -> bytes:
        number, compress = CODECS[self.codec]
        checked = _FROM_ATTRIBUTES.pack(number, count - 1, now_ms, now_ms, -1, -1, -1, count) + compress(body)
        return _PREFIX.pack(0, _PREFIX.size - 12 + len(checked), -1, 2, crc32c.crc32c(checked)) + checked


def _bodies(keys: Numbers, values: Bytes) -> Bytes:
    """The records of several batches of one size: a row of bytes for each."""
    batches, count = keys.shape
    parts = [
        _block(keys[:, start:end], values[:, start:end], start).reshape(batches, -1)
        for start, end in ((0, min(count, _ONE_BYTE_DELTAS)), (_ONE_BYTE_DELTAS, count))
        if start < end
    ]
    return np.concatenate(parts, axis=1)


def _block(keys: Numbers, values: Bytes, first_delta: int) -> Bytes:
    """Records whose offset deltas, from `first_delta` on, take equally many bytes: [batch, record, byte]."""
    batches, count, value_bytes = values.shape
    delta_bytes = len(varint(first_delta))
    middle, before_value = varint(KEY_BYTES), varint(value_bytes)
    inner = 2 + delta_bytes + len(middle) + KEY_BYTES + len(before_value) + value_bytes + 1
    head = varint(inner) + b"\0\0"  # attributes, timestamp delta
    out = np.zeros((batches, count, len(varint(inner)) + inner), np.uint8)
    deltas = [varint(first_delta + each) for each in range(count)]
    assert all(len(delta) == delta_bytes for delta in deltas), "a batch has at most 8192 records"
    at = 0

    def put(piece: Bytes | bytes) -> None:
        nonlocal at
        column = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        width = column.shape[-1]
        out[:, :, at : at + width] = column
        at += width

    put(head)
    put(np.frombuffer(b"".join(deltas), np.uint8).reshape(count, delta_bytes))
    put(middle)
    put((keys[:, :, None] // 10 ** np.arange(KEY_BYTES - 1, -1, -1) % 10 + ord("0")).astype(np.uint8))
    put(before_value)
    put(values)
    return out


@cache
def _pool(value_bytes: int) -> Bytes:
    """Values to draw from."""
    random = np.random.default_rng(SEED + value_bytes)
    rows = []
    for noise in random.bytes(_POOL * 48).hex(" ", 48).split():
        text = _TEXT % (noise[:16].encode(), noise[16:32].encode())
        text += noise[32:].encode() * (value_bytes // 64 + 1)
        rows.append(text[: value_bytes - 2] + b'"}')
    return np.frombuffer(b"".join(rows), np.uint8).reshape(_POOL, value_bytes)
