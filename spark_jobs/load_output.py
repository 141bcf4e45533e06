"""The output directory of load.py: runs that appear whole, each with the offsets that it ends at.

    OUTPUT/run=000001/topic=orders/day=2026-01-31/part-....parquet
    OUTPUT/run=000001/_run.json            the offsets behind the data of this run and all runs before it
    OUTPUT/_kafkalite/staging-.../         a run that is being written
    OUTPUT/_kafkalite/staging-....tasks/   files of tasks' attempts, of which those that succeed are moved into the run
    OUTPUT/_kafkalite/lock                 held by the load that is running

A run is written into a staging directory, with its `_run.json`, brought to the disk, and becomes visible in ONE rename
to the next free number. So data and offsets are there together or not at all, wherever a load is killed. The next load
reads the offsets of the last run and begins there. Spark leaves out names that begin with `_` when it reads OUTPUT.

Two loads at a time would begin at the same offsets: the lock keeps the second out, and if locks do not work there (on
some shared file systems), the rename does, since only one of them can take the next number.

Needed of the file system: an atomic rename of a directory that fails if the target has files (local disks, NFS). An
object store has none; write to a file system and copy complete runs, `_run.json` last, or use a table format there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from spark_jobs.load_task import Written
from spark_jobs.partitioned_files import Layout

_OWN = "_kafkalite"
_RUN = re.compile(r"run=(\d{6,})\Z")
_STATE = "_run.json"
_VERSION = 1


class RunState(NamedTuple):
    """The last run: its number, 0 if there is none; the offsets to begin at; whether rows have headers."""

    number: int
    offsets: Mapping[TopicPartition, int]
    headers: bool


class LoadOutput:
    """The directory for one load, from `open_output`. `last` is the run that was there when it was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.last = _last_run(path)
        # tasks may have another working directory
        self.staging = os.path.join(os.path.abspath(path), _OWN, f"staging-{uuid.uuid4().hex}")
        self.tasks = f"{self.staging}.tasks"
        self._headers = False

    def offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {key: self.last.offsets[key] for key in partitions if key in self.last.offsets}

    def layout(self, schema: pa.Schema) -> Layout:
        self._headers = "headers" in schema.names
        if self.last.number and self._headers != self.last.headers:
            change = "leave out" if self._headers else "give"
            raise ConfigError(
                f"the rows in {self.path} are of another schema; {change} --headers, or choose a new output"
            )
        return Layout(pa.schema([field for field in schema if field.name != "topic"]), ("topic", "day"))

    def begin(self) -> str:
        os.makedirs(self.tasks)
        return self.tasks

    def commit(self, written: Sequence[Written], offsets: Mapping[TopicPartition, int]) -> str:
        for attempt in written:
            self.take(attempt.directory, [file.path for file in attempt.files])
        return self.publish(offsets, headers=self._headers)

    def take(self, directory: str, files: Iterable[str]) -> None:
        """Move files, by their paths below `directory`, to the same paths in the staging directory."""
        for file in files:
            target = os.path.join(self.staging, file)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(os.path.join(directory, file), target)

    def publish(self, offsets: Mapping[TopicPartition, int], *, headers: bool) -> str:
        """Make what is in the staging directory the next run. Returns its path.

        Raises ConfigError if another load has taken the number: this one's rows are already there.
        """
        os.makedirs(self.staging, exist_ok=True)
        state = {"version": _VERSION, "headers": headers, "offsets": as_json({**self.last.offsets, **offsets})}
        with open(os.path.join(self.staging, _STATE), "w") as file:
            json.dump(state, file, indent=1)
        sync_tree(self.staging)
        target = os.path.join(self.path, f"run={self.last.number + 1:06d}")
        try:
            os.rename(self.staging, target)
        except OSError as error:
            raise ConfigError(f"{target} cannot be made ({error.strerror}); does another load write there?") from None
        sync(self.path)
        self.last = RunState(self.last.number + 1, {**self.last.offsets, **offsets}, headers)
        return target


@contextlib.contextmanager
def open_output(path: str) -> Iterator[LoadOutput]:
    """The directory, made if need be, kept from other loads; what killed loads left in it is removed.

    Raises ConfigError if another load is running, or if the directory has something else in it.
    """
    if "://" in path:
        raise ConfigError(f"--output {path} must be a directory in the file system; a run appears by renaming it")
    _check(path)
    os.makedirs(os.path.join(path, _OWN), exist_ok=True)
    with open(os.path.join(path, _OWN, "lock"), "w") as lock:  # released by the system when this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another load is writing to {path}; wait for its end") from None
        _remove_staging(path)
        try:
            yield LoadOutput(path)
        finally:
            _remove_staging(path)


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's options have them: {"orders": {"0": 23}}."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def parse_offsets(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `as_json`. Raises ValueError, TypeError, AttributeError."""
    return {(topic, int(at)): int(offset) for topic, of in nested.items() for at, offset in of.items()}


def _check(path: str) -> None:
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror}") from None
    other = [name for name in names if name != _OWN and not _RUN.match(name)]
    if other:
        raise ConfigError(f"--output {path} has {sorted(other)[0]!r} in it; choose a new directory, or one of this job")


def _last_run(path: str) -> RunState:
    numbers = [int(found[1]) for name in os.listdir(path) if (found := _RUN.match(name))]
    if not numbers:
        return RunState(0, {}, False)
    number = max(numbers)
    file_path = os.path.join(path, f"run={number:06d}", _STATE)
    try:
        with open(file_path) as file:
            state = json.load(file)
        if state["version"] != _VERSION:
            raise ConfigError(f"{file_path} is of version {state['version']}, which a newer kafkalite has written")
        return RunState(number, parse_offsets(state["offsets"]), bool(state["headers"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file_path} does not tell where the last run ended ({error}); restore it") from None


def _remove_staging(path: str) -> None:
    for entry in os.scandir(os.path.join(path, _OWN)):
        if entry.name.startswith("staging-"):
            shutil.rmtree(entry.path, ignore_errors=True)  # tasks of a killed load may still write there for a moment


def sync_tree(path: str) -> None:
    """Sync everything below `path` to the disk."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync(os.path.join(directory, name))
        sync(directory)


def sync(path: str) -> None:
    """Bring a file to the disk, or the names in a directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
