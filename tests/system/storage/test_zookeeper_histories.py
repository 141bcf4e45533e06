"""Random histories of our ZooKeeper on a disk that forgets: every acknowledged change is there after any crash.

A history is a list of requests of several sessions. The process ends at any call to the disk, by a kill or a power cut,
as often as wanted, also during a recovery or while a snapshot is made. The model is the answers alone: each that was
delivered, in order. What was not answered may be there or not, but a part of a transaction never is.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import StorageError
from kafkalite.zk.client.wire_requests import string
from kafkalite.zk.server.access_lists import OPEN
from kafkalite.zk.server.refusals import Refused
from kafkalite.zk.server.sessions import Session
from kafkalite.zk.server.snapshot import encode_snapshot
from kafkalite.zk.server.transactions import access_list_field, data_field
from kafkalite.zk.server.zookeeper_server import ZooKeeperServer
from tests.support.log.faulty_files import Ended, FaultyFiles, Killed, PowerCut
from tests.support.log.job_queue import JobQueue
from tests.support.manual_clock import ManualClock
from tests.support.zk.raw_client import INT, MULTI_HEADER

LOG_BYTES = 600  # so that most histories have snapshots
PATHS = ("/a", "/b", "/a/c", "/a/d", "/s-")

Body = tuple[int, bytes]


class Life(NamedTuple):
    """Steps until the process ends at its `end_at`-th call to the disk (0: after the last step)."""

    steps: list[tuple[int, Body | None]]
    end_at: int
    by: type[Ended]
    torn: int | None
    batch: int
    fails: bool


path = st.sampled_from(PATHS)
data = st.sampled_from([None, b"x", b"y" * 40, b"KZL1" * 3])
version = st.sampled_from([-1, -1, 0, 1])
create = st.builds(
    lambda path, data, flags: string(path) + data_field(data) + access_list_field(OPEN) + INT.pack(flags),
    path, data, st.sampled_from([0, 0, 1, 2, 3, 4]),
)  # fmt: skip
set_data = st.builds(
    lambda path, data, version: string(path) + data_field(data) + INT.pack(version), path, data, version
)
delete = st.builds(lambda path, version: string(path) + INT.pack(version), path, version)
change = st.one_of(
    create.map(lambda body: (1, body)), create.map(lambda body: (1, body)), set_data.map(lambda body: (5, body)),
    delete.map(lambda body: (2, body)),
)  # fmt: skip
multi = st.lists(change, min_size=1, max_size=3).map(
    lambda parts: (
        14, b"".join(MULTI_HEADER.pack(kind, 0, -1) + body for kind, body in parts) + MULTI_HEADER.pack(-1, 1, -1)
    )
)  # fmt: skip
lives = st.builds(
    Life,
    st.lists(st.tuples(st.integers(0, 2), st.one_of(change, change, multi, st.none())), min_size=1, max_size=14),
    st.one_of(st.just(0), st.integers(1, 60)),
    st.sampled_from([PowerCut, PowerCut, Killed]),
    st.one_of(st.none(), st.integers(0, 30)),
    st.integers(1, 5),
    st.sampled_from([False, False, False, True]),
)


class Process:
    """One life of the server. `acknowledged`: the state at the last answer that was delivered."""

    def __init__(self, disk: FaultyFiles, clock: ManualClock) -> None:
        self.queue = JobQueue()
        self.failures: list[StorageError] = []
        self.server = ZooKeeperServer(
            disk, disk.root, clock, commits=self.queue, merges=self.queue, on_failure=self.failures.append,
            log_bytes=LOG_BYTES,
        )  # fmt: skip
        self.acknowledged = encode_snapshot(self.server.sessions.tree)
        self.states = [self.acknowledged]
        self.sessions: dict[int, Session] = {}

    def take(self, who: int, body: Body | None) -> None:
        """One request, or the end of a session; a session is opened for it."""
        sessions = self.server.sessions
        session = self.sessions.get(who)
        if session is None or not sessions.is_alive(session):
            session = self.sessions[who] = sessions.open(1_000)
            self._answer()
        try:
            if body is None:
                sessions.end(session)
            else:
                sessions.serve(session, *body)
        except Refused:
            pass
        self._answer()

    def _answer(self) -> None:
        state = encode_snapshot(self.server.sessions.tree)
        self.states.append(state)

        def deliver() -> None:
            self.acknowledged = state

        self.server.when_durable(deliver)


def play(root: Path, history: list[Life], seed: int, *, ordered: bool) -> None:
    random, clock = Random(seed), ManualClock()
    (root / "0").mkdir()
    disk = FaultyFiles(str(root / "0"), ordered=ordered)
    allowed: list[bytes] = []
    for number, life in enumerate(history, 1):
        disk.end_at = disk.calls + life.end_at if life.end_at else 0
        disk.end_by, disk.torn_bytes = life.by, life.torn
        process = None
        try:
            process = Process(disk, clock)
            check(allowed, process.acknowledged)
            allowed = [process.acknowledged]
            if life.fails:
                disk.fail("fsync", "log.", errno.EIO, after=random.randint(0, 3))
            for index, step in enumerate(life.steps):
                process.take(*step)
                if index % life.batch == 0:
                    process.queue.run()
            process.queue.run()
        except Ended:
            pass
        if process is not None:
            allowed = process.states[process.states.index(process.acknowledged) :]
            process.server.sessions.freeze()
        if life.by is Killed:
            disk = disk.kill()
        else:
            disk = disk.power_cut(str(root / str(number)), random)
    process = Process(disk, clock)
    check(allowed, process.acknowledged)
    process.server.stop()


def check(allowed: list[bytes], found: bytes) -> None:
    """The state is the acknowledged one, or one of those behind it."""
    assert not allowed or found in allowed, "an acknowledged change is gone, or a part of a transaction is there"


@pytest.mark.parametrize("ordered", [True, False])
@settings(max_examples=60, deadline=None)
@given(history=st.lists(lives, min_size=1, max_size=4), seed=st.integers(0, 1 << 32))
def test_what_was_acknowledged_survives_any_crash(tmp_path_factory, ordered, history, seed):
    play(tmp_path_factory.mktemp("zookeeper"), history, seed, ordered=ordered)


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(history=st.lists(lives, min_size=1, max_size=5), seed=st.integers(0, 1 << 32), ordered=st.booleans())
def test_so_it_does_in_5000_histories(tmp_path_factory, ordered, history, seed):
    play(tmp_path_factory.mktemp("zookeeper"), history, seed, ordered=ordered)
