"""Sessions for tests that remember what they were told, and let a test wait for it without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from kafkalite.zk.client.operations import ConnectionState
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from tests.support.wait import DEADLINE_S

SESSION_TIMEOUT_MS = 4_000


class Visit:
    """A session with `heard`, the batches of changed paths, and `states`, those of the connection, in order."""

    def __init__(self, settings: ZooKeeperConfig) -> None:
        self.heard: list[list[str]] = []
        self.states: list[ConnectionState] = []
        self._news = asyncio.Event()
        self.session = ZooKeeperSession(settings, on_change=self._changed, on_state=self._connection)

    @property
    def paths(self) -> set[str]:
        return {path for batch in self.heard for path in batch}

    async def until(self, probe: Callable[[], Any]) -> None:
        """Waits until the probe is true, looking again after each notification of the session."""
        async with asyncio.timeout(DEADLINE_S):
            while not probe():
                self._news.clear()
                await self._news.wait()

    async def until_states(self, *states: ConnectionState) -> None:
        await self.until(lambda: tuple(self.states) == states)

    def forget(self) -> None:
        self.heard.clear()
        self.states.clear()

    def _changed(self, paths: Iterable[str]) -> None:
        self.heard.append(list(paths))
        self._news.set()

    def _connection(self, state: ConnectionState) -> None:
        self.states.append(state)
        self._news.set()


def settings_for(connect: str, **others: Any) -> ZooKeeperConfig:
    return ZooKeeperConfig(
        connect, **{"session_timeout_ms": SESSION_TIMEOUT_MS, "connection_timeout_ms": 20_000, **others}
    )


@asynccontextmanager
async def visit(connect: str, **settings: Any) -> AsyncIterator[Visit]:
    visitor = Visit(settings_for(connect, **settings))
    await visitor.session.start()
    try:
        yield visitor
    finally:
        await visitor.session.stop()
