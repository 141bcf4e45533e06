from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.log.directories.meta_properties import CleanShutdownFile, LastShutdown
from kafkalite.log.storage.files import Files

BY_US = LastShutdown(clean=True, by_another=False)
KILLED = LastShutdown(clean=False, by_another=False)


@pytest.fixture
def file(tmp_path: Path) -> CleanShutdownFile:
    return CleanShutdownFile(str(tmp_path), Files())


def last(file: CleanShutdownFile) -> LastShutdown:
    return file.read(lambda: False)


def test_a_new_directory_is_clean(file: CleanShutdownFile) -> None:
    assert file.read(lambda: True) == BY_US
    assert last(file) == KILLED


def test_it_counts_once(file: CleanShutdownFile) -> None:
    file.write()
    assert last(file) == BY_US
    file.remove(takes_over=False, durable=True)
    assert last(file) == KILLED


def test_another_broker_that_ran_since_is_noticed(file: CleanShutdownFile, tmp_path: Path) -> None:
    file.write()
    (tmp_path / ".kafka_cleanshutdown").unlink()  # as any broker does at start
    assert last(file) == LastShutdown(clean=False, by_another=True)
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    assert last(file) == LastShutdown(clean=True, by_another=True)


def test_a_takeover_that_is_killed_is_begun_again(file: CleanShutdownFile) -> None:
    file.remove(takes_over=True, durable=True)
    assert last(file).by_another
    file.end_takeover()
    assert last(file) == KILLED
