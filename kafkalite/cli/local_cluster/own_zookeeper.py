"""The choice of a ZooKeeper beside brokers of one machine, and kafkalite's own as a process.

    kafkalite   `kafkalite zookeeper` in a process of its own: no Java, 25 MB, up again within a second of a kill
    apache      Apache ZooKeeper from PySpark's jars (`zookeeper_process`)

The directory remembers the choice: its data are of one kind, and only that one is started on them.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalite.cli.local_cluster.broker_process import ChildProcess, describe_exit
from kafkalite.cli.local_cluster.command_process import CommandStarter
from kafkalite.cli.local_cluster.zookeeper_process import ZooKeeperProcess, missing_requirement
from kafkalite.common.errors import ConfigError

logger = logging.getLogger(__name__)

LISTENER = "127.0.0.1:2181"
_BACKLOG = 128
KAFKALITE, APACHE = "kafkalite", "apache"
_APACHE_DATA = "version-2"
_OUR_DATA = "snapshot.*"
_READY = re.compile(r"ZooKeeper is ready on (\S+), data in ")


class OwnZooKeeper(ChildProcess):
    """kafkalite's ZooKeeper with its data in `directory`. `lifeline` is the end of a pipe that it reads from: it stops
    when the process that holds the other has ended.

    This process binds its address and keeps it, so brokers may start beside it: their connections wait until it serves,
    also while it is restarted.
    """

    name = "ZooKeeper"
    stop_limit_s = 10.0

    def __init__(
        self,
        commands: CommandStarter,
        directory: Path,
        address: tuple[str, int],
        log_level: str,
        lifeline: int,
        keep_open: Sequence[int] = (),
        *,
        allow_remote: bool = False,
    ) -> None:
        super().__init__(keep_open)
        self._commands = commands
        self.directory = directory
        self.connect = _text(*address)
        self._log_level = log_level
        self._lifeline = lifeline
        self._allow_remote = allow_remote
        self._socket: socket.socket | None = None

    def listen(self) -> bool:
        """Bind the address; `connect` has it from now on. False if only the process itself can do that. Raises
        ConfigError."""
        host, _, port = self.connect.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            return False
        try:
            self._socket = socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(f"the ZooKeeper of our own cannot listen on {self.connect}: {error.strerror}") from error
        self.connect = _text(host, self._socket.getsockname()[1])
        return True

    async def stop(self) -> None:
        await super().stop()
        if self._socket is not None:
            self._socket.close()

    async def start(self) -> None:
        """Returns when it serves. Raises ConfigError if it ends before that (it has printed the reason); OSError."""
        inherited = [] if self._socket is None else [self._socket.fileno()]
        options = ["--listener", self.connect, "--data-dir", str(self.directory.absolute())]
        options += [part for descriptor in inherited for part in ("--listen-descriptor", str(descriptor))]
        options += ["--log-level", self._log_level, "--lifeline", str(self._lifeline)]
        options += ["--allow-remote"] if self._allow_remote else []
        self._process = await self._commands.start(
            ["zookeeper", *options],
            "zookeeper",
            (self._lifeline, *inherited, *self._keep_open),
            import_modules=lambda: None,  # it has few, and imports them while this process imports those of brokers
        )
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                if found := _READY.match(line.decode(errors="replace")):
                    self.connect = found[1]
                    logger.info(
                        "ZooKeeper (process %d) serves on %s, data in %s", self.pid, self.connect, self.directory
                    )
                    return
        except BaseException:
            self.kill()
            raise
        raise ConfigError(f"the ZooKeeper of our own {describe_exit(await self._process.wait())} before it was ready")

    async def ended(self) -> str:
        """Waits until the process has ended; returns how. Only `stop` stops it."""
        return await super().ended() or describe_exit(0)


ZooKeeperChild = OwnZooKeeper | ZooKeeperProcess
ZooKeeperMaker = Callable[[CommandStarter, int, Sequence[int]], ZooKeeperChild]
"""Makes the process, which is not started yet: from what starts it, the end of a lifeline and descriptors to be kept
open."""


def zookeeper_maker(
    directory: Path, wanted: str | None, address: tuple[str, int] | None, log_level: str, *, allow_remote: bool = False
) -> ZooKeeperMaker:
    """`wanted`: KAFKALITE, APACHE, or None for the kind of the data in `directory`, ours if there are none. `address`:
    where it listens; None for a free port of the loopback. Raises ConfigError."""
    found = _kind_of(directory)
    if wanted is not None and found is not None and wanted != found:
        raise ConfigError(
            f"{directory} has the data of the other ZooKeeper: --zookeeper {found} serves them. A new data directory "
            f"may have --zookeeper {wanted}"
        )
    if (wanted or found or KAFKALITE) == KAFKALITE:
        where = address or ("127.0.0.1", 0)
        return lambda commands, lifeline, keep: OwnZooKeeper(
            commands, directory, where, log_level, lifeline, keep, allow_remote=allow_remote
        )
    if (missing := missing_requirement()) is not None:
        because = f" (its data are in {directory})" if found else ""
        raise ConfigError(f"--zookeeper {APACHE}{because}: there is {missing}")
    if address is not None:
        raise ConfigError(f"--zookeeper-listener: only kafkalite's own ZooKeeper has it (--zookeeper {KAFKALITE})")
    return lambda _, __, keep: ZooKeeperProcess(directory, keep_open=keep)


def _kind_of(directory: Path) -> str | None:
    if (directory / _APACHE_DATA).exists():
        return APACHE
    return KAFKALITE if any(directory.glob(_OUR_DATA)) else None


def parse_listener(
    option: str, text: str, *, allow_remote: bool = False, remote: str = "--allow-remote"
) -> tuple[str, int]:
    """Host and port of HOST:PORT. Raises ConfigError, also for an address that other machines reach, unless the option
    `remote` has been given."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{option} {text} must be HOST:PORT, such as {LISTENER}")
    if not allow_remote and not _is_loopback(host):
        raise ConfigError(
            f"{option} {text}: this ZooKeeper is one server for one machine, and listens on a loopback address only. "
            f"Brokers on several machines need Apache ZooKeeper (zookeeper.connect). {remote} opens it to other "
            "machines all the same; then protect the port"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
