"""A machine of a history loses what it should and nothing else: what was not synced, and packets of cut links."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.replication.machines import (
    CLIENTS,
    ZOOKEEPER,
    Machine,
    make_bridge,
    missing_requirement,
    run_apart,
)
from tests.support.wait import DEADLINE_S

# a datagram to an address, and one from anywhere
_SEND = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], int(sys.argv[2])))"
_RECEIVE = """
import socket, sys
listener = socket.socket(type=socket.SOCK_DGRAM)
listener.bind((sys.argv[1], 9))
listener.settimeout(float(sys.argv[2]))
print("listens", flush=True)
try:
    print(listener.recv(1).decode())
except TimeoutError:
    print("nothing")
"""


def test_a_machine_loses_what_it_should():
    missing = missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    done = run_apart("tests.support.replication.test_machines", limit_s=2 * DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    make_bridge()
    with tempfile.TemporaryDirectory() as home, Machine(0, Path(home), "", {}) as one:
        power_takes_what_was_not_synced(one)
        failed_disk_takes_no_more(one)
        only_the_wall_clock_is_turned(one)
        links_are_cut_in_one_direction(one)


def power_takes_what_was_not_synced(machine: Machine) -> None:
    machine.data_dir.mkdir()
    synced, unsynced = machine.data_dir / "synced", machine.data_dir / "unsynced"
    with synced.open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
        file.write(b"lost")
    unsynced.write_bytes(b"lost")
    machine.fill()
    assert machine.is_full and not has_room(machine)
    machine.cut_power()
    assert synced.read_bytes() == b"kept" and not unsynced.exists()
    machine.free()
    assert has_room(machine)


def failed_disk_takes_no_more(machine: Machine) -> None:
    with (machine.data_dir / "written").open("wb", buffering=0) as file:
        file.write(b"one")
        machine.fail_disk()
        with pytest.raises(OSError):
            os.fsync(file.fileno())
    machine.cut_power()
    assert (machine.data_dir / "synced").read_bytes() == b"kept"


def only_the_wall_clock_is_turned(machine: Machine) -> None:
    program = "import time; print(time.time(), time.monotonic())"

    def told() -> list[float]:
        """How far a process there is ahead of this one."""
        asked = [*machine.broker.within, sys.executable, "-c", program]
        before = time.time(), time.monotonic()
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return [float(one) - ours for one, ours in zip(done.stdout.split(), before, strict=True)]

    machine.turn_clock(1_800)
    wall, monotonic = told()
    assert 1_790 < wall < 1_800 + DEADLINE_S and 0 <= monotonic < DEADLINE_S
    machine.turn_clock(-60)
    assert told()[0] < 0


def has_room(machine: Machine) -> bool:
    space = os.statvfs(machine.data_dir)
    return space.f_bavail * space.f_frsize > 1 << 20


def links_are_cut_in_one_direction(machine: Machine) -> None:
    inside = machine.broker.within[:2]
    outgoing, incoming = ([], CLIENTS, inside), (inside, machine.address, [])
    assert arrives(*outgoing) and arrives(*incoming)
    machine.cut_to(ZOOKEEPER)
    assert arrives(*outgoing) and arrives(*incoming), "another address was cut"
    machine.cut_to(CLIENTS)
    assert not arrives(*outgoing) and arrives(*incoming)
    machine.mend()
    machine.cut_from(CLIENTS)
    assert arrives(*outgoing) and not arrives(*incoming)
    machine.mend()
    assert arrives(*outgoing) and arrives(*incoming)


def arrives(receiver: Sequence[str], address: str, sender: Sequence[str]) -> bool:
    """Whether a datagram from a place reaches this address in another; a place is a command that runs others there."""
    listening = [*receiver, sys.executable, "-c", _RECEIVE, address, "1"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == "listens\n"
        told = subprocess.run([*sender, sys.executable, "-c", _SEND, address, "9"], capture_output=True, check=False)
        assert told.returncode == 0 or b"not permitted" in told.stderr, told.stderr  # iptables says so to the sender
        return listener.stdout.readline() == "x\n"


if __name__ == "__main__":
    main()
