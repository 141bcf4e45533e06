"""A place in ZooKeeper for each story."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.controller_members import Place
from tests.support.wait import DEADLINE_S
from tests.support.zookeeper import ZooKeeper

Story = Callable[[Place], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture
def tell(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Tell:
    """Run a story, which gets a place of its own."""

    def run(story: Story) -> None:
        async def bounded() -> None:
            place = Place(zookeeper.connect + chroot, tmp_path, [])
            try:
                async with asyncio.timeout(1.5 * DEADLINE_S):  # each wait of a story has the one deadline
                    await story(place)
            except BaseException:
                await place.clear()
                raise

        asyncio.run(bounded())

    return run
