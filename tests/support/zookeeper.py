"""A real ZooKeeper for tests, out of PySpark's jars, and a proxy that can be cut.

    with ZooKeeper(directory) as server:        start, stop, kill -9, pause and resume; its port and its data stay
        with Cut(server.connect) as cut:        cut.connect is the same server, until cut.cut() ... cut.mend()

`without_zookeeper` says why there can be none here, for skips.
"""

from __future__ import annotations

import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from kafkalite.cli.local_cluster.zookeeper_process import find_jars, find_java, missing_requirement
from tests.support.broker_process import environment
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S

TICK_MS = 100  # sessions from 200 ms on

without_zookeeper = missing_requirement


class ZooKeeper:
    """One server; `options` go into its configuration, `properties` to its Java."""

    def __init__(
        self,
        directory: Path,
        *,
        options: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.options = dict(options or {})
        self.properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        return self.directory / "zookeeper.out"

    def start(self) -> Self:
        """Returns when it serves."""
        assert self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zoo.cfg"
        settings: dict[str, object] = {
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "tickTime": TICK_MS,
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": 600_000,
            "4lw.commands.whitelist": "*",
            "snapshot.compression.method": "NONE",
            **self.options,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.directory / "log4j2.properties").write_text(_LOG4J)
        properties = {
            "log4j2.configurationFile": self.directory / "log4j2.properties",
            "zookeeper.forceSync": "no",  # nobody pulls the plug in a test
            "zookeeper.extendedTypesEnabled": "true",
            **self.properties,
        }
        executable = find_java()
        assert executable is not None
        with self.output.open("ab") as sink:
            self._process = subprocess.Popen(
                [
                    executable,
                    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
                    *(f"-D{key}={value}" for key, value in properties.items()),
                    *("-cp", f"{find_jars()}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for the tests
            )
        try:
            self._await_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def _await_serving(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        pause = threading.Event()
        while b"Mode: " not in self.command("srvr"):  # ruok is answered before it serves
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper does not come up: {self.output.read_text()[-2000:]}")
            pause.wait(0.05)

    def command(self, word: str) -> bytes:
        """One of its four-letter words; nothing when it does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return b""

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


class KafkaliteZooKeeper(ZooKeeper):
    """kafkalite's own, as a process."""

    def start(self) -> Self:
        assert self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        place = ("--listener", self.connect, "--data-dir", str(self.directory / "data"))
        with self.output.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", "zookeeper", *place, "--session-ms-min", str(2 * TICK_MS)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )
        try:
            self._await_serving()
        except BaseException:
            self.kill()
            raise
        return self


_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
"""


class Cut:
    """Stands before a server. When it is cut, connections end at once and new ones are refused; when it is silent,
    they stay and nothing passes, as with packets that are lost."""

    def __init__(self, connect: str) -> None:
        """`connect`: host:port."""
        host, _, port = connect.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_cut = self._is_silent = self._is_over = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._waker, wakes = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(wakes, selectors.EVENT_READ)
        self._wakes = wakes
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cut", daemon=True)
        self._thread.start()

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Connections end, and whoever dials is hung up on. Returns when it is so."""
        self._set(cut=True)

    def silence(self) -> None:
        """Connections stay, and nothing comes through."""
        self._set(silent=True)

    def mend(self) -> None:
        self._set()

    def close(self) -> None:
        self._set(cut=True, over=True)
        self._thread.join()
        for each in (self._listener, self._waker, self._wakes):
            each.close()
        self._selector.close()

    def _set(self, *, cut: bool = False, silent: bool = False, over: bool = False) -> None:
        self._is_cut, self._is_silent, self._is_over = cut, silent, over
        self._done.clear()
        self._waker.send(b"!")
        self._done.wait()

    def _run(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select():
                if key.fileobj is self._wakes:
                    self._wakes.recv(64)
                    self._obey()
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._pairs:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)
        self._done.set()

    def _obey(self) -> None:
        if self._is_cut:
            for each in list(self._pairs):
                self._hang_up(each)
        for each in self._pairs:  # what is not read is not passed on, and TCP holds it back
            if self._is_silent and each in self._selector.get_map():
                self._selector.unregister(each)
            elif not self._is_silent and each not in self._selector.get_map():
                self._selector.register(each, selectors.EVENT_READ)
        self._done.set()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if self._is_cut:
            near.close()
            return
        try:
            far = socket.create_connection(self._target, 5)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}
        if not self._is_silent:
            self._selector.register(near, selectors.EVENT_READ)
            self._selector.register(far, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
            if data:
                self._pairs[source].sendall(data)
                return
        except OSError:
            pass
        self._hang_up(source)

    def _hang_up(self, one: socket.socket) -> None:
        if one not in self._pairs:
            return  # with the other end
        other = self._pairs.pop(one)
        del self._pairs[other]
        for each in (one, other):
            if each in self._selector.get_map():
                self._selector.unregister(each)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
