"""A place in a real ZooKeeper, and a wire to it that can be cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.zookeeper import Cut, ZooKeeper


@pytest.fixture
def place(zookeeper: ZooKeeper, chroot: str) -> str:
    return zookeeper.connect + chroot


@pytest.fixture
def cut(zookeeper: ZooKeeper) -> Iterator[Cut]:
    with Cut(zookeeper.connect) as cut:
        yield cut
