"""Several log directories: a place for each log, a log that is in two of them, disks that fail at start."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.log.directories.meta_properties import MetaProperties
from tests.support.log.three_disks import CLUSTER, TOPIC_ID, Machine, create, log_key, write


class TestManyDirectories:
    def test_a_new_log_goes_where_the_fewest_are(self, machine: Machine) -> None:
        manager = machine.start()
        create(manager, "orders", 4)
        assert [machine.names(i) for i in range(3)] == [["orders-0", "orders-3"], ["orders-1"], ["orders-2"]]
        manager.delete("orders", 1)
        create(manager, "clicks", 2)
        assert [len(each.logs) for each in manager.directories] == [2, 2, 1] or machine.names(1) == ["clicks-0"]
        assert manager.directory_of(("clicks", 0)).path == machine.paths[1]

    def test_each_is_left_in_order_and_found_again(self, machine: Machine) -> None:
        for log, value in zip(create(machine.start(), "orders", 3), "abc", strict=True):
            write(log, value, value)
        machine.close()
        for which in range(3):
            assert machine.file(which, "recovery-point-offset-checkpoint").read_text() == f"0\n1\norders {which} 2\n"
            assert machine.file(which, ".kafka_cleanshutdown").exists()
            assert f"cluster.id={CLUSTER}" in machine.file(which, "meta.properties").read_text()
        manager = machine.start()
        assert manager.was_clean and sorted(manager.logs) == [("orders", index) for index in range(3)]
        assert [log.end_offset for log in manager.logs.values()] == [2, 2, 2]

    def test_only_the_one_that_lost_its_mark_is_recovered(self, machine: Machine) -> None:
        for log in create(machine.start(), "orders", 2):
            write(log, "whole", "torn")
        machine.close()
        for which in range(2):
            path = machine.file(which, f"orders-{which}/{0:020}.log")
            path.write_bytes(path.read_bytes()[:-1])
        machine.file(1, ".kafka_cleanshutdown").unlink()
        machine.file(1, "recovery-point-offset-checkpoint").unlink()
        logs = machine.start().logs
        assert (logs["orders", 1].end_offset, logs["orders", 1].lost_bytes > 0) == (1, True)

    def test_one_that_is_in_use_keeps_all_of_them_free(self, machine: Machine) -> None:
        machine.start(machine.paths[1])
        with pytest.raises(ConfigError, match=r"/b is in use"):
            machine.start(load=False)
        machine.start(machine.paths[0], machine.paths[2])

    def test_one_directory_under_two_names_is_refused(self, machine: Machine, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "again").symlink_to(tmp_path / "a")
        for other in (str(tmp_path / "again"), f"{tmp_path}/x/../a", machine.paths[0]):
            with pytest.raises(ConfigError, match=r"log\.dirs names one directory twice"):
                machine.start(machine.paths[0], other, load=False)

    def test_directories_of_two_clusters_are_refused(self, machine: Machine) -> None:
        machine.start().close()
        machine.file(1, "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=another\n")
        with pytest.raises(
            ConfigError, match=r"/a/meta\.properties says .*, \S+/b/meta\.properties says cluster another"
        ):
            machine.start(load=False)

    def test_a_new_directory_takes_the_form_of_the_others(self, machine: Machine) -> None:
        machine.file(0, "").mkdir()
        kraft = MetaProperties(CLUSTER, 0, 1, "u1Nl4vFpQ0mVJ6xYq0cTdg").encode(0)
        machine.file(0, "meta.properties").write_bytes(kraft)
        machine.start()
        assert machine.file(0, "meta.properties").read_bytes() == kraft, "and what was found stays as it is"
        added = machine.file(1, "meta.properties").read_text()
        assert "version=1" in added and "node.id=0" in added and re.search(r"directory\.id=[\w-]{22}\n", added)


class TestALogInTwoDirectories:
    @pytest.fixture
    def doubled(self, machine: Machine) -> Machine:
        create(machine.start(), "orders")
        machine.close()
        other = machine.file(1, "orders-0")
        other.mkdir()
        (other / f"{0:020}.log").write_bytes(b"")
        return machine

    def test_stops_the_start(self, doubled: Machine) -> None:
        with pytest.raises(ConfigError, match=r"/a/orders-0 and \S+/b/orders-0 are both logs of orders-0"):
            doubled.start()

    def test_unless_one_is_of_a_topic_that_is_gone(self, doubled: Machine) -> None:
        """Its directory was offline when the topic was deleted and made again."""
        doubled.ids["orders"] = TOPIC_ID
        doubled.file(1, "orders-0/partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        manager = doubled.start()
        assert manager.directory_of(("orders", 0)).path == doubled.paths[0]
        assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", doubled.names(1)[0])

    @pytest.mark.parametrize("written", [0, 1])
    def test_or_was_never_written_to(self, machine: Machine, written: int) -> None:
        """It was made while the directory of the other one was not in log.dirs."""
        machine.ids["orders"] = TOPIC_ID
        for which in (0, 1):
            (log,) = create(machine.start(machine.paths[which]), "orders")
            if which == written:
                write(log, "x")
            machine.close()
        manager = machine.start(*machine.paths[:2])
        assert manager.directory_of(("orders", 0)).path == machine.paths[written]
        assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", machine.names(1 - written)[0])

    def test_but_not_when_both_were(self, machine: Machine) -> None:
        machine.ids["orders"] = TOPIC_ID
        for path in machine.paths[:2]:
            write(create(machine.start(path), "orders")[0], "x")
            machine.close()
        with pytest.raises(ConfigError, match=r"was not in log\.dirs for a time\. Move one of the two"):
            machine.start(*machine.paths[:2])


class TestADiskThatFailsAtStart:
    @pytest.fixture
    def filled(self, machine: Machine) -> Machine:
        for log in create(machine.start(), "orders", 3):
            write(log, "x")
        machine.close()
        return machine

    def test_stays_offline_and_the_others_are_served(self, filled: Machine, caplog: pytest.LogCaptureFixture) -> None:
        filled.disks.broken[filled.paths[1]] = errno.EIO
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]
        assert sorted(manager.logs) == [("orders", 0), ("orders", 2)]
        assert f"{filled.paths[1]} as the data directory: Input/output error; it stays offline" in caplog.text
        assert [manager.directory_of(log_key(log)).path for log in create(manager, "new", 2)] == [
            filled.paths[0], filled.paths[2],
        ]  # fmt: skip
        filled.close()
        assert sorted(filled.start().logs) == [("new", 0), ("new", 1), *(("orders", i) for i in range(3))]

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_also_when_it_fails_while_a_log_is_opened(self, filled: Machine, number: int) -> None:
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = number
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]
        assert sorted(manager.logs) == [("orders", 0), ("orders", 2)]

    def test_where_logs_begin_is_not_forgotten_for_an_error(self, filled: Machine) -> None:
        """Else records that were deleted would be there again."""
        filled.disks.broken[filled.paths[1] + "/log-start-offset-checkpoint"] = errno.EIO
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]

    def test_a_full_disk_is_told_as_such(self, filled: Machine, caplog: pytest.LogCaptureFixture) -> None:
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = errno.ENOSPC
        filled.start()
        assert f"no space left to load what is in {filled.paths[1]}; free some, and start again" in caplog.text

    def test_a_place_that_is_no_directory_is_such_a_disk(self, filled: Machine, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        manager = filled.start(str(tmp_path / "file" / "x"), *filled.paths)
        assert len(manager.online) == 3 and len(manager.logs) == 3

    def test_without_any_left_there_is_no_start(self, filled: Machine) -> None:
        filled.disks.broken["/"] = errno.EIO
        with pytest.raises(ConfigError, match=r"/a as the data directory: Input/output error"):
            filled.start()

    def test_a_log_that_is_forbidden_ends_the_start(self, filled: Machine) -> None:
        """The disk works; somebody has to look at that file."""
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = errno.EACCES
        with pytest.raises(StorageError, match="orders-1"):
            filled.start()
