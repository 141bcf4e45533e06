"""ZooKeeper's own shell, of 3.9.5, prints the same with our ZooKeeper as with Apache's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kafkalite.cli.local_cluster.zookeeper_process import find_jars, find_java
from tests.support.zookeeper import KafkaliteZooKeeper, ZooKeeper, without_zookeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
ECOSYSTEM = "Java"

SCRIPT = """\
create /z data
set /z two
get -s /z
create -e /z/e x
create -s /z/s- y
create -c /z/box
ls /z
ls -R /z
getAcl /z
addauth digest me:pw
whoami
setAcl /z auth::cdrwa
getAcl -s /z
getEphemerals
getAllChildrenNumber /z
addWatch -m PERSISTENT /z
set /z three
removewatches /z
stat /z
sync /
set -v 7 /z four
create -t 1000 /z/t
delete /nothere
delete /z
deleteall /z
ls /z
quit
"""
_PROMPT = re.compile(r"\[zk: [^]]*\] ")
_CHANGING = re.compile(r"([cmp]Zxid = \S+|[cm]time = .*|zxid: \S+|127\.0\.0\.1:\d+|ephemeralOwner = 0x[0-9a-f]{3,})")


def said(server: ZooKeeper) -> list[str]:
    """The shell's lines without times and transactions, and without those of its loggers. Without its prompts as well:
    another thread prints the events, before or after the next one."""
    java = find_java()
    assert java is not None
    command = [java, "-cp", f"{find_jars()}/*", "org.apache.zookeeper.ZooKeeperMain", "-server", server.connect]
    done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=120, check=False)
    lines = [_CHANGING.sub("", line) for line in _PROMPT.sub("", done.stdout).splitlines()]
    return sorted(
        line for line in lines if line.strip() and "WatchedEvent state:" not in line and " main ERROR " not in line
    )


@pytest.mark.skipif(without_zookeeper() is not None, reason=f"{without_zookeeper()}")
def test_the_shell_prints_the_same(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "apache", properties={"zookeeper.extendedTypesEnabled": "false"}) as theirs:
        expected = said(theirs)
    with KafkaliteZooKeeper(tmp_path / "kafkalite") as ours:
        assert said(ours) == expected
    assert any("'digest,'me:" in line for line in expected)
