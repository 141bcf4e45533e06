"""The console beside a broker: a child process that ends with it, and is started again when it dies.

It gets the properties of a Kafka client over its standard input, which stays open as long as the broker lives.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.config.properties import read_properties

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.listeners import ListenerConfig

logger = logging.getLogger("kafkalite.console")

STARTS_MAX, STARTS_S = 5, 60.0
_AGAIN_S = 1.0
_END_S = 5.0
_PREFERRED = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def client_of(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[str, dict[str, str]]:
    """The address that the console asks, and a client's properties for it: the simplest listener, or as the file of
    console.command.config says. Raises ConfigError."""
    given = read_properties(config.console_command_config) if config.console_command_config else {}
    wanted = given.get("security.protocol", "").strip().upper()
    candidates: list[ListenerConfig] = [one for one in config.listeners if wanted in ("", one.protocol)]
    if not candidates:
        raise ConfigError(f"console.command.config: no listener of this broker has security.protocol={wanted}")
    listener = min(candidates, key=lambda one: _PREFERRED.index(one.protocol))
    if listener.protocol.endswith("SSL") and not given:
        raise ConfigError(
            "the console needs to know how to trust this broker's TLS: set console.command.config to a file of a "
            "client's properties (ssl.truststore...), or give the broker a listener on 127.0.0.1 without TLS"
        )
    host = _EVERY_ADDRESS.get(listener.host, listener.host)
    address = listener._replace(host=host, port=ports[listener.name]).address
    return address, {"security.protocol": listener.protocol, **given}


class ConsoleProcess:
    """Runs `command` from `start` to `stop`. `told` gets its lines, such as its address."""

    def __init__(
        self,
        command: Sequence[str],
        properties: Mapping[str, str],
        told: Callable[[str], None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._command = tuple(command)
        self._properties = json.dumps(dict(properties)).encode() + b"\n"
        self._told = told
        self._monotonic_s = monotonic_s
        self._again_s = again_s
        self._starts: deque[float] = deque(maxlen=STARTS_MAX)
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, config: BrokerConfig, ports: Mapping[str, int], told: Callable[[str], None]) -> ConsoleProcess:
        """As a broker's settings want it. Raises ConfigError."""
        address, properties = client_of(config, ports)
        command = [sys.executable, "-m", "kafkalite", "console", "--properties-from-stdin"]
        command += ["--bootstrap", address, "--listen", config.console_listener]
        return cls([*command, *(["--write"] if config.console_write else [])], properties, told)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """End it, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _run(self) -> None:
        while True:
            now_s = self._monotonic_s()
            if len(self._starts) == STARTS_MAX and now_s - self._starts[0] < STARTS_S:
                logger.error(
                    "the console has ended %d times within %.0f s: it is not started again", STARTS_MAX, STARTS_S
                )
                return
            self._starts.append(now_s)
            await self._run_once()
            await asyncio.sleep(self._again_s)

    async def _run_once(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(self._properties)
        async for line in process.stdout:
            self._told(line.decode(errors="replace").rstrip())
        code = await process.wait()
        logger.warning("the console has ended with code %d", code)
