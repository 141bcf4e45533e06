"""One cluster of three brokers for all stories of this folder: each story finds it whole, and may break it.

`report` takes what was measured; it is told at the end. How long things take is judged in the long forms alone, which
are run by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.zookeeper import ZooKeeper, without_zookeeper
from tests.system.cluster.members import Cluster

RUNNING = pytest.StashKey[contextlib.ExitStack]()
MEASURED = pytest.StashKey[list[str]]()
MANY = pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(7200)])


@pytest.fixture(params=[2, MANY], ids="{}-rounds".format)
def rounds(request: pytest.FixtureRequest) -> int:
    """How many times it happens: to the controller, to another broker, and so on in turn."""
    return int(request.param)


@pytest.fixture(scope="session")
def one_cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    home = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(home / "zookeeper"))
        cluster = Cluster(home, zookeeper)
        stack.callback(cluster.close)
        pytestconfig.stash[RUNNING] = stack
        yield cluster


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The cluster goes with the last story of this folder: tests of others count the descriptors of this process."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        item.config.stash.get(RUNNING, contextlib.ExitStack()).close()


@pytest.fixture
def cluster(one_cluster: Cluster) -> Cluster:
    """Whole, whatever the story before left."""
    for cut in one_cluster.cuts.values():
        cut.mend()
    one_cluster.start()
    return one_cluster


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    return pytestconfig.stash.setdefault(MEASURED, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(MEASURED, []):
        terminalreporter.write_line(line)
