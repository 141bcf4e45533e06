"""`kafkalite log verify` promises what the next start does: it loads each log as that start would."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from kafkalite import Broker
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.directory_listing import list_directory
from kafkalite.inspection.files.findings import Severity
from kafkalite.inspection.verify.verify import StartKnowledge, Verdict, verify
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.manual_clock import ManualClock

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
FAR = 1 << 31
NOW_MS = 1_700_000_000_000
POINTS = "recovery-point-offset-checkpoint"


def fill(partition: Path, *segments: tuple[int, list[int]], torn_bytes: int = 0) -> None:
    """Segments by their base offsets, with batches of one record at these offsets."""
    partition.mkdir(parents=True, exist_ok=True)
    for path in partition.glob("0*"):
        path.unlink()
    for base, offsets in segments:
        records = [[NewRecord(b"%d" % at, b"v" * 50, (), NOW_MS)] for at in offsets]
        data = b"".join(bytes(build_batch(one, base_offset=at)) for one, at in zip(records, offsets, strict=True))
        (partition / f"{base:020d}.log").write_bytes(data[: len(data) - torn_bytes] if offsets else b"")
        for suffix in (".index", ".timeindex"):
            (partition / f"{base:020d}{suffix}").touch()


def checkpoint(root: Path, name: str, **offsets: int) -> None:
    lines = [f"{topic} 0 {offset}" for topic, offset in offsets.items()]
    (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def logs_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*-0/*.log")}


def start(root: Path, config: TopicConfig) -> dict[str, int]:
    """The files after a start of the log manager: sizes of segments; and the bytes that it cut off, as "lost"."""
    manager = LogManager([root], ManualClock(), BrokerConfig())
    try:
        asyncio.run(manager.load(CLUSTER, lambda topic: config))
        sizes = {
            f"{key[0]}-{Path(one.path).name}": one.size_bytes
            for key, log in manager.logs.items()
            for one in log.segments
        }
        return sizes | {"lost": sum(log.lost_bytes for log in manager.logs.values())}
    finally:
        manager.close()


def forecast(verdict: Verdict) -> dict[str, int]:
    sizes = {
        f"{Path(path).name.removesuffix('-0')}-{name}": size
        for path, one in verdict.forecasts.items()
        for name, size in one.sizes.items()
    }
    return sizes | {"lost": verdict.lost_bytes}


GAPS = [(0, [0, 1, 2]), (9, [9, 11]), (20, []), (31, [31, 32, 33])]


@pytest.mark.parametrize("points", [None, {}, {"orders": 0}, {"orders": 9}, {"orders": 34}])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_is_no_loss_whatever_is_known(tmp_path: Path, policy: str, points: dict[str, int] | None) -> None:
    root = tmp_path / "data"
    fill(root / "orders-0", *GAPS)
    (root / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={CLUSTER}\n")
    if points is not None:
        checkpoint(root, POINTS, **points)
    before = logs_of(root)
    verdict = verify(str(root))
    assert verdict.lost_bytes == 0 and not verdict.clean
    found = [one for one in verdict.findings if one.path.endswith(".log")]
    assert all(one.severity is Severity.STAYS and "missing" in one.what for one in found), found
    promised = forecast(verdict)
    assert start(root, TopicConfig(cleanup_policy=(policy,))) == promised
    assert logs_of(root) == before


def test_the_settings_of_a_topic_come_from_the_journal(tmp_path: Path) -> None:
    """Of a compacted topic nothing is missed, also without a recovery point file."""
    root = tmp_path / "data"
    with Broker(data_dir=root, port=0) as broker:
        broker.create_topic("cleaned", cleanup_policy="compact")
        broker.create_topic("changed", cleanup_policy="compact")
        broker.create_topic("plain")
    for topic in ("cleaned", "changed", "plain"):
        fill(root / f"{topic}-0", *GAPS)
    for name in (".kafka_cleanshutdown", ".kafkalite_cleanshutdown", POINTS, "replication-offset-checkpoint"):
        (root / name).unlink(missing_ok=True)
    checkpoint(root, "cleaner-offset-checkpoint", changed=34)
    known = StartKnowledge(list_directory(str(root)))
    assert known.config_of("cleaned").cleanup_policy == ("compact",)
    assert known.config_of("plain").cleanup_policy == ("delete",)
    before = logs_of(root)
    verdict = verify(str(root))
    assert verdict.lost_bytes == 0
    missed = {Path(one.path).parent.name for one in verdict.findings if "missing" in one.what and ".log" in one.path}
    assert missed == {"plain-0"}
    with Broker(data_dir=root, port=0) as broker:
        assert not any(log.lost_bytes for log in broker.server.logs.logs.values())
    assert {name: data for name, data in logs_of(root).items() if name in before} == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_no_index_can_express_is_split(tmp_path: Path, clean: bool) -> None:
    root = tmp_path / "data"
    fill(root / "orders-0", (0, [0, 7, FAR + 7, FAR + 9]), (5 * FAR, [5 * FAR]))
    checkpoint(root, POINTS, orders=5 * FAR + 1 if clean else 0)
    if clean:
        (root / ".kafka_cleanshutdown").touch()
    before = b"".join(data for _, data in sorted(logs_of(root).items()))
    verdict = verify(str(root), deep=True)
    (far,) = [one for one in verdict.findings if "too far" in one.what]
    assert (far.severity, far.lost_bytes, verdict.lost_bytes) == (Severity.REPAIRED, 0, 0)
    assert "2 segments" in far.restart and f"offset {FAR + 7}" in far.where
    promised = forecast(verdict)
    assert start(root, TopicConfig()) == promised
    assert b"".join(data for _, data in sorted(logs_of(root).items())) == before
    assert not [one for one in verify(str(root)).findings if "too far" in one.what]


@pytest.mark.parametrize("seed", range(40))
def test_any_log_is_loaded_as_promised(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    root = tmp_path / "data"
    offset, segments = 0, []
    for _ in range(random.randint(1, 4)):
        base, offsets = offset, []
        for _batch in range(random.choice((0, 1, 4))):
            offset += random.choice((0, 0, 1, 5, FAR, FAR - 1))
            offsets.append(offset)
            offset += 1
        segments.append((base, offsets))
        offset = max(offset, base + 1) + random.choice((0, 0, 3, FAR))
    fill(root / "orders-0", *segments)
    last = root / "orders-0" / f"{segments[-1][0]:020d}.log"
    last.write_bytes(last.read_bytes()[: -random.choice((1, 7, 30))] if random.random() < 0.5 else last.read_bytes())
    if random.random() < 0.8:
        checkpoint(root, POINTS, orders=random.choice((0, offset, *(base for base, _ in segments))))
    if random.random() < 0.5:
        checkpoint(root, "cleaner-offset-checkpoint", orders=random.choice((0, segments[-1][0])))
    (root / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={CLUSTER}\n")
    copied = tmp_path / "copy"
    shutil.copytree(root, copied)
    verdict = verify(str(root))
    assert logs_of(root) == logs_of(copied), "nothing was changed"
    assert not any(one.refusal for one in verdict.forecasts.values()), verdict.forecasts
    assert start(copied, TopicConfig()) == forecast(verdict)
    losses = sum(one.lost_bytes for one in verdict.findings)
    unwritten = [one for one in verdict.findings if "cut off" in one.restart and one.severity is Severity.REPAIRED]
    assert losses == verdict.lost_bytes or unwritten
