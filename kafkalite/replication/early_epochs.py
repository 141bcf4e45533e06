"""The epochs of many elections, on the disk before this broker takes up the leadership of them.

A leader notes its epoch on the disk before anything else, with two fsyncs: 3 ms of the event loop for each partition.
After a start, or the end of another broker, there may be thousands. They are written by another thread, to one file of
each data directory (`log/directories/election_file.py`). A few are not worth a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.log.storage.files import outcome_of

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

COUNT_MIN = 4


async def write_early(logs: LogManager, elected: Sequence[tuple[PartitionLog, int]]) -> bool:
    """Write down the epochs that logs are about to begin. False if some could not be written: each election tries
    again for its log, and says so."""
    if len(elected) < COUNT_MIN:
        return True
    loop = asyncio.get_running_loop()
    is_written = True
    for job, note in list(logs.record_elections(elected)):
        fault = await loop.run_in_executor(None, outcome_of, job)
        if fault is None:
            note()
        else:
            logger.warning("the epochs of elections are not written yet: %s", fault)
            is_written = False
    return is_written
