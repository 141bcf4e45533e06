"""The checkpoints of a directory: which state stands in the files, whoever was first, and which names they may hold."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.log.directories.offset_checkpoints import LogOffsets, OffsetCheckpoints
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.files import Files

A, B = ("a", 0), ("b", 0)


class Disk(Files):
    is_full = False

    def write_atomically(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_atomically(path, data, durable=durable)


class Scene:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = Disk()
        self.checkpoints = self.reopen()

    def reopen(self) -> OffsetCheckpoints:
        self.checkpoints = OffsetCheckpoints(str(self.root), self.files)
        self.checkpoints.read()
        return self.checkpoints

    def cleaned(self) -> dict[tuple[str, int], int]:
        return read_offsets(Files(), f"{self.root}/cleaner-offset-checkpoint")

    def clean(self, key: tuple[str, int], offset: int) -> None:
        job, done = self.checkpoints.write_cleaner_offset_later(key, offset)
        job()
        done(None)

    def write(self, *keys: tuple[str, int]) -> None:
        self.checkpoints.write(offsets(*keys))


def offsets(*keys: tuple[str, int]) -> LogOffsets:
    ends = dict.fromkeys(keys, 10)
    return LogOffsets(ends, {}, ends)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_how_far_a_log_is_compacted_is_kept_beside_the_others(scene: Scene) -> None:
    scene.write(A, B)
    scene.clean(A, 5)
    scene.clean(B, 6)
    scene.clean(A, 7)
    assert scene.cleaned() == scene.checkpoints.cleaner_offsets == {A: 7, B: 6}
    assert scene.reopen().cleaner_offsets == {A: 7, B: 6}


def test_a_newer_state_is_not_overwritten_by_an_older_one(scene: Scene) -> None:
    first, second = (
        scene.checkpoints.write_cleaner_offset_later(A, 5),
        scene.checkpoints.write_cleaner_offset_later(A, 6),
    )
    for job, done in (second, first):
        job()
        done(None)
    assert scene.cleaned() == {A: 6}


def test_neither_kind_keeps_the_other_from_being_written(scene: Scene) -> None:
    job, done = scene.checkpoints.write_later(offsets(A, B))
    scene.clean(A, 5)
    job()
    done(None)
    assert read_offsets(Files(), f"{scene.root}/replication-offset-checkpoint") == {A: 10, B: 10}
    assert scene.cleaned() == {A: 5}


def test_a_log_that_goes_takes_its_name_along(scene: Scene) -> None:
    scene.write(A, B)
    scene.clean(A, 5)
    scene.clean(B, 6)
    scene.write(B)
    assert scene.cleaned() == {B: 6} and not scene.checkpoints.may_name(A) and scene.checkpoints.may_name(B)


def test_nor_does_a_job_of_before_bring_it_back(scene: Scene) -> None:
    job, done = scene.checkpoints.write_cleaner_offset_later(A, 5)
    scene.write(B)
    job()
    done(None)
    assert scene.cleaned() == {} and not scene.checkpoints.may_name(A)


def test_what_could_not_be_written_is_written_with_the_next(scene: Scene) -> None:
    scene.write(A)
    scene.files.is_full = True
    job, done = scene.checkpoints.write_cleaner_offset_later(A, 5)
    with pytest.raises(OSError) as caught:
        job()
    done(caught.value)
    scene.files.is_full = False
    assert scene.cleaned() == {} and scene.checkpoints.cleaner_offsets == {A: 5}
    scene.write(A)
    assert scene.cleaned() == {A: 5}


def test_a_name_that_could_not_be_taken_out_is_remembered(scene: Scene) -> None:
    scene.write(A)
    scene.clean(A, 5)
    scene.files.is_full = True
    job, done = scene.checkpoints.write_later(offsets(B))
    with pytest.raises(OSError) as caught:
        job()
    done(caught.value)
    scene.files.is_full = False
    assert scene.checkpoints.may_name(A) and scene.cleaned() == {A: 5}
    scene.write(B)
    assert not scene.checkpoints.may_name(A) and scene.cleaned() == {}


def test_a_young_log_may_be_named_there_first(scene: Scene) -> None:
    scene.clean(A, 5)
    assert scene.checkpoints.may_name(A)
