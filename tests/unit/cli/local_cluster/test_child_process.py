"""The end of a process of the local cluster: in order, by itself, or by force."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.cli.local_cluster.broker_process import ChildProcess, describe_exit


class Shell(ChildProcess):
    """Runs a script that prints a line when it is ready."""

    name = "the shell"
    stop_limit_s = 0.1

    def __init__(self, script: str) -> None:
        super().__init__()
        self._script = script

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", f"{self._script}; echo ready; read -r line"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        await self._process.stdout.readline()


def test_a_process_that_stops_on_request_has_ended_in_order() -> None:
    async def story() -> None:
        shell = Shell("trap 'exit 0' TERM")
        shell.stop_limit_s = 60.0
        await shell.stop()  # it does not run yet
        await shell.start()
        await shell.stop()
        assert await shell.ended() is None

    asyncio.run(story())


def test_a_process_that_does_not_stop_in_time_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        shell = Shell("trap '' TERM")
        await shell.start()
        await shell.stop()
        assert await shell.ended() == "was killed by signal 9 (SIGKILL)"

    asyncio.run(story())
    assert "did not stop within 0.1 s, and is killed" in caplog.text


def test_an_exit_is_described_by_its_code_or_signal() -> None:
    assert describe_exit(3) == "ended with code 3"
    assert describe_exit(-15) == "was killed by signal 15 (SIGTERM)"
    assert describe_exit(-99) == "was killed by signal 99 (unknown)"
