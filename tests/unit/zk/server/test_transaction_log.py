"""The log and the snapshots of our ZooKeeper: group commit, merges, and damage that a start refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.log.storage.files import run_inline
from kafkalite.zk.server.transaction_log import TransactionLog, recover
from kafkalite.zk.server.transactions import CreateNode, Transaction
from kafkalite.zk.server.znode_tree import ZnodeTree
from tests.support.log.faulty_files import FaultyFiles
from tests.support.log.job_queue import JobQueue


class Logged:
    """A log and the tree that it keeps."""

    def __init__(self, directory: Path, log_bytes: int = 1 << 20, *, inline: bool = True) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.disk = FaultyFiles(str(directory))
        self.queue = JobQueue()
        self.durable: list[int] = []
        self.failures: list[StorageError] = []
        self.log = TransactionLog(
            self.disk, str(directory), commits=run_inline if inline else self.queue, merges=run_inline,
            on_durable=self.durable.append, on_failure=self.failures.append, log_bytes=log_bytes,
        )  # fmt: skip
        self.tree = self.log.open()

    def create(self, *paths: str) -> None:
        for path in paths:
            transaction = Transaction(self.tree.zxid + 1, 5, 0, (CreateNode(path, b"data"),))
            self.tree.apply(transaction)
            self.log.append(transaction)

    def recovered(self) -> ZnodeTree:
        return recover(self.disk, str(self.directory)).tree

    def file(self, start: str) -> Path:
        (found,) = self.directory.glob(f"{start}*")
        return found


def test_what_comes_during_a_write_shares_the_next_one(tmp_path):
    logged = Logged(tmp_path / "zk", inline=False)
    logged.create("/a", "/b", "/c", "/d")
    fsyncs = len([call for call in logged.disk.log if call[0] == "fsync"])
    logged.queue.run()
    assert logged.durable == [1, 4], "one for the first, one for all that came meanwhile"
    assert len([call for call in logged.disk.log if call[0] == "fsync"]) - fsyncs == 2
    assert logged.recovered().children("/") == ["zookeeper", "a", "b", "c", "d"]


def test_a_long_log_becomes_a_snapshot_and_a_new_log(tmp_path):
    logged = Logged(tmp_path / "zk", log_bytes=300)
    logged.create(*(f"/n{number}" for number in range(50)))
    assert logged.file("snapshot.").name != "snapshot.0000000000000000"
    assert logged.file("log.").stat().st_size < 300
    assert len(logged.recovered().nodes) == len(logged.tree.nodes)


def test_an_incomplete_end_is_no_damage(tmp_path):
    logged = Logged(tmp_path / "zk")
    logged.create("/a", "/b")
    log = logged.file("log.")
    log.write_bytes(log.read_bytes()[:-3])
    assert logged.recovered().children("/") == ["zookeeper", "a"]


def test_damage_before_the_end_is_refused(tmp_path):
    logged = Logged(tmp_path / "zk")
    logged.create("/a", "/b")
    log = logged.file("log.")
    log.write_bytes(log.read_bytes().replace(b"/a", b"/x"))
    with pytest.raises(StorageError, match="is damaged at byte 0; restore the directory from a backup"):
        logged.recovered()


def test_a_damaged_snapshot_is_refused(tmp_path):
    logged = Logged(tmp_path / "zk")
    snapshot = logged.file("snapshot.")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with pytest.raises(StorageError, match="is damaged"):
        logged.recovered()


def test_after_a_failed_fsync_nothing_is_written_and_nothing_is_acknowledged(tmp_path):
    logged = Logged(tmp_path / "zk")
    logged.disk.fail("fsync", "log.", errno.EIO)
    logged.create("/a", "/b")
    assert logged.durable == [] and len(logged.failures) == 1
    assert "a transaction could not be written in" in str(logged.failures[0])
