"""What tests of several folders share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.process_reaper import none_outlive_this_process
from tests.support.zookeeper import ZooKeeper, without_zookeeper

_numbers = itertools.count()


def pytest_configure() -> None:
    none_outlive_this_process()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One real server for the whole run. Whoever stops or pauses it takes one of his own."""
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    """A place in ZooKeeper that nobody else uses: zookeeper.connect is zookeeper.connect + chroot."""
    return f"/test-{next(_numbers)}"
