"""The example that loads a topic on a Spark cluster of two workers and draws a plot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("java") is None, reason="needs java on the PATH")
def test_two_workers_load_a_topic_and_the_example_ends_in_a_plot(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    command = [sys.executable, "-m", "examples.load_on_a_cluster", str(picture)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 executors read them" in done.stdout
    assert "load: run 1: 4 partitions, 200,000 offsets" in done.stderr
    assert "in 168 hours are drawn in" in done.stdout
    bars = ET.parse(picture).getroot().findall(".//{http://www.w3.org/2000/svg}g[@fill='#2f7f4f']/*")
    assert len(bars) == 168
