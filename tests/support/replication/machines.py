"""Machines for the brokers of a process: each with a network namespace, a disk, and a boot of its own.

    enter_or_explain(...)       run a module where it may make machines; or the reason why that is impossible here
    with Machine(...) as it:    it.broker is a real process there

All machines hang on one bridge, whose own addresses are those of the clients and of ZooKeeper. Links are cut and made
lossy with iptables, in one direction if wanted, and made slow with a token bucket. The disk is a small ext4 in a loop
device. Its power is cut as in xfstests: the file system is shut down without its journal being flushed, so that
everything which was not synced, nor written back by chance, is gone; the next mount replays the journal. After that
the machine has another boot id. A disk that fails is shut down in the same way under a running broker, for which every
write and sync fails from then on. The wall clock of a broker is turned by `turned_clock`.

Everything lives in network, mount and process namespaces of one process, and is gone with it, however that ends.
Source: ioctl_ext4(2) EXT4_IOC_SHUTDOWN, ip-netns(8), iptables-extensions(8), tc-tbf(8).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.broker_process import ServedBroker, environment
from tests.support.wait import until

BRIDGE = "machines"
CLIENTS = "10.77.0.253"
ZOOKEEPER = "10.77.0.254"
PORT = 9092
DISK_BYTES = 64 << 20
FREE_BYTES = 64 << 10  # of a disk that is nearly full

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_THE_JOURNAL = struct.pack("I", 2)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# brokers see the mounts of the other disks come and go, else a disk that went would live on with them
_APART = ("unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
_BEGIN = f'mount --bind "$0" {_BOOT_ID} && exec "$@"'
_TURNED_CLOCK = Path(__file__).with_name("turned_clock")
_TOOLS = ("unshare", "nsenter", "mount", "losetup", "mkfs.ext4", "ip", "tc", "iptables")


def missing_requirement() -> str | None:
    """The reason why there can be no machines here; None if there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"machines for brokers need {', '.join(missing)} (packages util-linux, e2fsprogs, iproute2, iptables)"
    tried = subprocess.run([*_APART, "sh", "-c", "losetup -f >&2"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"namespaces and loop devices may not be made here (root may): {tried.stderr.strip()}"
    return None


def run_apart(module: str, *arguments: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run a module of this checkout where it may make machines."""
    command = [*_APART, sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=limit_s, check=False)


def make_bridge() -> None:
    """Where machines are plugged in; once, in a process that `run_apart` began."""
    _do("mount", "--make-rshared", "/")
    _do("mount", "-t", "tmpfs", "none", "/run")
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", BRIDGE, "type", "bridge")
    _do("ip", "address", "add", f"{CLIENTS}/24", "dev", BRIDGE)
    _do("ip", "address", "add", f"{ZOOKEEPER}/24", "dev", BRIDGE)
    _do("ip", "link", "set", BRIDGE, "up")


class Machine:
    """Machine `number` and its broker, which has that id. `address` is its own in the network.

    `was_full`: its disk was, while this process of the broker ran; that alone, or a disk that `has_failed`, may end it
    by itself.
    A link that is named by an address is the one from there to here, or from here to there.
    """

    def __init__(self, number: int, home: Path, connect: str, settings: Mapping[str, str]) -> None:
        self.number = number
        self.address = f"10.77.0.{number + 1}"
        self.is_paused = False
        self.is_disturbed = False
        self.is_full = False
        self.was_full = False
        self.has_failed = False
        self._namespace = f"machine{number}"
        self._disk = home / f"disk{number}"
        self._image = home / f"disk{number}.image"
        self._boot = home / f"boot{number}"
        self._clock = home / f"clock{number}"
        own = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{self.address}:{PORT}",
            "zookeeper.connect": connect,
        }
        enter = ("nsenter", f"--net=/run/netns/{self._namespace}")
        apart = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _BEGIN, str(self._boot))
        self._enter = enter
        self.data_dir = self._disk / "data"
        errors = home / f"broker{number}.txt"
        self.broker = ServedBroker(
            self.data_dir, errors, {**settings, **own}, within=(*enter, *apart, *self._under_own_clock())
        )
        self.broker.name = f"broker {number}"
        self.broker.port = PORT

    def __enter__(self) -> Self:
        inner, outer = f"eth{self.number}", f"port{self.number}"
        _do("ip", "netns", "add", self._namespace)
        _do("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self._namespace)
        _do("ip", "link", "set", outer, "master", BRIDGE, "up")
        self._inside("ip", "address", "add", f"{self.address}/24", "dev", inner)
        self._inside("ip", "link", "set", inner, "up")
        self._inside("ip", "link", "set", "lo", "up")
        self._disk.mkdir()
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        _do("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._boot.write_text(f"{uuid.uuid4()}\n")
        self.turn_clock(0)
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._unmount()

    # the process

    @property
    def is_running(self) -> bool:
        return self.broker.is_running

    @property
    def has_ended(self) -> bool:
        """Whether the broker's process ended by itself."""
        return self.broker.process is not None and self.broker.process.poll() is not None

    def kill(self) -> None:
        self.broker.kill()
        self.is_paused = False
        self.was_full = self.is_full

    def stop(self) -> None:
        code = self.broker.stop()
        assert code == 0, f"{self.broker.name} ended with code {code}"
        self.was_full = self.is_full

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self.broker.process is not None:
            self.broker.process.send_signal(number)

    # the disk

    def cut_power(self) -> None:
        """The broker is gone, and everything on its disk that was not synced."""
        self.kill()
        if not self.has_failed:
            self._shut_down_disk()
        self._unmount()
        self._mount()
        self.has_failed = False
        self.is_full = self.was_full = self._ballast.exists()
        self._boot.write_text(f"{uuid.uuid4()}\n")

    def fail_disk(self) -> None:
        """Fails each write to the disk and each fsync from now on, until the power is cut."""
        self._shut_down_disk()
        self.has_failed = True

    def _shut_down_disk(self) -> None:
        disk = os.open(self._disk, os.O_RDONLY)
        try:
            fcntl.ioctl(disk, _SHUTDOWN, _WITHOUT_THE_JOURNAL)
        finally:
            os.close(disk)

    def fill(self) -> None:
        """All of the disk but FREE_BYTES is taken."""
        free = os.statvfs(self._disk)
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(4096, free.f_bavail * free.f_frsize - FREE_BYTES))
        self.is_full = self.was_full = True

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)
        self.is_full = False

    @property
    def _ballast(self) -> Path:
        return self._disk / "ballast"

    def _mount(self) -> None:
        _do("mount", "-o", "loop", str(self._image), str(self._disk))

    def _unmount(self) -> None:
        def is_gone() -> bool:
            command = ["umount", str(self._disk)]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        until(is_gone, f"the disk of machine {self.number} to be left by its processes")

    # the clock

    def turn_clock(self, seconds: int) -> None:
        """The broker's wall clock is this much ahead of the others'."""
        told = self._clock.with_suffix(".new")
        told.write_text(f"{seconds:+d}\n")
        told.replace(self._clock)  # it is read at any time

    def _under_own_clock(self) -> tuple[str, ...]:
        found_first = os.pathsep.join((str(_TURNED_CLOCK), environment()["PYTHONPATH"]))
        return ("env", f"TURNED_CLOCK={self._clock}", f"PYTHONPATH={found_first}")

    # the network

    def cut_from(self, address: str) -> None:
        """No packet from there arrives here."""
        self._filter("INPUT", "-s", address)

    def cut_to(self, address: str) -> None:
        """No packet from here arrives there."""
        self._filter("OUTPUT", "-d", address)

    def isolate(self) -> None:
        self._filter("INPUT", "!", "-i", "lo")
        self._filter("OUTPUT", "!", "-o", "lo")

    def lose_packets(self, share: float) -> None:
        """Of those that come here."""
        self._filter("INPUT", "!", "-i", "lo", "-m", "statistic", "--mode", "random", "--probability", f"{share:.2f}")

    def slow_down(self, kilobits: int) -> None:
        """Limits the traffic that leaves this machine to a rate."""
        bucket = ("tbf", "rate", f"{kilobits}kbit", "burst", "4kb", "latency", "400ms")
        self._inside("tc", "qdisc", "replace", "dev", f"eth{self.number}", "root", *bucket)
        self.is_disturbed = True

    def mend(self) -> None:
        """All links are whole and fast."""
        if self.is_disturbed:
            self._inside("iptables", "-w", "-F")
            self._inside("tc", "qdisc", "delete", "dev", f"eth{self.number}", "root", check=False)
        self.is_disturbed = False

    def _filter(self, chain: str, *packets: str) -> None:
        self._inside("iptables", "-w", "-A", chain, *packets, "-j", "DROP")
        self.is_disturbed = True

    def _inside(self, *command: str, check: bool = True) -> None:
        _do(*self._enter, *command, check=check)


def _do(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(_short(command))}: {done.stderr.strip()}")


def _short(command: Sequence[str]) -> Sequence[str]:
    return command[2:] if command[0] == "nsenter" else command
