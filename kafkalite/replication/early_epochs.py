"""The epoch files of many logs, written side by side before this broker takes up the leadership of them.

A leader notes its epoch on the disk before anything else, with two fsyncs: 3 ms of the event loop for each partition.
After a start, or the end of another broker, there may be thousands. In threads the disk takes several at once, none of
them in the loop. A few are not worth a thread.

After each call of the system a thread waits for the interpreter's lock, up to 5 ms while the loop is busy, and then
many go on at once: of 500 logs each took 5 ms by 8 threads, 0.9 ms by 32, no less by 100.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kafkalite.log.storage.files import outcome_of

if TYPE_CHECKING:
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

COUNT_MIN = 4
_THREADS = 32


async def write_early(elected: Sequence[tuple[PartitionLog, int]]) -> None:
    """Write the files of logs that are about to begin an epoch. One that cannot be written is tried again by its
    election, which says so."""
    if len(elected) < COUNT_MIN:
        return
    loop = asyncio.get_running_loop()
    jobs = [log.epochs.write_early(epoch, log.end_offset) for log, epoch in elected]
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalite-epochs")
    try:
        outcomes = await asyncio.gather(*(loop.run_in_executor(threads, outcome_of, job) for job in jobs))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    if any(outcomes):
        logger.warning("%d epochs are not written yet: %s", sum(map(bool, outcomes)), next(filter(None, outcomes)))
