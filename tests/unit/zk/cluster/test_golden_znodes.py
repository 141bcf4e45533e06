"""kafkalite alone on a real ZooKeeper leaves what Apache Kafka 3.9.1 left there after the same commands.

tests/compatibility/interop/test_znodes_beside_kafka.py recorded it (tests/golden/zookeeper) and compares it with a
running Kafka. Allowed differences stand in znode_comparison.py, with their reasons.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.zk import golden_znodes
from tests.support.zk.znode_story import STORIES
from tests.support.zk.znode_telling import KafkaliteStage, faults
from tests.support.zookeeper import ZooKeeper


@pytest.mark.thorough
@pytest.mark.parametrize("name", STORIES)
def test_the_same_commands_leave_the_nodes_that_kafka_left(
    name: str, zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    kept = golden_znodes.load(name)
    assert kept.keys() == STORIES[name].keys(), "not recorded: run the long form beside Kafka with --record-znodes"
    stage = KafkaliteStage(zookeeper.connect + chroot, tmp_path)
    try:
        found = faults(stage, STORIES[name], kept)
    finally:
        stage.close()
    assert not found, "\n".join(found)
