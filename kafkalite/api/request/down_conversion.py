"""Down-conversion for old fetches: the stored batches as messages of format v0 (Fetch 0 and 1) or v1 (Fetch 2 and 3).

A quarter of a million records take 0.6 s, and batches outside the page cache wait for the disk. So a thread reads and
converts them, and only this connection waits. A few uncompressed records in the page cache are converted at once.
Batches are converted until the response is full or `_WORK_MS_MAX` have passed; the rest comes with the next fetch. The
first batch with any records is sent regardless of its size, before version 3 cut to the requested bytes. If nothing
remains of the stored bytes (old formats have no control batches), the read continues behind them; otherwise the client
would fetch them again without end.
Source: kafka.server.KafkaApis.handleFetchRequest (maybeConvertFetchedData), LazyDownConversionRecords; KIP-283.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError, Malformed, StorageError
from kafkalite.common.region import FileRegion
from kafkalite.log.segment.segment_file import iter_batches
from kafkalite.record.message_set import V0, V1
from kafkalite.record.validation.format_conversion import NotConvertible, to_old_format
from kafkalite.replication.partition import Partition

if TYPE_CHECKING:
    from concurrent.futures import Executor

AT_ONCE_BYTES = 64 << 10
AT_ONCE_RECORDS = 1000
"""Regions up to these limits are converted on the event loop: 2 to 3 ms at most."""
_LAST_VERSION_OF_V0 = 1
_LAST_VERSION_OF_PARTS = 2
_WORK_MS_MAX = 250

_Converted = tuple[list[bytes | memoryview], int]
"""The converted messages that fit, and the offset after them."""


class DownConversion:
    """The down-conversion for one response, which has room for `left_bytes` more."""

    __slots__ = ("_clock", "_ends_ms", "_magic", "_may_cut", "_readers", "_used", "left_bytes")

    def __init__(self, version: int, max_bytes: int, clock: Clock, readers: Executor) -> None:
        self._magic = V0 if version <= _LAST_VERSION_OF_V0 else V1
        self._may_cut = version <= _LAST_VERSION_OF_PARTS
        self._clock = clock
        self._readers = readers
        self._ends_ms = clock.monotonic_ms() + _WORK_MS_MAX
        self._used = False
        self.left_bytes = max_bytes

    async def convert(self, partition: Partition, region: FileRegion, from_offset: int, max_bytes: int) -> bytes:
        """The records in `region`, or after it, from `from_offset` on; b"" if the response has no room for any.

        At most as many bytes as were stored, so that limits hold, except that the first batch is whole even if it has
        grown. The last message may be cut off, before version 3 even the first: a client that gets only a partial
        message asks for more bytes. Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, UNSUPPORTED_VERSION for
        a batch that decompresses to too much, and StorageError.
        """
        following: FileRegion | None = region
        while following is not None:
            pieces, next_offset = await self._convert_next(following, from_offset)
            if pieces:
                room = max(following.size, len(pieces[0]))
                if self._may_cut and following.size > max_bytes:
                    room = max_bytes
                data = b"".join(pieces)[:room]
                self._used = True
                self.left_bytes -= len(data)
                return data
            if next_offset <= from_offset or self._is_over():
                break
            from_offset = next_offset
            following = partition.read(from_offset, max_bytes, True)
        return b""

    async def _convert_next(self, region: FileRegion, from_offset: int) -> _Converted:
        """As `_convert_region`, on the event loop if it is quick, else in a thread."""
        if _is_light(region):
            return self._convert_region(region, from_offset)
        work = partial(self._convert_region, region, from_offset)
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _convert_region(self, region: FileRegion, from_offset: int) -> _Converted:
        """Without any pieces, all of the region has been read."""
        pieces: list[bytes | memoryview] = []
        size_bytes = 0
        next_offset = from_offset
        try:
            for _, header, batch in iter_batches(region.file.fd, region.position, region.position + region.size):
                if size_bytes >= region.size or ((pieces or self._used) and self._is_over()):
                    break
                piece = to_old_format(header, batch, self._magic, from_offset)
                next_offset = header.last_offset + 1
                if not piece:
                    continue
                if not pieces and self._used and len(piece) > self.left_bytes:
                    return [], from_offset
                pieces.append(piece)
                size_bytes += len(piece)
        except NotConvertible as error:
            if not pieces:
                raise KafkaError(error.code, str(error)) from None
        except Malformed:
            pass  # the region ends inside a batch
        except OSError as error:
            raise StorageError(f"cannot read {region.file.path}: {error.strerror}") from error
        return pieces, next_offset

    def _is_over(self) -> bool:
        return self._clock.monotonic_ms() >= self._ends_ms


def _is_light(region: FileRegion) -> bool:
    """Whether a region is quick to convert: few records, in the page cache, and not compressed."""
    if region.size > AT_ONCE_BYTES or region.read_at_once() is None:
        return False
    count = 0
    try:
        for _, header, _ in iter_batches(region.file.fd, region.position, region.position + region.size):
            count += header.record_count
            if header.codec or count > AT_ONCE_RECORDS:
                return False
    except (Malformed, OSError):
        pass  # the conversion reports it
    return True
