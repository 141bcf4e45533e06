"""The ZooKeeper of our own on the running loop, with its files in a directory and clients over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafkalite.common.clock import Clock, SystemClock
from kafkalite.common.errors import StorageError
from kafkalite.log.storage.files import Files
from kafkalite.log.storage.io_executor import FlushThreadPool, SerialExecutor
from kafkalite.zk.server.listener import ListenerLimits, ZooKeeperListener
from kafkalite.zk.server.zookeeper_server import ZooKeeperServer

SHORT = ListenerLimits(session_ms_min=200)


@asynccontextmanager
async def own_zookeeper(
    directory: Path, limits: ListenerLimits = SHORT, clock: Clock | None = None
) -> AsyncIterator[ZooKeeperListener]:
    loop = asyncio.get_running_loop()
    clock = clock or SystemClock(loop)
    threads = FlushThreadPool(2, "zookeeper-disk")
    executor = SerialExecutor(threads.run, lambda: loop.call_soon_threadsafe(executor.run_completions))

    def fail(error: StorageError) -> None:
        raise AssertionError(error)

    server = ZooKeeperServer(
        Files(),
        str(directory),
        clock,
        commits=executor.serial_queue(),
        merges=executor.serial_queue(),
        on_failure=fail,
    )
    listener = ZooKeeperListener(server, clock, limits)
    await listener.open("127.0.0.1", 0)
    try:
        yield listener
    finally:
        listener.close()
        executor.wait()
        server.stop()
        threads.close()
