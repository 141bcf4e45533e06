"""A share group of stock clients in a random history: members come and go while brokers are disturbed.

Promised of the end: every record of the topic was accepted by a member, and none of those whose acceptance was
confirmed came again.
"""

from __future__ import annotations

import threading
from random import Random

import pytest

from tests.support.replication.group_members import Place, written_places
from tests.support.replication.live_cluster import Reachable
from tests.support.replication.share_members import (
    ShareMember,
    await_all_accepted,
    check_accepted_once,
    set_share_group,
)
from tests.support.wait import DEADLINE_S

GROUP = "sharers"
MEMBERS_MAX = 3
PAUSE_S_MAX = 0.6
SETTINGS = {  # of the brokers
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "500",
    "group.share.session.timeout.ms": "1500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
}
OWN_SETTINGS = {  # locks that expire amid the disturbances, and a limit that they do not reach
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "10",
    "share.record.lock.duration.ms": "3000",
}


class ShareClients:
    """Members come and go between `start` and `finish`, with pauses of up to `PAUSE_S_MAX`. `trace`: what they did."""

    def __init__(self, cluster: Reachable, topic: str, partitions: int, seed: object) -> None:
        self.trace: list[str] = []
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._rng = Random(f"shares {seed}")
        self._members: list[ShareMember] = []
        self._present: list[ShareMember] = []
        self._done = threading.Event()
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        """The cluster is whole: the group gets its settings."""
        set_share_group(self._cluster.bootstrap_servers, GROUP, OWN_SETTINGS)
        self._thread.start()

    def finish(self) -> None:
        """No member comes or goes any more."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(DEADLINE_S)

    def check(self) -> None:
        """The cluster is whole, and nothing is written any more. Raises AssertionError with what members did."""
        try:
            self._check(written_places(self._cluster, self._topic, self._partitions))
        except (AssertionError, pytest.fail.Exception) as fault:
            counts = [len(each.committed) for each in self._members]
            refusals = [dict(each.refusals) for each in self._members]
            trace = ", ".join(self.trace)
            raise AssertionError(f"{fault}; members: {trace}; accepted {counts}, refused {refusals}") from fault

    def _check(self, written: set[Place]) -> None:
        assert not self._faults, self._faults
        self._join()
        await_all_accepted(self._members, written)
        for member in self._members:
            member.leave()
        for member in self._members:
            member.await_end()
        check_accepted_once(self._members, written)

    def _guarded(self) -> None:
        try:
            while not self._done.is_set():
                self._change()
                self._done.wait(self._rng.uniform(0.05, PAUSE_S_MAX))
        except Exception as fault:
            self._faults.append(repr(fault))

    def _change(self) -> None:
        joins = self._rng.random() < 0.5
        if self._present and (len(self._present) == MEMBERS_MAX or (len(self._present) > 1 and not joins)):
            member = self._present.pop(self._rng.randrange(len(self._present)))
            self.trace.append(f"{self._members.index(member)} leaves")
            member.leave()
        else:
            self._join()

    def _join(self) -> None:
        self.trace.append(f"{len(self._members)} joins")
        self._members.append(ShareMember(self._cluster.bootstrap_servers, GROUP, self._topic))
        self._present.append(self._members[-1])
