from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.storage import file_names
from kafkalite.log.storage.file_names import broker_directories, check_is_not_of_several, expanded


def test_names() -> None:
    assert file_names.parse_segment_file("00000000000000000042.log.deleted") == (42, ".log", ".deleted")
    assert file_names.parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex", "")
    assert file_names.parse_segment_file("42.log") is None
    assert file_names.parse_partition_directory("a-b-12") == ("a-b", 12)
    assert file_names.parse_partition_directory("a-01") is None
    for no_topic in ("with space-1", "bad\udcff-1", "a-2147483648", "x" * 250 + "-0"):
        assert file_names.parse_partition_directory(no_topic) is None, "its checkpoint could not be read again"
    assert file_names.parse_partition_directory("orders-0.0123456789abcdef0123456789abcdef-delete") is None
    future = "orders-3.0123456789abcdef0123456789abcdef-future"
    assert file_names.parse_future_directory(future) == ("orders", 3)
    assert file_names.parse_stray_partition(future.replace("future", "stray")) == 3
    for suffix in (file_names.DELETE_DIRECTORY, file_names.STRAY_DIRECTORY):
        gone = file_names.renamed_directory("x" * 249, 12, suffix)
        assert len(gone) == 255
        assert gone.endswith(suffix)
        assert file_names.parse_partition_directory(gone) is None


def test_a_machine_is_replaced_by_its_brokers(tmp_path: Path) -> None:
    for name in ("broker0", "broker10", "broker2", "brokers", "broker-3", "zookeeper"):
        (tmp_path / "d" / name).mkdir(parents=True)
        (tmp_path / "d" / name / "meta.properties").touch()
    (tmp_path / "d" / "broker4").mkdir()
    machine = f"{tmp_path}/d"
    assert broker_directories(machine) == {number: f"{machine}/broker{number}" for number in (0, 2, 10)}
    single = f"{machine}/broker0"
    assert expanded([machine, single, "/none"]) == (*broker_directories(machine).values(), single, "/none")
    (tmp_path / "d" / "meta.properties").touch()
    assert expanded([machine]) == (machine,), "a single broker runs there"


def test_the_directory_of_several_is_not_for_one(tmp_path: Path) -> None:
    check_is_not_of_several(f"{tmp_path}/not there yet")
    (tmp_path / "broker0").mkdir()
    check_is_not_of_several(f"{tmp_path}")
    (tmp_path / "broker0" / "meta.properties").touch()
    with pytest.raises(ConfigError, match="several brokers, such as broker0: start them with -n"):
        check_is_not_of_several(f"{tmp_path}")
    (tmp_path / "meta.properties").touch()
    check_is_not_of_several(f"{tmp_path}")  # a single broker ran there all the same
