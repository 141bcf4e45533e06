"""A Spark standalone cluster on this machine: a master and workers from the jars of the PySpark wheel.

    with spark_cluster(workers=2) as master:      # spark://127.0.0.1:41234
        SparkSession.builder.master(master)

Any free ports; processes end with the block. On several machines the same two classes are started on each of them, and
all see the data directory under the same path.
Source: org.apache.spark.deploy.master.Master, org.apache.spark.deploy.worker.Worker.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@contextlib.contextmanager
def spark_cluster(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """The address of the master, when all workers have registered. Raises RuntimeError if a process ends instead."""
    place = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, place, ignore_errors=True)
        log = undo.enter_context(_process(place / "master", _MASTER, "--port", "0"))
        master = _wait(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            directory = place / f"worker-{number}"
            arguments = ("--cores", str(cores), "--memory", memory, "--work-dir", str(directory), master)
            log = undo.enter_context(_process(directory, _WORKER, "--port", "0", *arguments))
            _wait(log, r"(Successfully registered) with master")
        yield master


@contextlib.contextmanager
def _process(directory: Path, kind: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    directory.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent
    command = [
        "java",
        "-cp",
        str(home / "jars" / "*"),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-Dspark.master.rest.enabled=false",
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # a worker looks for it in a directory that only Spark's own distribution has
        "SPARK_SCALA_VERSION": re.findall(r"spark-core_([\d.]+)-", " ".join(os.listdir(home / "jars")))[0],
        "PYSPARK_PYTHON": sys.executable,
    }
    command += [kind, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
    process = subprocess.Popen(
        command, env=environment, cwd=directory, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()  # a worker ends its executors
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[str], pattern: str) -> str:
    """The first group of the first line of the log that has the pattern; then the log is read on and forgotten."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(pattern, line):
            _drain(process)
            return found[1]
    raise RuntimeError(f"a process of the cluster ended with code {process.wait()}: {''.join(seen[-5:])}")


def _drain(process: subprocess.Popen[str]) -> None:
    """Read the log on, so that the process never waits for it to be read."""
    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()
