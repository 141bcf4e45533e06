"""`serve --cores 3` under load while random processes of it are killed with -9: brokers, the ZooKeeper, the supervisor.

Judged: nothing acknowledged is lost, every partition takes and gives records after each kill, and no process stays
behind the supervisor. Reported: how long things took. The clients keep the addresses that they began with.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.load import LOG, Load
from tests.system.cluster.outcome import seconds_text
from tests.system.cluster.served_machine import Served, all_gone, create, end, start

NAMES = ("broker 0", "broker 1", "broker 2", "ZooKeeper")
SUPERVISOR = "the supervisor"
MANY = pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(7200)])


class Machine:
    """The command, as often as it is started; its brokers have the same ports each time."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ports = ",".join(str(free_port()) for _ in range(3))
        self.served = self._start()

    def _start(self) -> Served:
        return start(self.home, "--ports", self._ports, cores="3")

    def kill(self, name: str) -> float:
        """Kill one process. Returns after how many seconds it serves again."""
        killed_s = time.monotonic()
        if name == SUPERVISOR:
            self.served.process.kill()
            end(self.served.process)
            until(lambda: all_gone(self.home / "data"), "every process to end", 30)
            killed_s = time.monotonic()  # of the start: an operator's unit starts it
            self.served = self._start()
        else:
            pid = self.served.pids(name)[-1]
            os.kill(pid, signal.SIGKILL)
            until(lambda: self.served.pids(name)[-1] != pid, f"{name} to serve again")
        return time.monotonic() - killed_s


@pytest.mark.parametrize("rounds", [5, MANY], ids="{}-rounds".format)
def test_processes_are_killed_and_nothing_acknowledged_is_lost(
    tmp_path: Path, rounds: int, report: Callable[[str], None]
) -> None:
    machine = Machine(tmp_path)
    victims = [*NAMES, SUPERVISOR] * (rounds // 5)
    random.shuffle(victims)
    back_s: dict[str, list[float]] = {}
    whole_s: dict[str, list[float]] = {}
    try:
        create(machine.served.bootstrap, "kept", 6)
        with Load(machine.served.bootstrap, "kept", range(6)) as load:
            load.await_progress("before anything happens")
            for victim in victims:
                begin_s = time.monotonic()
                kind = "broker" if victim.startswith("broker") else victim
                back_s.setdefault(kind, []).append(machine.kill(victim))
                load.await_progress(f"after the end of {victim}")
                whole_s.setdefault(kind, []).append(time.monotonic() - begin_s)
        metadata = AdminClient({"bootstrap.servers": machine.served.bootstrap}, logger=LOG).list_topics(
            "kept", timeout=DEADLINE_S
        )
        places = metadata.topics["kept"].partitions.values()
        count = load.check({one.id: metadata.brokers[one.leader].port for one in places})
    finally:
        end(machine.served.process)
    assert all_gone(tmp_path / "data")
    report(f"{rounds} kills of processes of one machine: {count} records acknowledged, none lost")
    for kind, seconds in back_s.items():
        report(f"  {kind}: serves again {seconds_text(seconds)}, all partitions used {seconds_text(whole_s[kind])}")
