"""One cluster of three brokers for all stories of a run: each story finds it whole, and may break it.

`report` takes what was measured; it is told at the end and judged by nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.members import Cluster
from tests.zookeeper import ZooKeeper, without_zookeeper

MEASURED = pytest.StashKey[list[str]]()
MANY = pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(7200)])


@pytest.fixture(params=[3, MANY], ids="{}-rounds".format)
def rounds(request: pytest.FixtureRequest) -> int:
    """How many times it happens."""
    return int(request.param)


@pytest.fixture(scope="session")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    home = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(home / "zookeeper"))
        cluster = Cluster(home, zookeeper)
        stack.callback(cluster.close)
        yield cluster


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
