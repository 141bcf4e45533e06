"""RunCleaner (27500): compact the logs of a topic now, for `kafkalite cleaner run`.

Not an API of Apache Kafka: its key spells "kl" in ASCII and lies far from Kafka's, which count up from 0 and are below
100 after fifteen years. ApiVersions does not list it, so stock clients see exactly Kafka's APIs.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import INT32, Message, array, boolean, int16, int32, int64, string, struct

RUN_CLEANER_KEY = 0x6B6C


class RunCleanerRequest(Message, flexible="0+"):
    """Null `partitions` stand for all. `rolls`: the active segment is sealed first, so that its records are
    compacted, too. `waits`: the response is sent when all is done, or after `timeout_ms`."""

    topic: str = string("0+")
    partitions: list[int] | None = array(INT32, "0+", nullable="0+")
    rolls: bool = boolean("0+")
    waits: bool = boolean("0+")
    timeout_ms: int = int32("0+")


class CleanerPass(Message):
    """The statistics of one pass over a log, as in `CleanStats`. All are integers; ppm is parts per million."""

    bytes_read: int = int64("0+")
    bytes_kept: int = int64("0+")
    records_read: int = int64("0+")
    records_kept: int = int64("0+")
    tombstones_dropped: int = int64("0+")
    keyless_dropped: int = int64("0+")
    aborted_dropped: int = int64("0+")
    markers_dropped: int = int64("0+")
    map_keys: int = int64("0+")
    map_bytes_read: int = int64("0+")
    map_records_read: int = int64("0+")
    map_utilization_ppm: int = int64("0+")
    map_ms: int = int64("0+")
    total_ms: int = int64("0+")
    throttled_ms: int = int64("0+")
    unread_batches: int = int64("0+", tag=0)
    first_unread: str = string("0+", tag=1)


class RunCleanerPartition(Message):
    """`done` is None if the request did not wait or nothing was to be done; `message` gives the reason for that, or
    describes the error."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    message: str | None = string("0+", nullable="0+")
    done: CleanerPass | None = struct(CleanerPass, "0+", tag=0)


class RunCleanerResponse(Message, flexible="0+"):
    """With an error code there are no partitions: no run was begun."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    partitions: list[RunCleanerPartition] = array(RunCleanerPartition, "0+")
