"""Whether a broker vouches for its logs when it comes back: by how it stopped, the machine's boots, and its numbers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.zk.client.operations import Node
from kafkalite.zk.cluster import registration_files
from kafkalite.zk.cluster.registration_files import FILE_NAME, RegistrationFiles
from kafkalite.zk.znodes.znode_data import RegistrationNode, registration_json


def node(number: int, *, stopping: bool = False) -> Node:
    return Node(registration_json(RegistrationNode(stopping, intact=True)), number, 1, 1, 0, 0)


class Machine:
    """Boots; brokers run on it, in directories of its own."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home = home
        self._boots = 0
        monkeypatch.setattr(registration_files, "boot_id", lambda: f"boot-{self._boots}")

    def reboot(self) -> None:
        self._boots += 1

    def path(self, name: str) -> Path:
        path = self._home / name
        path.mkdir(exist_ok=True)
        return path

    def start(self, *names: str, clean: bool = False) -> RegistrationFiles:
        """A process on these directories; `clean`: all were shut down cleanly."""
        paths = [self.path(name) for name in names or ("a",)]
        files = RegistrationFiles(paths, paths if clean else ())
        files.load()
        return files


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_new_directory_vouches_for_nothing(machine):
    assert not machine.start().vouch(None)
    assert not machine.start().vouch(node(7)), "its disk was replaced"


def test_a_killed_process_lost_nothing_as_long_as_the_machine_runs(machine):
    machine.start().record(7)
    assert machine.start().vouch(node(7))
    machine.reboot()
    assert not machine.start().vouch(node(7))


def test_a_clean_stop_survives_a_boot(machine):
    machine.start().record(7)
    machine.reboot()
    assert machine.start(clean=True).vouch(node(7))
    assert machine.start(clean=True).vouch(node(8, stopping=True)), "it had announced its stop"


def test_directories_of_another_life_vouch_for_nothing(machine):
    machine.start().record(7)
    assert not machine.start(clean=True).vouch(node(8)), "a backup of one life before"
    assert not machine.start(clean=True).vouch(node(9, stopping=True))


def test_a_life_that_was_recorded_and_did_not_begin_is_none(machine):
    machine.start().record(7)
    assert machine.start().vouch(node(6))


def test_every_directory_must_be_there(machine):
    machine.start("a", "b").record(7)
    assert machine.start("a", "b").vouch(node(7))
    assert not machine.start("a").vouch(node(7)), "b is gone, with its partitions"
    assert not machine.start("a", "c").vouch(node(7))


def test_a_clean_stop_before_the_lists_were_left_makes_it_no_better(machine):
    machine.start().record(7)
    machine.reboot()
    assert not machine.start().vouch(node(7))
    assert not machine.start(clean=True).vouch(node(7)), "the process before this one was stopped before it registered"
    machine.start(clean=True).record(8)
    assert machine.start().vouch(node(8))


def test_after_the_failure_of_a_directory_nothing_is_vouched_for_until_the_next_process_has_registered(machine):
    files = machine.start("a", "b")
    files.record(7)
    files.distrust()
    assert not files.vouch(node(7))
    files.record(8)
    again = machine.start("a", "b", clean=True)
    assert not again.vouch(node(8)), "the disk is back, and what it had in memory is lost"
    again.record(9)
    assert machine.start("a", "b").vouch(node(9))


def test_a_lost_tail_is_admitted_once(machine):
    machine.start().record(7)
    files = machine.start()
    files.admit_lost_tail()
    assert not files.vouch(node(7))
    assert not machine.start(clean=True).vouch(node(7)), "a process that ended before it registered has left no list"
    files.record(8)
    assert machine.start(clean=True).vouch(node(8)), "it has left the lists, and may have come back to them"


def test_directories_of_apache_kafka_count_after_a_clean_stop(machine):
    assert machine.start("a", clean=True).vouch(None)
    assert not machine.start("b").vouch(None)
    assert not machine.start("b", clean=True).vouch(None), "what a power cut took is not back after a clean stop"


def test_a_machine_without_boot_ids_vouches_after_clean_stops_only(machine, monkeypatch):
    monkeypatch.setattr(registration_files, "boot_id", lambda: "")
    machine.start().record(7)
    assert machine.start(clean=True).vouch(node(7))
    assert not machine.start().vouch(node(7))


@pytest.mark.parametrize(
    "rotten",
    [b"", b"{", b"[]", b'{"version":2}', b'{"version":1,"registration":"7","boot_id":"boot-0","directories":1}'],
)
def test_a_file_that_is_not_understood_counts_as_missing(machine, rotten):
    (machine.path("a") / FILE_NAME).write_bytes(rotten)
    assert not machine.start(clean=True).vouch(node(7))


def test_a_file_that_cannot_be_written_costs_no_start(machine, caplog):
    files = RegistrationFiles([machine.path("a") / "gone"])
    files.load()
    files.record(7)
    assert "cannot write" in caplog.text


def test_on_a_full_disk_nothing_is_vouched_for_after_a_failure(machine, monkeypatch):
    files = machine.start()
    files.record(7)

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", fail)
        files.record(8)
        assert machine.start().vouch(node(7)), "a number that cannot be written takes no other away"
        files.distrust()
    assert not machine.start(clean=True).vouch(node(7))


def test_the_machine_has_a_boot_id():
    assert registration_files.boot_id() == registration_files.boot_id()
