"""Fixtures and options for tests of several folders."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import distribution, fast_run, owner_check
from tests.support.process_reaper import none_outlive_this_process
from tests.support.zookeeper import ZooKeeper, without_zookeeper

# An example on busy cores may take any time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_numbers = itertools.count()
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 4 << 30
_QUICK = "not long and not browser"  # the default of pyproject.toml; a suite of `./dev` runs its long tests, too
_NAME_LENGTH_MAX = 100
_made: list[Path] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="without tests that start a process or are thorough, with fewer examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    none_outlive_this_process()
    owner_check.install()
    if config.option.fast and (hasattr(config, "workerinput") or not config.option.numprocesses):
        config.pluginmanager.register(fast_run.ProcessSkips())
    if hasattr(config, "workerinput") and config.option.markexpr == _QUICK:
        config.pluginmanager.register(distribution.QuickCollection())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; what is begun here would too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is None and not hasattr(config, "workerinput") and _has_room(_MEMORY):
        # no test but those about the disk waits for one: others may keep it busy for longer than a test can wait
        _made.append(Path(tempfile.mkdtemp(prefix="kafkalite-tests-", dir=_MEMORY)))
        config.option.basetemp = str(_made[0] / "tests")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> distribution.FileScheduling | None:
    return distribution.FileScheduling(config, log) if config.option.dist == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.fast:
        fast_run.leave_out_thorough(config, items)
        fast_run.draw_fewer_examples(items, fast_run.FAST_PART)
    elif config.option.markexpr == _QUICK:
        fast_run.draw_fewer_examples(items, fast_run.QUICK_PART)


def pytest_make_parametrize_id(val: object) -> str | None:
    """The beginning of a long value stands for it in the name of its test: names of ten million bytes, which each
    worker makes, sends and reports, took 8 s of each worker."""
    if not isinstance(val, str | bytes) or len(val) <= _NAME_LENGTH_MAX:
        return None
    return f"{val[:40]!r}... of {len(val)}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests are no garbage: the collector examines them neither while they are collected, 1.5 s of 9, nor
    later, 0.3 to 0.8 s in each of its full runs."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a file, what is left belongs to the run: tests that collect garbage examine their own
    objects only, 0.07 s instead of 0.3 s for one of `tests/unit/network` in the middle of a run."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    for path in _made:
        shutil.rmtree(path, ignore_errors=True)


def _has_room(path: Path) -> bool:
    return os.access(path, os.W_OK) and shutil.disk_usage(path).free >= _MEMORY_BYTES_MIN


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without the lines of brokers that other tests share with each other, and that live in this process, too: those of
    threads that were there before the test."""
    others = weakref.WeakSet(threading.enumerate())
    others.discard(threading.current_thread())

    def is_ours(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in others  # a filter is called in the thread that logs

    caplog.handler.addFilter(is_ours)
    yield caplog
    caplog.handler.removeFilter(is_ours)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a real disk, for tests about the page cache, fsync or room on it; tmp_path is in memory."""
    path = Path(tempfile.mkdtemp(prefix="kafkalite-tests-", dir="/var/tmp" if Path("/var/tmp").is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One real server for the whole run. A test that stops or pauses it starts its own."""
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    """A place in ZooKeeper that nobody else uses: zookeeper.connect is zookeeper.connect + chroot."""
    return f"/test-{next(_numbers)}"
