"""One broker of several: `kafkalite serve` in a process of its own, from its start to its end.

Its settings come through a deleted file, so that a password is neither on a disk nor in the list of processes. The
broker reads from a pipe, its lifeline, whose other end is here, and stops in order when that end is gone. So no broker
outlives the process that started it, however that process ended.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import printable
from kafkalite.local_cluster.broker_plan import BrokerPlan
from kafkalite.local_cluster.child_process import ChildProcess, describe_exit

_READY = re.compile(r"kafkalite is ready on (\S+?)(?: and every other .*?)?, data in (.*), cluster (\S+)")


class Ready(NamedTuple):
    """The contents of the line that a broker prints when it serves."""

    bootstrap: str
    data_dir: str
    cluster_id: str


class BrokerProcess(ChildProcess):
    """A broker with the settings of `plan`. `lifeline` is the end of a pipe that the broker reads from."""

    stop_limit_s = 30.0

    def __init__(self, plan: BrokerPlan, log_level: str, lifeline: int, keep_open: Sequence[int] = ()) -> None:
        super().__init__(keep_open)
        self.plan = plan
        self.name = f"broker {plan.broker_id}"
        self.ready: Ready | None = None
        self._adopts = plan.adopts
        self._log_level = log_level
        self._lifeline = lifeline
        self._output: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Returns when the broker serves. Raises ConfigError when it ends before that, having printed why; OSError."""
        self.ready = None
        adopting = ("--adopt", self.plan.properties["log.dirs"]) if self._adopts else ()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as settings:
            settings.write(_properties_text(self.plan))
            settings.seek(0)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kafkalite", "serve", f"/dev/fd/{settings.fileno()}"),
                *("--log-level", self._log_level, "--lifeline", str(self._lifeline), *adopting),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the process that started it, which stops the brokers in order
                pass_fds=(settings.fileno(), self._lifeline, *self._keep_open),
            )
            assert self._process.stdout is not None
            try:
                async for line in self._process.stdout:
                    text = line.decode(errors="replace").rstrip("\n")
                    if found := _READY.match(text):
                        self.ready = Ready(*found.groups())
                        break
                    print(f"{self.name}: {text}", flush=True)
            except BaseException:
                self.kill()
                raise
        if self.ready is None:
            raise ConfigError(f"{self.name} {describe_exit(await self._process.wait())} before it was ready")
        self._adopts = False  # once, and not when it is restarted
        self._output = asyncio.ensure_future(self._print_output(self._process.stdout))

    async def stop(self) -> None:
        await super().stop()
        if self._output is not None:
            await self._output

    async def _print_output(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            print(f"{self.name}: {printable(line.decode(errors='replace').rstrip())}", flush=True)


def _properties_text(plan: BrokerPlan) -> str:
    return "".join(f"{_escaped(name)}={_escaped(text)}\n" for name, text in plan.properties.items())


def _escaped(text: str) -> str:
    """As in Java's properties: a character that is a separator there, or no ASCII, is written by its number."""
    units = text.encode("utf-16-be", "surrogatepass")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(n) if 0x30 <= n < 0x7F and chr(n) not in "\\:=" else f"\\u{n:04x}" for n in numbers)


def _environment() -> dict[str, str]:
    """An environment in which the broker finds every module that this process finds. Its settings are in the plan."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}
    paths = [os.path.abspath(path) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if os.pathsep not in path)
    return environment
