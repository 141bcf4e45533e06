"""One broker of several: `kafkalite serve` in a process of its own, from its start to its end.

It gets its settings through a deleted file, so that a password is neither on a disk nor in the list of processes. It
reads from a pipe, its lifeline, whose other end is here, and stops in order when that end is closed. So no broker
outlives the process that started it, however that process ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import signal
from collections.abc import Sequence
from functools import cache

from kafkalite.cli.local_cluster.broker_plan import BrokerPlan
from kafkalite.cli.local_cluster.command_process import CommandProcess, CommandStarter
from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable

logger = logging.getLogger(__name__)


class ChildProcess:
    """Started and stopped by one event loop, as often as wanted. `keep_open` are descriptors that the process holds,
    too, such as the lock on the directory. A process that does not stop within `stop_limit_s` is killed."""

    name: str
    stop_limit_s: float

    def __init__(self, keep_open: Sequence[int] = ()) -> None:
        self._keep_open = tuple(keep_open)
        self._process: CommandProcess | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Returns when the process serves. Raises ConfigError, OSError."""
        raise NotImplementedError

    async def ended(self) -> str | None:
        """Waits until the process has ended; returns how. None: in order, after a request to stop."""
        assert self._process is not None
        code = await self._process.wait()
        return None if code == 0 else describe_exit(code)

    async def stop(self) -> None:
        """Stop in order. Does nothing when the process does not run."""
        await self._end(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            async with asyncio.timeout(self.stop_limit_s):
                await self._process.wait()
        except TimeoutError:
            limit_s = self.stop_limit_s
            logger.warning("%s (process %d) did not stop within %g s, and is killed", self.name, self.pid, limit_s)
            self.kill()
            await self._process.wait()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


_READY = re.compile(
    r"kafkalite is ready on (\S+?)(?: and every other .*?)?, data in (.*), cluster ([^\s,]+)(?:, metrics on (\S+))?$"
)


class Ready(NamedTuple):
    """The contents of the line that a broker prints when it is ready."""

    bootstrap: str
    data_dir: str
    cluster_id: str
    metrics: str | None = None


class BrokerProcess(ChildProcess):
    """A broker with the settings of `plan`. `lifeline` is the end of a pipe that the broker reads from."""

    stop_limit_s = 30.0

    def __init__(
        self,
        commands: CommandStarter,
        plan: BrokerPlan,
        log_level: str,
        lifeline: int,
        keep_open: Sequence[int] = (),
        *,
        acquaintances: int = 1,
    ) -> None:
        """`acquaintances`: its first start ends when it knows so many brokers of the cluster, itself included."""
        super().__init__(keep_open)
        self._commands = commands
        self.plan = plan
        self._acquaintances = acquaintances
        self.name = f"broker {plan.broker_id}"
        self.ready: Ready | None = None
        self._adopts = plan.adopts
        self._log_level = log_level
        self._lifeline = lifeline
        self._output: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Returns when the broker serves. Raises ConfigError if it ends before that (it has printed the reason);
        OSError.
        """
        self.ready = None
        options = ["--log-level", self._log_level, "--lifeline", str(self._lifeline)]
        options += ["--adopt", self.plan.properties["log.dirs"]] if self._adopts else []
        options += ["--await-brokers", str(self._acquaintances)] if self._acquaintances > 1 else []
        options += [] if self.plan.cpu is None else ["--cpu", str(self.plan.cpu)]
        import tempfile  # random and shutil come with it, which a single broker needs for nothing else

        with tempfile.TemporaryFile("w+", encoding="utf-8") as settings:
            settings.write(_properties_text(self.plan))
            settings.seek(0)
            self._process = await self._commands.start(
                ["serve", f"/dev/fd/{settings.fileno()}", *options],
                f"broker-{self.plan.broker_id}",
                (settings.fileno(), self._lifeline, *self._keep_open),
                _import_modules,
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
        self._adopts, self._acquaintances = False, 1  # once, and not when it is restarted
        self._output = asyncio.ensure_future(self._print_output(self._process.stdout))

    async def stop(self) -> None:
        await super().stop()
        if self._output is not None:
            await self._output

    async def _print_output(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            print(f"{self.name}: {printable(line.decode(errors='replace').rstrip())}", flush=True)


@cache
def _import_modules() -> None:
    """Imports the modules of brokers. The garbage collector does not visit them from then on: it would write to their
    memory, and so copy what forks share."""
    gc.disable()  # collections meanwhile would free nothing
    from kafkalite.server import broker_modules  # noqa: F401

    gc.freeze()
    gc.enable()


def _properties_text(plan: BrokerPlan) -> str:
    return "".join(f"{_escaped(name)}={_escaped(text)}\n" for name, text in plan.properties.items())


def _escaped(text: str) -> str:
    """The text for a Java properties file: separators and characters beyond ASCII become \\u escapes."""
    units = text.encode("utf-16-be", "surrogatepass")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(n) if 0x30 <= n < 0x7F and chr(n) not in "\\:=" else f"\\u{n:04x}" for n in numbers)
