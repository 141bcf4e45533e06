"""Python processes that Spark uses again: what they save, and that modules that come later are still found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

STORY = """
import gc, importlib, os, sys, zipfile
from kafkalite.spark.worker_process import make_reuse_cheap

def archive(name, *modules):
    name = os.path.abspath(name)
    with zipfile.ZipFile(name, "w") as file:
        for module in modules:
            file.writestr(module + ".py", "")
    if name not in sys.path:
        sys.path.insert(0, name)

def found(*modules):
    importlib.invalidate_caches()
    return [module for module in modules if importlib.util.find_spec(module)]

archive("pyspark.zip", "of_spark")
archive("user.zip", "of_user")
before = found("of_spark", "of_user")
make_reuse_cheap()
archive("pyspark.zip", "of_spark", "later_of_spark")
archive("user.zip", "of_user", "later_of_user")
archive("later.zip", "in_a_later_archive")
after = found("of_spark", "later_of_spark", "later_of_user", "in_a_later_archive")
frozen = gc.get_freeze_count()
make_reuse_cheap()
print(before, after, frozen > 1000, gc.get_freeze_count() <= frozen)
"""


def told(directory: Path, **environment: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    variables |= {"PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", STORY]
    done = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_spark_s_own_archives_are_not_read_again_and_others_are(tmp_path: Path) -> None:
    assert told(tmp_path, SPARK_REUSE_WORKER="1") == (
        "['of_spark', 'of_user'] ['of_spark', 'later_of_user', 'in_a_later_archive'] True True"
    )


def test_other_processes_stay_as_they_are(tmp_path: Path) -> None:
    everything = ["of_spark", "later_of_spark", "later_of_user", "in_a_later_archive"]
    assert told(tmp_path) == f"['of_spark', 'of_user'] {everything} False True"
