from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.clock import TimerGroup
from kafkalite.log.directories.log_directories import CheckpointWriter
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.storage.files import Done, Files, Job
from tests.support.manual_clock import ManualClock


class Scene:
    """Two directories whose jobs wait until they are run."""

    def __init__(self, root: Path) -> None:
        self.files = Files()
        self.clock = ManualClock()
        self.writer = CheckpointWriter(TimerGroup(self.clock))
        self.jobs: list[tuple[Job, Done]] = []
        self.told: list[str] = []
        self.directories = [self._directory(root / name) for name in "ab"]

    def _directory(self, path: Path) -> LogDirectory:
        path.mkdir()
        return LogDirectory(
            str(path), self.files, lambda job, done: self.jobs.append((job, done)), TimerGroup(self.clock)
        )

    def ask(self, caller: str, *directories: LogDirectory) -> None:
        self.writer.write_all(directories, lambda: self.told.append(caller))

    def run(self, error: Exception | None = None) -> None:
        job, done = self.jobs.pop(0)
        if error is None:
            job()
        done(error)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_callers_that_come_during_a_write_share_the_next_one(scene: Scene) -> None:
    a, _ = scene.directories
    for caller in ("first", "second", "third"):
        scene.ask(caller, a)
    assert len(scene.jobs) == 1
    scene.run()
    assert scene.told == ["first"] and len(scene.jobs) == 1
    scene.run()
    assert scene.told == ["first", "second", "third"] and scene.jobs == []


def test_a_caller_waits_for_every_directory(scene: Scene) -> None:
    a, b = scene.directories
    scene.ask("both", a, b)
    scene.ask("none")
    assert scene.told == ["none"]
    scene.run()
    scene.run()
    assert scene.told == ["none", "both"]


def test_a_failure_is_reported_and_the_caller_goes_on(scene: Scene) -> None:
    reported: list[str] = []
    scene.files.on_io_error = lambda path, error: reported.append(path)
    a, _ = scene.directories
    scene.ask("first", a)
    scene.run(OSError("no"))
    assert reported == [a.path] and scene.told == ["first"]


def test_the_checkpoints_of_an_offline_directory_stay(scene: Scene) -> None:
    a, _ = scene.directories
    a.fail("gone")
    scene.ask("first", a)
    assert scene.told == ["first"] and scene.jobs == []


def test_changes_in_one_turn_share_a_write(scene: Scene) -> None:
    a, b = scene.directories
    for directory in (a, a, b):
        scene.writer.write_soon(directory)
    b.fail("gone")
    scene.clock.advance(0)
    assert len(scene.jobs) == 1


def test_offsets_that_are_written_already_are_not_written_again(scene: Scene) -> None:
    a, _ = scene.directories
    scene.writer.write_changes(a)
    scene.writer.write_changes(a)  # the first one is under way, and may fail
    assert len(scene.jobs) == 2
    scene.run(OSError("no"))
    scene.run()
    scene.writer.write_changes(a)
    assert scene.jobs == []
    a.checkpoints.cleaner_offsets["orders", 0] = 7
    a.checkpoints.forget_cleaner_offset(("orders", 0))
    scene.writer.write_changes(a)
    assert len(scene.jobs) == 1
