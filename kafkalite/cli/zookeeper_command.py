"""`kafkalite zookeeper`: a ZooKeeper of one server, for what runs on this machine, until a signal.

`serve -n` and `serve --zookeeper-listener` run it in a process of its own, with --lifeline: a pipe whose end it
notices. It then waits for its clients, up to 2 s, since brokers that notice the same unregister first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from kafkalite.cli.local_cluster.own_zookeeper import LISTENER, parse_listener
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.output import complain, say

if TYPE_CHECKING:
    from kafkalite.zk.server.listener import ZooKeeperListener

_LEAVE_LIMIT_S = 2.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--listener", default=LISTENER, metavar="HOST:PORT", help=f"where to listen ({LISTENER})")
    command.add_argument("--data-dir", required=True, metavar="DIR", help="the directory of its log and snapshots")
    command.add_argument(
        "--allow-remote", action="store_true", help="listen for other machines as well; anyone there may change nodes"
    )
    command.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    for hidden in ("--lifeline", "--listen-descriptor"):  # see `local_cluster`
        command.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    command.add_argument("--session-ms-min", type=int, default=1_000, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError, StorageError."""
    import logging

    import uvloop

    from kafkalite.common.log_lines import LogLines

    host, port = parse_listener("--listener", options.listener, allow_remote=options.allow_remote)
    handler = logging.StreamHandler(sys.stderr)
    sender = "ZooKeeper " if options.lifeline is not None else ""  # several processes share one stderr
    handler.setFormatter(LogLines(f"%(asctime)s {sender}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=options.log_level.upper())
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, os.path.abspath(options.data_dir), host, port))
    except KeyboardInterrupt:  # before the loop took over signals
        return 130
    except OSError as error:
        place = f"{error.filename}: " if error.filename else f"{options.listener}: "
        return complain(f"{place}{error.strerror or error}")
    return 0


async def _serve(options: argparse.Namespace, directory: str, host: str, port: int) -> None:
    from kafkalite.cli.starter_contract import stop_event
    from kafkalite.common.clock import SystemClock
    from kafkalite.log.storage.files import Files
    from kafkalite.log.storage.io_executor import FlushThreadPool, SerialExecutor
    from kafkalite.zk.server.listener import ListenerLimits, ZooKeeperListener
    from kafkalite.zk.server.zookeeper_server import ZooKeeperServer

    loop = asyncio.get_running_loop()
    os.makedirs(directory, exist_ok=True)
    stop_wanted = stop_event(options.lifeline)
    failed: asyncio.Future[StorageError] = loop.create_future()
    threads = FlushThreadPool(2, "kafkalite-zookeeper-disk")
    executor = SerialExecutor(threads.run, lambda: loop.call_soon_threadsafe(executor.run_completions))

    def fail(error: StorageError) -> None:
        if not failed.done():
            failed.set_result(error)

    lock = _lock(directory)
    clock = SystemClock(loop)
    server = ZooKeeperServer(
        Files(),
        directory,
        clock,
        commits=executor.serial_queue(),
        merges=executor.serial_queue(),
        on_failure=fail,
    )
    listener = ZooKeeperListener(server, clock, ListenerLimits(session_ms_min=options.session_ms_min))
    waiting = asyncio.ensure_future(stop_wanted.wait())
    try:
        if options.listen_descriptor is None:
            await listener.open(host, port)
        else:
            await listener.open_inherited(options.listen_descriptor)
        say(f"ZooKeeper is ready on {_address(host, listener.port)}, data in {directory}")
        sys.stdout.flush()
        ends: set[asyncio.Future[Any]] = {waiting, failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            raise failed.result()
        if options.lifeline is not None:
            await _wait_for_clients(listener)
    finally:
        waiting.cancel()
        listener.close()
        executor.wait()
        server.stop()
        threads.close()
        os.close(lock)


async def _wait_for_clients(listener: ZooKeeperListener) -> None:
    try:
        async with asyncio.timeout(_LEAVE_LIMIT_S):
            await listener.until_alone()
    except TimeoutError:
        pass


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _lock(directory: str) -> int:
    """The descriptor of a lock that no other ZooKeeper in this directory gets. Raises ConfigError."""
    import fcntl

    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigError(f"{directory} is in use by another ZooKeeper") from None
    return lock
