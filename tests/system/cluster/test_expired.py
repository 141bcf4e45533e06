"""A broker's session with ZooKeeper ends although the broker lives: it leads nothing until it is registered again."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable

from tests.support.wait import until
from tests.system.cluster.load import Load
from tests.system.cluster.members import Cluster, exists
from tests.system.cluster.outcome import ROUNDS_JUDGED, SLOW_MACHINE_S, assert_usable, seconds_text

REGISTERED_S = 1.0


def test_a_session_that_expires_is_replaced_and_nothing_acknowledged_is_lost(
    cluster: Cluster, rounds: int, report: Callable[[str], None]
) -> None:
    topic = f"expired-{uuid.uuid4().hex[:8]}"
    ids = sorted(cluster.members)
    cluster.create(topic, ids)
    registered_s: list[float] = []
    whole_s: list[float] = []
    with contextlib.ExitStack() as stack, cluster.zookeeper_client() as zookeeper:
        loads = {i: stack.enter_context(Load(cluster.bootstrap, topic, cluster.led_by(i, topic))) for i in ids}
        for number in range(rounds):
            for load in loads.values():
                load.await_progress("before the session ends")
            controller = cluster.said_by(ids[0]).controller
            broker = controller if number % 2 == 0 else next(i for i in ids if i != controller)
            path = f"/brokers/ids/{broker}"
            was = zookeeper.get(path)[1].czxid
            cluster.expire(broker)
            since = time.monotonic()
            until(
                lambda path=path, was=was: exists(zookeeper, path) and zookeeper.get(path)[1].czxid > was,
                f"broker {broker} to register again",
            )
            registered_s.append(time.monotonic() - since)
            cluster.await_whole()
            whole_s.append(time.monotonic() - since)
    led = cluster.leaders(topic)
    assert [led[i] for i in sorted(led)] == ids, "each leads what it led"
    ports = {partition: cluster.members[leader].port for partition, leader in led.items()}
    count = sum(load.check(ports) for load in loads.values())
    assert_usable(cluster, topic)
    if rounds >= ROUNDS_JUDGED:
        assert max(registered_s) < REGISTERED_S + SLOW_MACHINE_S, f"registered again after {seconds_text(registered_s)}"
    report(
        f"{rounds} sessions ended under living brokers, {count} records acknowledged, none lost; registered again "
        f"after {seconds_text(registered_s)}, the cluster whole after {seconds_text(whole_s)}"
    )
