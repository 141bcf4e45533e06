"""Processes that a killed run of the tests leaves behind: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.process_reaper import MARK
from tests.support.wait import until

RUN = """
import os, signal, subprocess, sys
from tests.support.process_reaper import none_outlive_this_process
none_outlive_this_process()
child = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
process = subprocess.Popen(child, start_new_session=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
process.stdout.readline()
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here")
def test_what_a_killed_run_began_is_killed() -> None:
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    place = Path(f"/proc/{int(done.stdout)}/cmdline")
    until(lambda: not place.exists() or b"here" not in place.read_bytes(), "the child to be killed")
