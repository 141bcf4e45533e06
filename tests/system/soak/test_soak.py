"""Half an hour of mixed load on one broker, with clients that come, go and are killed all the time; then everybody
leaves, and nothing may be left of them.

    pytest -m long tests/system/soak                        30 minutes
    KAFKALITE_SOAK_S=300 pytest -m long tests/system/soak   another length

Small segments roll, an administrator removes what every group has read, groups rebalance every few seconds. Each sample
is a line of `samples.jsonl` in the test's directory. Checks at the end: every acknowledged record was read by every
group and stood in its place; memory in the last quarter is what it was in the second; no task, connection, waiter,
timer or descriptor is left; nothing in the log speaks of a failure.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.usage import ProcessTree
from bench.wire import Connection
from tests.support.places import ROOT
from tests.system.soak.soak_fleet import Fleet, environment
from tests.system.soak.soak_ledger import Ledger
from tests.system.soak.soak_visitors import Administrator, Pollers, ask_until

SOAK_S = float(os.environ.get("KAFKALITE_SOAK_S", "1800"))
SAMPLE_S = min(60.0, SOAK_S / 24)
UNREST_S = 4.0
GROUPS = {"readers": "confluent", "workers": "kafka_python", "watchers": "aiokafka"}
PARTITIONS = 6
POLLERS = 50
STANDSTILL_S = 60.0
GROWTH_MAX_BYTES = 8 << 20
GROWTH_MAX_SHARE = 0.10
FAULTY = re.compile(r"\b(ERROR|CRITICAL|Traceback|never retrieved|never awaited|Exception ignored)\b")
SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "producer_id_expiration_ms": 60_000,
    "producer_id_expiration_check_interval_ms": 10_000,
    "log_flush_offset_checkpoint_interval_ms": 5_000,
    "log_segment_delete_delay_ms": 1_000,
}


class BrokerProcess:
    """The broker in a child, and what it answers."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self.log = directory / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.soak.soak_broker", str(self.data_dir), json.dumps(SETTINGS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                cwd=ROOT,
                text=True,
            )
        self.bootstrap: str = self.ask("where")

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the broker went away: {self.log.read_text()[-3000:]}"
        return json.loads(answer)

    def sample(self, at_s: float) -> dict[str, Any]:
        tree = ProcessTree(self.process.pid)
        memory, cpu = tree.memory(), tree.cpu()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return {
            "at_s": round(at_s),
            "rss": memory.resident_bytes,
            "own": memory.own_bytes,
            "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
            "cpu_s": cpu.total_s,
            "disk": sum(path.stat().st_blocks * 512 for path in _files(self.data_dir)),
            **self.ask("count"),
        }

    def stop(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.close()
        return self.process.wait(60)


def _files(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.exists():  # removed meanwhile
                yield path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    try:
        yield broker
    finally:
        broker.process.kill()
        broker.process.wait()


@pytest.fixture
def fleet(broker: BrokerProcess, tmp_path: Path) -> Iterator[Fleet]:
    directory = tmp_path / "ledgers"
    directory.mkdir()
    fleet = Fleet(broker.bootstrap, directory, random.Random(5))
    yield fleet
    fleet.kill()


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 900)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads memory and descriptors from /proc")
def test_half_an_hour_leaves_nothing_behind(
    broker: BrokerProcess, fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.create_topic("mixed", PARTITIONS, {"segment.bytes": str(256 << 10)})
        connection.create_topic("silent")
    assert ask_until(lambda: broker.ask("count")["connections"] == 0, 10)
    before = broker.sample(0)
    fleet.writers("mixed", PARTITIONS)
    for group, library in GROUPS.items():
        fleet.group(library, group, 3 if library == "confluent" else 2, "mixed", PARTITIONS)
    fleet.group("confluent", "idlers", 2, "silent", 1)
    fleet.fill()
    pollers = Pollers(broker.bootstrap, "silent", POLLERS)
    administrator = Administrator(broker.bootstrap, "mixed", PARTITIONS, list(GROUPS))

    samples, kinds = [], []
    began = time.monotonic()
    with (tmp_path / "samples.jsonl").open("w") as file:
        while (at_s := time.monotonic() - began) < SOAK_S:
            if at_s >= (len(samples) + 1) * SAMPLE_S:
                samples.append(broker.sample(at_s))
                file.write(json.dumps(samples[-1]) + "\n")
                file.flush()
                if len(kinds) < 1 + 2 * at_s // SOAK_S:  # once early, once past the middle
                    kinds.append(broker.ask("kinds"))
            fleet.stir()
            time.sleep(UNREST_S)  # the pace of the load; nothing is awaited here
    fleet.fill()
    fleet.leave("produce")
    written = Ledger(fleet.ledgers("produce"))
    read = {group: Ledger(()) for group in GROUPS}

    def behind() -> int:
        """Records that some group has yet to read."""
        read.update({group: Ledger(fleet.ledgers("consume", group)) for group in GROUPS})
        unread = [written.missing_from(ledger) for ledger in read.values()]
        return sum(written.count - ledger.count for ledger in read.values()) if any(unread) else 0

    # a machine with other work may take its time, so long as somebody reads on
    last, now = -1, behind()
    while now and now != last:
        last = now
        ask_until(lambda: behind() == 0, STANDSTILL_S, pause_s=3)
        now = behind()
    fleet.leave("consume")
    behind()
    administrator.stop()
    pollers.stop()
    kinds.append(broker.ask("kinds"))

    gone = {
        "connections": 0,
        "parked": 0,
        "delayed_operations": 0,
        "members": 0,
        "group_timers": 0,
        "tasks": before["tasks"],
    }

    def settled() -> bool:
        now = broker.ask("count")
        return all(now[name] == value for name, value in gone.items()) and not now["descriptors"].get("removed")

    ask_until(settled, 60)
    after = broker.sample(time.monotonic() - began)
    code = broker.stop()
    with capsys.disabled():
        print(_report(before, samples, after, kinds, fleet, administrator, pollers, written, read))

    assert {name: after[name] for name in gone} == gone, "what clients left behind"
    assert set(after["group_states"]) <= {"Empty"}
    for kind in ("socket", "other", "removed"):
        assert after["descriptors"].get(kind, 0) <= before["descriptors"].get(kind, 0), f"descriptors: {after}"
    assert after["descriptors"]["data"] <= 3 * after["segments"]
    assert after["threads"] <= max(sample["threads"] for sample in samples)
    assert fleet.failures + administrator.failures + pollers.failures == []
    assert written.faults == []
    for group, ledger in read.items():
        assert ledger.faults == [], f"what members of {group} saw"
        assert written.missing_from(ledger) == [], f"acknowledged records that {group} did not read"
    for what in ("rss", "own"):
        second, last = (_median(samples, what, quarter) for quarter in (1, 3))
        assert last - second <= max(GROWTH_MAX_BYTES, GROWTH_MAX_SHARE * second), f"{what} grew: {second} to {last}"
    assert code == 0
    assert [line for line in broker.log.read_text().splitlines() if FAULTY.search(line)] == []


def _median(samples: list[dict[str, Any]], what: str, quarter: int) -> float:
    size = len(samples) // 4
    return statistics.median(sample[what] for sample in samples[quarter * size : (quarter + 1) * size])


def _report(
    before: dict[str, Any],
    samples: list[dict[str, Any]],
    after: dict[str, Any],
    kinds: list[dict[str, int]],
    fleet: Fleet,
    administrator: Administrator,
    pollers: Pollers,
    written: Ledger,
    read: dict[str, Ledger],
) -> str:
    """The summary of the run."""
    lines = ["", "    at s   RSS MB   own MB   fds  tasks  conns  members  producers  segments  disk MB  CPU s"]
    for one in (before, *samples, after):
        lines.append(
            f"  {one['at_s']:6d} {one['rss'] / 1e6:8.1f} {one['own'] / 1e6:8.1f} {sum(one['descriptors'].values()):5d}"
            f" {one['tasks']:6d} {one['connections']:6d} {one['members']:8d} {one['producers']:10d}"
            f" {one['segments']:9d} {one['disk'] / 1e6:8.1f} {one['cpu_s']:6.1f}"
        )
    for what in ("rss", "own"):
        second, last = (_median(samples, what, quarter) / 1e6 for quarter in (1, 3))
        lines.append(f"{what}: median of the second quarter {second:.1f} MB, of the last {last:.1f} MB")
    lines.append(f"what happened: {dict(fleet.what_happened)}, brief topics {administrator.turns}")
    lines.append(f"long-polls answered {pollers.answers}, left in the midst {pollers.departures}")
    lines.append(f"requests {after['requests']}, MB in {after['megabytes_in']}; descriptors {after['descriptors']}")
    lines.append(
        f"records acknowledged {written.count}, removed by the administrator {administrator.records_removed},"
        f" read { ({group: ledger.count for group, ledger in read.items()}) }"
    )
    if kinds:
        grown = {kind: count - kinds[0].get(kind, 0) for kind, count in kinds[-1].items() if kind in kinds[0]}
        largest = sorted(grown.items(), key=lambda item: -abs(item[1]))[:12]
        lines.append(f"tracked objects {[one['all'] for one in kinds]}; by kind, first to last: {dict(largest)}")
    return "\n".join(lines)
