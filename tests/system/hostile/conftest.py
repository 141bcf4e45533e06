"""A broker to be attacked, and what can be seen of it from outside: memory, descriptors, log, another client."""

from __future__ import annotations

import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import wire
from bench.usage import Memory, ProcessTree
from tests.support.broker_process import READY
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until
from tests.system.hostile.fuzz_golden import SETTINGS

SAMPLE_SECONDS = 0.05
MEMORY_ABOVE_IDLE_MAX = 256 << 20
"""The ceiling: no attack of this suite may bring the broker's resident memory further above what it has when idle."""
OVERRIDES = (
    "group.initial.rebalance.delay.ms=0",  # a join is answered at once
    "auto.create.topics.enable=false",  # names with a flipped bit are not topics
    "socket.listen.backlog.size=1024",  # many may dial at once
)
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


class Neighbour:
    """The well-behaved client."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        command = [sys.executable, "-m", "tests.system.hostile.fuzz_good_client", bootstrap, topic]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def figures(self) -> dict[str, float]:
        """The events since the last call. Fails the test if it was served badly."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            told = self.process.stdout.readline()
        except BrokenPipeError:
            told = ""
        if not told:
            pytest.fail(
                f"the well-behaved client was not served: {self.process.communicate(timeout=DEADLINE_S)[1][-2000:]}"
            )
        return dict(json.loads(told))

    def observe(self, seconds: float) -> dict[str, float]:
        """Its figures over a time in which nothing else goes on."""
        self.figures()
        threading.Event().wait(seconds)
        return self.figures()

    def leave(self) -> None:
        self.process.communicate(timeout=DEADLINE_S)


class Victim:
    """`python -m kafkalite serve`, and what can be seen of it from outside."""

    def __init__(self, directory: Path, *overrides: str, config: Path | None = None) -> None:
        """The port that is known is that of the first listener."""
        self.log = directory / "victim.log"
        words = [word for override in overrides for word in ("--override", override)]
        place = ["--port", "0", "--data-dir", str(directory / "data")] if config is None else [str(config)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kafkalite", "serve", *place),
                    *words,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=ENVIRONMENT,
            )
        self.tree = ProcessTree(self.process.pid)
        self.port = self._await_ready()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.neighbours: list[Neighbour] = []
        self.idle: Memory | None = None
        self.peak_bytes = 0
        self._stopped = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def _await_ready(self) -> int:
        lines: queue.SimpleQueue[int | None] = queue.SimpleQueue()

        def read() -> None:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if found := READY.match(line):
                    lines.put(int(found[1]))
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            port = lines.get(timeout=DEADLINE_S)
        except queue.Empty:
            port = None
        if port is None:
            self.process.kill()
            pytest.fail(f"the broker was not ready in {DEADLINE_S:g} s; it said: {self.said()}")
        return port

    def furnish(self) -> None:
        """Make the topics that the golden frames speak of, and one of the neighbour's; take note of the idle state."""
        with wire.Connection(self.bootstrap) as connection:
            for topic, settings in SETTINGS.items():
                connection.create_topic(topic, config=settings)
            connection.create_topic("neighbour")
        self.descriptors_at_rest = self.descriptors()
        self.idle = self.tree.memory()
        self._watch.start()

    def neighbour(self) -> Neighbour:
        self.neighbours.append(Neighbour(self.bootstrap, "neighbour"))
        return self.neighbours[-1]

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def descriptors(self) -> dict[str, int]:
        """How many it has open, by kind: sockets, files of logs, others."""
        counts = {"socket": 0, "file": 0, "other": 0}
        directory = f"/proc/{self.process.pid}/fd"
        for name in os.listdir(directory):
            try:
                target = os.readlink(f"{directory}/{name}")
            except FileNotFoundError:
                continue
            kind = "socket" if target.startswith("socket:") else "file" if target.startswith("/") else "other"
            counts[kind] += 1
        return counts

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def above_idle_bytes(self) -> int:
        """The most resident memory that was seen since it was furnished, less what it had then."""
        assert self.idle is not None
        return self.peak_bytes - self.idle.resident_bytes

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS) and self.process.poll() is None:
            self.sample()

    def sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.tree.memory().resident_bytes)

    def assert_unharmed(self, ports: dict[int, list[int]] | None = None) -> None:
        """It lives, its log has no traceback, its memory stayed below the ceiling, its sockets are closed again.

        `ports`: which frames ended the connection from which port, to name those that a traceback may be about.
        """
        self.assert_alive_below_ceiling()
        said = self.said()
        if "Traceback" in said or " ERROR " in said:
            at = max(0, min(i for i in (said.find("Traceback"), said.find(" ERROR ")) if i >= 0) - 200)
            blamed = [n for port in re.findall(r"Peer\([^:]+:(\d+)", said) for n in (ports or {}).get(int(port), [])]
            pytest.fail(f"frames {blamed[:20]} led to: {said[at : at + 3000]}")
        until(
            lambda: self.descriptors()["socket"] <= self.descriptors_at_rest["socket"] + len(self.neighbours),
            lambda: f"sockets to be closed: {self.descriptors()}, at rest {self.descriptors_at_rest}",
        )

    def assert_alive_below_ceiling(self, after: str = "all of this") -> None:
        code = self.process.poll()
        assert code is None, f"after {after} the broker ended with {code}: {self.said()[-3000:]}"
        self.sample()
        above = self.above_idle_bytes
        assert above < MEMORY_ABOVE_IDLE_MAX, (
            f"after {after}: {above >> 20} MiB above idle, more than {MEMORY_ABOVE_IDLE_MAX >> 20}"
        )

    def stop(self) -> None:
        self._stopped.set()
        for neighbour in self.neighbours:
            if neighbour.process.poll() is None:
                neighbour.process.kill()
            neighbour.process.communicate()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the broker did not stop in 30 s; it said: {self.said()[-3000:]}")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    """A furnished broker with Kafka's defaults, but for `OVERRIDES`."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to watch the broker's memory and descriptors")
    victim = Victim(tmp_path, *OVERRIDES)
    try:
        victim.furnish()
        yield victim
    finally:
        victim.stop()
