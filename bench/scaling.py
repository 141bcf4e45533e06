"""Does a request cost more when the broker has more? One-record requests over many partitions, and over many segments.

Segments: the topic first rolls at every batch (or at 1 MiB where the broker allows no less, as Kafka 4 does), until it
has as many as wanted; then `segment.bytes` is raised, so that what is measured appends to one file. Fetches read one
batch at places spread over all segments, so that every one of them searches; each segment was read once before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from bench import wire
from bench.discard import Reader
from bench.records import frame_cycle, record_batch
from bench.replay import blocking_socket, pump, replay
from bench.report import Result
from bench.session import Session
from bench.wire import BrokerError, Connection

_VALUE_BYTES = 100
_LEAST_SEGMENT_BYTES_KAFKA_4 = 1 << 20
# A stride coprime to any count of segments that is used here, so that consecutive fetches hit far-apart segments.
_STRIDE = 7919


def many_partitions(session: Session, work: str, count: int) -> Result:
    """One-record requests, five in flight, round-robin over `count` partitions."""
    return replace(replay(session, work, 1, _VALUE_BYTES, partitions=count), note=f"{count:,} partitions")


def segments_produce(session: Session, work: str, count: int) -> Result:
    """One-record requests, five in flight, to a partition of `count` segments."""
    with _segmented_topic(session, work, count) as (topic, start), blocking_socket(session.bootstrap) as sock:
        cycle = frame_cycle(topic, 1, _VALUE_BYTES, acks=session.acks)
        most = session.max_bytes // cycle.batch_bytes
        warm = session.warm_up(lambda seconds: pump(sock, cycle, seconds, most))
        with session.metered() as measure:
            requests = pump(sock, cycle, session.seconds, most)
        session.expect_end(topic, start + warm + requests)
    return Result(
        work,
        measure.seconds,
        requests,
        requests,
        requests * _VALUE_BYTES,
        measure.cpu,
        measure.client_cpu_s,
        note=f"{count:,} segments",
    )


def segments_fetch(session: Session, work: str, count: int) -> Result:
    """Fetches of one batch, one in flight, at offsets spread over `count` segments."""
    with _segmented_topic(session, work, count) as (topic, end_offset), blocking_socket(session.bootstrap) as sock:
        cycle = frame_cycle(topic, 1, _VALUE_BYTES)
        reader = Reader(sock, cycle, cycle.batch_bytes)

        spacing = end_offset // count
        for index in range(count):
            reader.fetch(index * spacing)

        def fetch_for(seconds: float) -> int:
            done, deadline = 0, time.monotonic() + seconds
            while time.monotonic() < deadline:
                reader.fetch(done * _STRIDE % count * spacing)
                done += 1
            return done

        session.warm_up(fetch_for)
        with session.metered() as measure:
            requests = fetch_for(session.seconds)
    return Result(
        work,
        measure.seconds,
        requests,
        cpu=measure.cpu,
        client_cpu_s=measure.client_cpu_s,
        note=f"{count:,} segments",
    )


@contextlib.contextmanager
def _segmented_topic(session: Session, work: str, count: int) -> Iterator[tuple[str, int]]:
    """A topic whose partition 0 has `count` segments and takes its next records in one segment; and its end offset.

    The first batch of every segment is one record of the usual size, so that a reader can ask for it.
    """
    small = len(record_batch(1, _VALUE_BYTES))
    with contextlib.ExitStack() as stack:
        try:
            topic = stack.enter_context(session.topic(work, config={"segment.bytes": str(small)}))
            filler = None
        except BrokerError:
            least = str(_LEAST_SEGMENT_BYTES_KAFKA_4)
            topic = stack.enter_context(session.topic(work, config={"segment.bytes": least}))
            filler = record_batch(1, _LEAST_SEGMENT_BYTES_KAFKA_4 - small - 200)
        end_offset = _fill_segments(session, topic, count, filler)
        with Connection(session.bootstrap) as connection:
            connection.alter_topic(topic, {"segment.bytes": str(1 << 30)})
        yield topic, end_offset


def _fill_segments(session: Session, topic: str, count: int, filler: bytes | None) -> int:
    """One small batch a segment, followed by a large one where only that makes it roll; returns the end offset."""
    cycle = frame_cycle(topic, 1, _VALUE_BYTES)
    if filler is not None:
        frames = cycle.data[: cycle.frame_bytes], wire.produce_frame(topic, 0, filler)
        with Connection(session.bootstrap) as connection:
            for _ in range(count):
                for frame in frames:
                    connection.produce(frame)
        end_offset = 2 * count
    else:
        with blocking_socket(session.bootstrap) as sock:
            end_offset = pump(sock, cycle, 120.0, count)
    session.expect_end(topic, end_offset)
    return end_offset
