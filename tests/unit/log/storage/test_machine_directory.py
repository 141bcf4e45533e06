"""The directory of several brokers stands for theirs."""

from __future__ import annotations

from pathlib import Path

from kafkalite.log.storage.machine_directory import broker_directories, expanded


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
