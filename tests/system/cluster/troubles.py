"""Brokers that are killed or restarted under members of a group, each of which goes on after every step."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.support.replication.group_members import Committing, await_progress
from tests.system.cluster.members import Cluster


def kill_leaders(cluster: Cluster, topic: str, rounds: int, members: Sequence[Committing]) -> list[float]:
    """Kill the leader of partition 0 with -9 and start it again, so often. After how many seconds all went on."""
    back_s = []
    for _ in range(rounds):
        victim = cluster.wait_for_leader(topic, 0)
        began = time.monotonic()
        cluster.members[victim].kill()
        await_progress(members)
        back_s.append(time.monotonic() - began)
        cluster.start()
        cluster.await_in_sync()
        await_progress(members)
    return back_s


def restart_in_turn(cluster: Cluster, rounds: int, members: Sequence[Committing]) -> None:
    """Stop each broker and start it again, one after the other."""
    for _ in range(rounds):
        for broker in cluster.members.values():
            broker.stop()
            await_progress(members)
            cluster.start()
            cluster.await_in_sync()
            await_progress(members)
