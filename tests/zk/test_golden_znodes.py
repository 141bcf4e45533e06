"""kafkalite alone on a real ZooKeeper leaves what Apache Kafka 3.9.1 left there after the same commands.

tests/interop/test_znodes_beside_kafka.py has recorded it (tests/golden/zookeeper), and holds it against a Kafka that
runs. What may differ stands in znode_comparison.py, with its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zk import golden_znodes
from tests.zk.znode_story import STORIES
from tests.zk.znode_telling import KafkaliteStage, faults
from tests.zookeeper import ZooKeeper


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
