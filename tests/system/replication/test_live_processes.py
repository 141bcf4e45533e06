"""Random histories of brokers as processes, each with a network and a disk of its own: nothing acknowledged is lost."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest

from tests.support.replication import porcupine
from tests.support.replication.machines import missing_requirement, run_apart
from tests.support.zookeeper import without_zookeeper
from tests.system.replication.conftest import HISTORIES

LIMIT_S = 240
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * LIMIT_S), pytest.mark.xdist_group("machines")]


def run(tmp_path: Path, *arguments: object) -> None:
    missing = without_zookeeper() or missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    checker, operations = porcupine.build(), tmp_path / "operations"
    module = "tests.support.replication.process_history"
    done = run_apart(module, *map(str, arguments), f"operations={operations}", limit_s=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = porcupine.check(checker, operations)
    assert checked.returncode == 0, checked.stdout + checked.stderr + done.stdout


@pytest.mark.parametrize("brokers", [3, 5])
def test_nothing_is_lost_while_one_machine_at_a_time_loses_its_power(seed: int, brokers: int, tmp_path: Path) -> None:
    run(tmp_path, seed, brokers)


@pytest.mark.parametrize("brokers", [3, 5])
def test_flushed_records_survive_when_every_machine_loses_its_power(seed: int, brokers: int, tmp_path: Path) -> None:
    run(tmp_path, seed, brokers, "flushed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A third of the histories have flushed records."""
    count = metafunc.config.getoption("--process-histories", HISTORIES)
    sixths = 1 if metafunc.function is test_flushed_records_survive_when_every_machine_loses_its_power else 2
    metafunc.parametrize("seed", range(ceil(count * sixths / 6)))
