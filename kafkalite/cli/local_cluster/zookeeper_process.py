"""A small ZooKeeper of our own, for several brokers on one machine without a ZooKeeper.

It is the real one, from the jars that PySpark brings along, in a process of its own; it needs a Java runtime. It
listens on the loopback only, on a port that was free, and keeps its data in a given directory:

    zoo.cfg          rewritten at each start
    zookeeper.out    its output since its last start
    version-2/       its data: snapshots and transaction logs; it removes the old ones itself

It does not outlive the process that started it, however that ended: a shell beside it reads from a pipe, its lifeline,
whose other end is here, and ends it when that end is closed. The shell waits 2 s, so that the brokers, which notice the
same, can unregister first.
Source: org.apache.zookeeper.server.quorum.QuorumPeerMain, QuorumPeerConfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from kafkalite.cli.local_cluster.broker_process import ChildProcess, describe_exit
from kafkalite.common.errors import ConfigError

logger = logging.getLogger(__name__)

TICK_MS = 500  # sessions may be as short as two of them
SESSION_MS_MAX = 60_000
START_LIMIT_S = 60.0
_ASK_LIMIT_S = 2.0
_PORTS_MAX = 5  # each a new port: one that was free a moment ago may be in use
_OUTPUT_BYTES = 4096
_HEAP = "-Xmx256m"
_BUFFER_BYTES_MAX = 16 << 20  # of one request: a topic of a hundred thousand partitions is a node of 2 MB

# A line from the pipe: the server has ended. The end of the pipe: the process that was to end the server is gone.
_GUARDED = 'exec 3<&0 </dev/null; { read -r ended <&3 || { sleep 2; kill $$; }; } & exec "$@" 3<&-'


def find_java() -> str | None:
    """The Java that JAVA_HOME or PATH names."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which(os.path.join(home, "bin", "java")) if home else None) or shutil.which("java")


def find_jars() -> Path | None:
    """A directory with ZooKeeper's jars: that of the installed PySpark, or of the Spark that SPARK_HOME names."""
    places = [Path(os.environ["SPARK_HOME"]) / "jars"] if os.environ.get("SPARK_HOME") else []
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("pyspark")  # finds it without importing it
        if found is not None and found.submodule_search_locations:
            places.insert(0, Path(found.submodule_search_locations[0]) / "jars")
    return next((place for place in places if any(place.glob("zookeeper-[0-9]*.jar"))), None)


def missing_requirement() -> str | None:
    """The reason why a ZooKeeper of our own cannot run on this machine; None if it can."""
    if find_java() is None:
        return "no Java here (8 or newer; neither JAVA_HOME nor PATH leads to one)"
    if find_jars() is None:
        return "no ZooKeeper here (the pyspark package brings it: pip install pyspark)"
    return None


def command(config: Path) -> list[str]:
    """The command that runs a ZooKeeper with this configuration. Raises ConfigError with what is missing."""
    java, jars = find_java(), find_jars()
    if java is None or jars is None:
        raise ConfigError(f"a ZooKeeper of our own cannot run here: {missing_requirement()}")
    options = [
        _HEAP,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # half a second of start on a slow core
        f"-Djute.maxbuffer={_BUFFER_BYTES_MAX}",
        "-Dzookeeper.preAllocSize=1024",  # KiB that its log grows by, not 64 MiB
    ]
    return [java, *options, "-cp", f"{jars}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]


class ZooKeeperProcess(ChildProcess):
    """A ZooKeeper with its data in `directory`. It keeps its address from its first start on."""

    name = "ZooKeeper"
    stop_limit_s = 10.0

    def __init__(self, directory: Path, *, keep_open: Sequence[int] = ()) -> None:
        super().__init__(keep_open)
        self.directory = directory
        self.port = 0
        self._lifeline = -1

    @property
    def connect(self) -> str:
        """The value for zookeeper.connect. Valid after `start`."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it serves. Raises ConfigError with its last line of output if it does not; OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(_PORTS_MAX):
            is_first = not self.port  # brokers know the port from then on
            self.port = self.port or _free_port()
            await self._launch()
            try:
                serves = await self._wait_until_serving()
            except BaseException:
                await self._end(signal.SIGKILL)
                raise
            if serves:
                logger.info("ZooKeeper (process %d) serves on %s, data in %s", self.pid, self.connect, self.directory)
                return
            await self._end(signal.SIGKILL)
            last_line = self._last_line()
            if "BindException" not in self._end_of_output() or attempt + 1 == _PORTS_MAX:
                break
            self.port = 0 if is_first else self.port
        raise ConfigError(f"the ZooKeeper of our own did not start; {self._output} ends with: {last_line}")

    async def ended(self) -> str:
        """Waits until the process has ended; returns how. Only `stop` stops it."""
        how = await super().ended() or describe_exit(0)
        self._release()
        return how

    async def _launch(self) -> None:
        config = self.directory.resolve() / "zoo.cfg"
        settings = {
            "dataDir": self.directory.resolve(),
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "maxSessionTimeout": SESSION_MS_MAX,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "autopurge.purgeInterval": 1,
            "autopurge.snapRetainCount": 3,
            "4lw.commands.whitelist": "srvr,ruok,mntr",
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        reading_end, self._lifeline = os.pipe()
        try:
            with self._output.open("wb") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *("/bin/sh", "-c", _GUARDED, "kafkalite-zookeeper", *command(config)),
                    stdin=reading_end,
                    stdout=output,
                    stderr=output,
                    cwd=self.directory,
                    start_new_session=True,  # Ctrl-C is for the process that started it, which stops the brokers first
                    pass_fds=self._keep_open,
                )
        except BaseException:
            os.close(self._lifeline)
            self._lifeline = -1
            raise
        finally:
            os.close(reading_end)

    async def _wait_until_serving(self) -> bool:
        """False when the process ends before it serves, or takes too long."""
        assert self._process is not None
        ending = asyncio.ensure_future(self._process.wait())
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not await self._is_serving():
                    await asyncio.wait({ending}, timeout=0.05)
                    if ending.done():
                        return False
                return True
        except TimeoutError:
            return False
        finally:
            ending.cancel()

    async def _is_serving(self) -> bool:
        try:
            async with asyncio.timeout(_ASK_LIMIT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(b"srvr")
                    return b"Mode:" in await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    async def _end(self, how: signal.Signals) -> None:
        await super()._end(how)
        self._release()

    def _release(self) -> None:
        self._process = None
        if self._lifeline >= 0:
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"gone\n")  # so that the shell ends no other process of that number
            os.close(self._lifeline)
            self._lifeline = -1

    @property
    def _output(self) -> Path:
        return self.directory / "zookeeper.out"

    def _end_of_output(self) -> str:
        with self._output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            return file.read().decode(errors="replace")

    def _last_line(self) -> str:
        lines = [line.strip() for line in self._end_of_output().splitlines() if line.strip()]
        return next((line for line in reversed(lines) if not line.startswith("at ")), "(nothing)")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
