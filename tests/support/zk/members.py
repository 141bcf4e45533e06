"""Members of a cluster on a real ZooKeeper: cluster metadata and a controller each, and no logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.clock import SystemClock
from kafkalite.common.names import random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import Change, PartitionRecord, RegistrationState, TopicRecord
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata
from kafkalite.zk.controller.controller import Controller
from tests.support.wait import DEADLINE_S
from tests.support.zk.visits import settings_for


def endpoints(broker_id: int, host: str = "here") -> tuple[ListenerConfig, ...]:
    return (ListenerConfig("PLAINTEXT", host, 9092 + broker_id),)


class Member:
    """`told`: what listeners were told, in order. `session` options are those of ZooKeeperConfig."""

    def __init__(
        self, connect: str, directory: Path, broker_id: int = 1, session: dict[str, Any] | None = None, **options: Any
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = SystemClock(asyncio.get_running_loop())
        self.metadata = ZooKeeperMetadata(
            settings_for(connect, **(session or {})), [directory], self.clock, broker_id=broker_id, **options
        )
        self.told: list[tuple[Change, str]] = []
        self.controller = Controller(self.metadata, self.clock, BrokerConfig())
        self._news = asyncio.Event()
        self.metadata.listen(self._hear)

    def _hear(self, change: Change, name: str) -> None:
        self.told.append((change, name))
        self._news.set()

    async def until(self, probe: Callable[[], Any]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not probe():
                self._news.clear()
                await self._news.wait()

    async def until_state(self, state: RegistrationState) -> None:
        await self.until(lambda: self.metadata.registration_state is state)

    async def join(self) -> None:
        await self.metadata.register(endpoints(self.metadata.broker_id), None)
        self.controller.start()

    async def stop(self) -> None:
        if self.metadata.registration_state is not RegistrationState.UNREGISTERED:
            await self.controller.stop()
        await self.metadata.unregister()
        await self.metadata.stop()


@asynccontextmanager
async def apart(connect: str, directory: Path, broker_id: int = 1, **options: Any) -> AsyncIterator[Member]:
    """One that has started and is not registered."""
    member = Member(connect, directory, broker_id, **options)
    await member.metadata.start()
    try:
        yield member
    finally:
        await member.stop()


@asynccontextmanager
async def member(connect: str, directory: Path, broker_id: int = 1, **options: Any) -> AsyncIterator[Member]:
    async with apart(connect, directory, broker_id, **options) as one:
        await one.join()
        yield one


def state(broker: int = 1, epoch: int = 0) -> PartitionRecord:
    return PartitionRecord((broker,), broker, epoch, (broker,), 0)


def topic(name: str, count: int = 1, broker: int = 1, **config: str) -> TopicRecord:
    return TopicRecord(name, random_uuid(), {number: state(broker) for number in range(count)}, config)


def leads(one: Member, name: str, broker: int) -> bool:
    """Whether that broker leads all of the topic, as far as this one knows."""
    found = one.metadata.topics.get(name)
    return found is not None and all(each.leader == broker for each in found.partitions.values())


async def said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Until the log has it."""
    heard = asyncio.Event()
    caplog.handler.addFilter(lambda record: words not in record.getMessage() or heard.set() or True)
    if words not in caplog.text:
        await asyncio.wait_for(heard.wait(), DEADLINE_S)


async def contents(session: ZooKeeperSession, *wanted: str) -> list[object]:
    """The values of the nodes; None where there is none."""
    return [json.loads(n.data) if n is not None and n.data else n and b"" for n in await session.read(wanted)]
