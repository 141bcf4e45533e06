"""Every damage of the table is found, and a restart survives it, does as predicted, and touches nothing else."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kafkalite import Broker
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.files.findings import Severity
from kafkalite.inspection.verify.verify import Verdict, verify
from kafkalite.log.recovery.log_loader import LoadOptions, load
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import iter_batches, parse_header
from tests.support import places
from tests.support.inspection.damages import DAMAGES, KAFKAS, OURS, Damage

GOLDEN = places.GOLDEN / "inspection"
STOPS = ("orderly", "killed")
Contents = dict[str, dict[str, bytes]]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def prepare(base: str, stop: str, data_dir: Path) -> None:
    """A copy of a golden directory; `killed`: nothing is known to be on the disk."""
    shutil.copytree(GOLDEN / base, data_dir)
    if stop == "killed":
        for marker in (".kafka_cleanshutdown", ".kafkalite_cleanshutdown"):
            (data_dir / marker).unlink(missing_ok=True)
        path = data_dir / "recovery-point-offset-checkpoint"
        head, entries = path.read_text().splitlines()[:2], path.read_text().splitlines()[2:]
        path.write_text("\n".join([*head, *[f"{line.rpartition(' ')[0]} 0" for line in entries], ""]))


def contents(data_dir: Path) -> Contents:
    """The logs of every partition, byte for byte."""
    found: Contents = {}
    for path in sorted(data_dir.glob("*-*/*.log")):
        if path.stem.isdigit() and len(path.stem) == 20 and not path.parent.name.endswith("-delete"):
            found.setdefault(path.parent.name, {})[path.name] = path.read_bytes()
    return found


def everything(data_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


def restart(damage: Damage, verdict: Verdict, data_dir: Path) -> int:
    """How many bytes it cost."""
    if damage.base == OURS:
        with Broker(data_dir=data_dir, port=0) as broker:
            return sum(log.lost_bytes for log in broker.server.logs.logs.values())
    options = LoadOptions(verdict.clean, 0, 0)
    directory = str(data_dir / damage.partition)
    return load(directory, TopicConfig(), options, 1_700_000_000_000, Files(), EXPIRATION_MS).lost_bytes


@pytest.mark.parametrize("base", [OURS, KAFKAS, "kafka-2.7.2"])
@pytest.mark.parametrize("deep", [False, True])
def test_what_is_sound_is_found_sound(base: str, deep: bool, data_dir: Path) -> None:
    prepare(base, "orderly", data_dir)
    verdict = verify(str(data_dir), deep=deep)
    assert verdict.clean and not verdict.findings, [finding.as_text() for finding in verdict.findings]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_a_damage_is_found_and_a_restart_does_as_predicted(damage: Damage, stop: str, data_dir: Path) -> None:
    prepare(damage.base, stop, data_dir)
    sound = contents(data_dir)
    damage.do(data_dir / damage.partition)
    before, as_it_was = contents(data_dir), everything(data_dir)

    verdict = verify(str(data_dir))

    assert everything(data_dir) == as_it_was, "looking changes nothing"
    findings = "\n".join(finding.as_text() for finding in verdict.findings)
    mine = [one for one in verdict.findings if one.path.endswith(damage.path) and damage.words in one.what]
    assert mine, findings or "nothing was found"
    assert all(one.restart for one in verdict.findings), findings
    if any(one.severity is Severity.REFUSES for one in verdict.findings):
        with pytest.raises((ConfigError, StorageError)):
            restart(damage, verdict, data_dir)
        assert contents(data_dir) == before, "a start that is refused changes no log"
        return

    if any(one.severity is Severity.SET_ASIDE for one in verdict.findings):
        restart(damage, verdict, data_dir)
        (aside,) = data_dir.glob("*-stray")
        assert {path.name: path.read_bytes() for path in aside.glob("*.log")} == before[damage.partition]
        return

    lost_bytes = restart(damage, verdict, data_dir)

    after = contents(data_dir)
    for partition, files in sound.items():
        if partition != damage.partition:
            assert after[partition] == files, f"{partition} was not concerned"
    forecast = verdict.forecasts.get(str(data_dir / damage.partition))
    if forecast is not None:
        assert lost_bytes == forecast.lost_bytes, findings
        left = {name: before[damage.partition].get(name, b"")[:size] for name, size in forecast.sizes.items()}
        assert {name: len(data) for name, data in after[damage.partition].items()} == forecast.sizes, findings
        if "swap" not in damage.path:
            assert after[damage.partition] == left, "what is left is what was there"
    elif not any(one.severity is Severity.LOSES for one in verdict.findings) and damage.partition in after:
        assert after[damage.partition] == before[damage.partition]
    repaired = {one.path for one in verdict.findings if one.severity in (Severity.REPAIRED, Severity.LOSES)}
    repaired = {path for path in repaired if not path.endswith("-delete")}  # that waits for file.delete.delay.ms
    again = verify(str(data_dir))
    assert not [one for one in again.findings if one.path in repaired and damage.words in one.what], findings
    keep_what_was_before_the_damage(damage, sound, before, after)


def keep_what_was_before_the_damage(damage: Damage, sound: Contents, before: Contents, after: Contents) -> None:
    """Up to where the damaged log differs from the sound one, everything is still there, if its segment is."""
    for name, data in after.get(damage.partition, {}).items():
        was, harmed = sound[damage.partition].get(name, b""), before[damage.partition].get(name, b"")
        same = next(
            (at for at, (a, b) in enumerate(zip(was, harmed, strict=False)) if a != b), min(len(was), len(harmed))
        )
        assert data[:same] == was[: min(same, len(data))]


DERIVED = (
    *("*-*/*.index", "*-*/*.timeindex", "*-*/*.txnindex", "*-*/*.snapshot"),
    *("*-*/leader-epoch-checkpoint", "*-*/kafkalite-record-counts"),
    *("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
)


def damage_at_random(path: Path, chance: Random) -> None:
    data = bytearray(path.read_bytes())
    kind = chance.randrange(10)
    if kind == 0:
        path.unlink()
        return
    if kind == 1:
        data += chance.randbytes(chance.randrange(1, 40))
    elif kind < 4:
        del data[chance.randrange(len(data) + 1) :]
    elif data:
        for _ in range(chance.randrange(1, 7)):
            data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    path.write_bytes(data)


def check_every_batch(broker: Broker, before: Contents) -> None:
    """Each batch from the start of its log on is found by its last offset. Runs on the loop, which owns the logs."""
    for log in broker.server.logs.logs.values():
        segments = before[f"{log.topic}-{log.partition}"].values()
        ends = [header.last_offset for data in segments for header, _ in iter_batches(memoryview(data))]
        for last in [last for last in ends if last >= log.start_offset]:
            region = log.read(last, 1 << 20, log.end_offset)
            assert region is not None and parse_header(region.read()).last_offset == last


@pytest.mark.parametrize("count", [10, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("stop", STOPS)
def test_any_bytes_in_what_is_derived_from_a_log_cost_no_record(count: int, stop: str, tmp_path: Path) -> None:
    chance = Random(count)
    for number in range(count):
        data_dir = tmp_path / str(number)
        prepare(OURS, stop, data_dir)
        before = contents(data_dir)
        found = sorted(path for pattern in DERIVED for path in data_dir.glob(pattern))
        for path in chance.sample(found, chance.randrange(1, 5)):
            damage_at_random(path, chance)
        with Broker(data_dir=data_dir, port=0) as broker:
            broker.call(partial(check_every_batch, broker, before))
        assert contents(data_dir) == before
        shutil.rmtree(data_dir)
