"""One cluster of three brokers for all stories of this folder: each story finds it whole, and may break it.

`report` takes what was measured; it is told at the end. How long things take is judged in the long forms alone, which
are run by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.zookeeper import ZooKeeper, without_zookeeper
from tests.system.cluster.members import Cluster

RUNNING = pytest.StashKey[tuple[Cluster, contextlib.ExitStack]]()
MEASURED = pytest.StashKey[list[str]]()
MANY = pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(7200)])


@pytest.fixture(params=[2, MANY], ids="{}-rounds".format)
def rounds(request: pytest.FixtureRequest) -> int:
    """How many times it happens: to the controller, to another broker, and so on in turn."""
    return int(request.param)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Cluster:
    """One for all stories that follow each other; whole, whatever the story before left."""
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    if RUNNING not in pytestconfig.stash:
        home = tmp_path_factory.mktemp("cluster")
        stack = contextlib.ExitStack()
        zookeeper = stack.enter_context(ZooKeeper(home / "zookeeper"))
        made = Cluster(home, zookeeper)
        stack.callback(made.close)
        pytestconfig.stash[RUNNING] = (made, stack)
    running, _ = pytestconfig.stash[RUNNING]
    for cut in running.cuts.values():
        cut.mend()
    running.start()
    return running


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The cluster goes when another folder's tests follow: these may count the descriptors of this process."""
    if RUNNING not in item.config.stash:
        return
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        _, stack = item.config.stash[RUNNING]
        del item.config.stash[RUNNING]
        stack.close()


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    return pytestconfig.stash.setdefault(MEASURED, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(MEASURED, []):
        terminalreporter.write_line(line)
