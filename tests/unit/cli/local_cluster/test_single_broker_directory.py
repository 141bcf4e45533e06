"""The data of a single broker move into the directory of the first of several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.cli.local_cluster.broker_plan import ClusterPlan, Cores, plan_cores
from kafkalite.cli.local_cluster.single_broker_directory import carry_out
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.log.storage.files import Files

META = "version=0\nbroker.id={}\ncluster.id=hym6MIjmQsGJtB5YTGMRjg\n"
NAMES = {"meta.properties", "kafkalite-registry.journal", "orders-0", "a-1.0123456789abcdef0123456789abcdef-delete"}
KEPT = {".lock", "notes.txt", "zookeeper", "lost+found"}


def single(directory: Path, broker_id: int = 0) -> Path:
    for name in ("orders-0", "a-1.0123456789abcdef0123456789abcdef-delete", "zookeeper", "lost+found"):
        (directory / name).mkdir(parents=True)
    for name in (".lock", "notes.txt", "kafkalite-registry.journal", "orders-0/00000000000000000000.log"):
        (directory / name).write_text(name)
    (directory / "meta.properties").write_text(META.format(broker_id))
    return directory


def planned(directory: Path, count: int = 2, *, adopts: bool = False, **settings: str) -> ClusterPlan:
    properties = {"log.dirs": str(directory)} | {name.replace("_", "."): text for name, text in settings.items()}
    return plan_cores(properties, Cores(count), adopts=adopts)


def names(directory: Path) -> set[str]:
    return set(os.listdir(directory))


def test_files_of_the_broker_move_and_others_stay(tmp_path: Path) -> None:
    directory = single(tmp_path / "d", 7)
    plan = planned(directory)
    assert [broker.broker_id for broker in plan.brokers] == [7, 8], "the id of the single broker"
    assert [broker.adopts for broker in plan.brokers] == [True, False]
    carry_out(plan.moves, Files())
    assert names(directory) == KEPT | {"broker7"} and names(directory / "broker7") == NAMES
    again = planned(directory)
    assert again.moves == () and [broker.broker_id for broker in again.brokers] == [7, 8]
    assert again.brokers[0].adopts, "until the topics of the journal are in ZooKeeper"
    (directory / "broker7" / "kafkalite-registry.journal").unlink()
    assert not planned(directory).brokers[0].adopts


class Stopping(Files):
    """Ends after some renames."""

    def __init__(self, renames: int) -> None:
        super().__init__()
        self.left = renames
        self.rename = self._rename  # type: ignore[method-assign, assignment]

    def _rename(self, source: str, target: str) -> None:
        if not self.left:
            raise OSError(28, "No space left on device")
        self.left -= 1
        os.rename(source, target)


@pytest.mark.parametrize("renames", range(4))
def test_a_move_that_was_interrupted_is_completed(tmp_path: Path, renames: int) -> None:
    directory = single(tmp_path / "d")
    with pytest.raises(StorageError, match="cannot move the data"):
        carry_out(planned(directory).moves, Stopping(renames))
    if renames:
        assert (directory / "broker0" / "meta.properties").exists() and not (directory / "meta.properties").exists()
    plan = planned(directory)
    assert plan.brokers[0].adopts
    carry_out(plan.moves, Files())
    assert names(directory) == KEPT | {"broker0"} and names(directory / "broker0") == NAMES


def test_each_of_several_disks_has_its_own_part(tmp_path: Path) -> None:
    one, two = single(tmp_path / "one"), single(tmp_path / "two")
    (two / "kafkalite-registry.journal").unlink()
    plan = plan_cores({"log.dirs": f"{one},{two}"}, Cores(2))
    assert plan.moves == ((f"{one}", f"{one}/broker0"), (f"{two}", f"{two}/broker0"))
    carry_out(plan.moves, Files())
    assert names(one / "broker0") == NAMES and "orders-0" in names(two / "broker0")


def test_another_brokers_data_are_taken_over_on_request_only(tmp_path: Path) -> None:
    directory = single(tmp_path / "d", 3)
    (directory / "kafkalite-registry.journal").unlink()
    with pytest.raises(ConfigError, match="another broker, such as Apache Kafka: --adopt"):
        planned(directory)
    plan = planned(directory, adopts=True)
    assert plan.brokers[0].adopts and plan.brokers[0].broker_id == 3
    (directory / "zookeeper" / "snapshot.0").touch()
    assert not planned(directory).brokers[0].adopts, "its topics are in the ZooKeeper beside it"
    with pytest.raises(ConfigError, match="nothing to take over"):
        planned(tmp_path / "empty", adopts=True)


def test_a_single_broker_and_several_do_not_share(tmp_path: Path) -> None:
    directory = single(tmp_path / "d")
    (directory / "broker0").mkdir()
    (directory / "broker0" / "meta.properties").touch()
    with pytest.raises(ConfigError, match="of a single broker and of several"):
        planned(directory)
