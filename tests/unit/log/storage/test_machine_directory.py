"""The directory of several brokers stands for theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.log.storage.machine_directory import broker_directories, check_is_not_of_several, expanded


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
