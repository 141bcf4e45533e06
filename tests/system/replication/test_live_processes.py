"""Random histories of brokers as processes, each with a network and a disk of its own: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from tests.support.replication.machines import missing_requirement, run_apart
from tests.support.zookeeper import without_zookeeper

LIMIT_S = 240
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * LIMIT_S), pytest.mark.xdist_group("machines")]


def run(*arguments: object) -> None:
    missing = without_zookeeper() or missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    module = "tests.support.replication.process_history"
    done = run_apart(module, *map(str, arguments), limit_s=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_while_one_machine_at_a_time_loses_its_power(seed: int, brokers: int) -> None:
    run(seed, brokers)


@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("seed", range(10))
def test_flushed_records_survive_when_every_machine_loses_its_power(seed: int, brokers: int) -> None:
    run(seed, brokers, "flushed")
