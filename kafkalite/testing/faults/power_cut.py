"""The data of a broker as the end of its power leaves them: without what no fsync had brought to the disk.

By default that is all of the last segments: Kafka and kafkalite leave fsync to the system, unless flush.messages or
flush.ms say otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.log.storage.file_names import segment_stem

if TYPE_CHECKING:
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.server.broker_server import BrokerServer


class UnflushedTail(NamedTuple):
    """`path`, a segment's file, is on the disk up to `size`; the segments that begin with `gone` are not at all."""

    path: Path
    size: int
    gone: tuple[int, ...]


def unflushed_tails(server: BrokerServer) -> list[UnflushedTail]:
    """On the broker's loop."""
    return [tail for log in server.logs.logs.values() for tail in _tail_of(log)]


def _tail_of(log: PartitionLog) -> Iterator[UnflushedTail]:
    flushed = log.flusher.recovery_point
    if flushed >= log.end_offset:
        return
    bases = [segment.base_offset for segment in log.segments]
    first = max((index for index, base in enumerate(bases) if base <= flushed), default=0)
    segment = log.segments[first]
    size = next((at for at, header, _ in segment.iter_batches() if header.base_offset >= flushed), segment.size_bytes)
    yield UnflushedTail(Path(segment.path), size, tuple(bases[first + 1 :]))


def forget(tails: list[UnflushedTail]) -> None:
    """After the end of the broker. Raises OSError."""
    for tail in tails:
        os.truncate(tail.path, tail.size)
        for base in tail.gone:
            for path in tail.path.parent.glob(f"{segment_stem(base)}.*"):
                path.unlink()
