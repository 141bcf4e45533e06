"""The owner of a directory: both forms of meta.properties, and the directories of one broker that must agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.directories.meta_properties import (
    CleanShutdownFile,
    LastShutdown,
    MetaProperties,
    agreed,
    read_meta_properties,
)
from kafkalite.log.storage.files import Files

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def read(path: Path) -> MetaProperties | None:
    return read_meta_properties(Files(), str(path))


def test_the_form_of_a_broker_with_zookeeper(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    assert read(path) is None
    written = MetaProperties(CLUSTER, 3).encode(1_732_209_660_000)
    assert written == (b"#\n#Thu Nov 21 17:21:00 UTC 2024\nbroker.id=3\nversion=0\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    path.write_bytes(written)
    assert read(path) == MetaProperties(CLUSTER, 3, 0, None)
    path.write_bytes(b"")
    assert read(path) == MetaProperties(None, None, 0, None)


def test_the_form_of_a_kraft_node(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(b"! kraft\nnode.id=1\ndirectory.id=u1Nl4vFpQ0mVJ6xYq0cTdg\nversion=1\ncluster.id=abc\n")
    found = read(path)
    assert found == MetaProperties("abc", 1, 1, "u1Nl4vFpQ0mVJ6xYq0cTdg")
    path.write_bytes(found.encode(0))
    assert b"\nnode.id=1\n" in path.read_bytes()
    assert read(path) == found


def test_what_is_missing_is_filled_in_and_the_form_kept() -> None:
    assert MetaProperties().completed(CLUSTER, 3) == MetaProperties(CLUSTER, 3, 0, None)
    whole = MetaProperties("abc", 1, 1, "u1Nl4vFpQ0mVJ6xYq0cTdg")
    assert whole.completed("abc", 1) == whole
    new = MetaProperties(version=1).completed("abc", 1)
    assert (new.version, len(new.directory_id or "")) == (1, 22), "a KRaft node knows its directories by their ids"


@pytest.mark.parametrize(
    "content", [b"version=7\n", b"broker.id=one\n", b"version=1\nnode.id=1\n", b"version=1\ncluster.id=abc\n"]
)
def test_what_cannot_be_understood_stops_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"meta\.properties"):
        read(path)


def test_directories_of_one_broker_agree() -> None:
    assert agreed({}) == MetaProperties()
    assert agreed({"/a": MetaProperties(), "/b": MetaProperties(CLUSTER, 3)}) == MetaProperties(CLUSTER, 3)
    two = {"/a": MetaProperties("abc", 1, 1, "x"), "/b": MetaProperties("abc", 1, 1, "y")}
    assert agreed(two) == MetaProperties("abc", 1, 1)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (MetaProperties("other", 3), r"/a says .* cluster MkU3\w+, /b says cluster other"),
        (MetaProperties(CLUSTER, 4), r"/a says .* broker 3, /b says broker 4"),
    ],
)
def test_those_of_two_brokers_are_refused(other: MetaProperties, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        agreed({"/a": MetaProperties(CLUSTER, 3), "/b": other})


def test_a_copy_of_a_directory_is_refused() -> None:
    one = MetaProperties("abc", 1, 1, "x")
    with pytest.raises(ConfigError, match=r"same directory\.id x"):
        agreed({"/a": one, "/b": one})


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
