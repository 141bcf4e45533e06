"""The outcome of an append.

Source: org.apache.kafka.storage.internals.log.LogAppendInfo.
"""

from __future__ import annotations

from typing import NamedTuple


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 unless the topic uses LogAppendTime. `duplicate`: the batch was in the log already;
    the offsets are those of its first append, and nothing was written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
