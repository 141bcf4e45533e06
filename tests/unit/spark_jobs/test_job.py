"""The line that a job ends with when Spark fails: texts as Spark 4.0 and 4.3 have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from spark_jobs import load as load_job
from spark_jobs.job import fault_of

OF_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/a/pyspark/worker.py", line 1, in main
    process()
    ^^^^^^^^^
%s
"""
OF_JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/a/pyspark/worker.py", line 1, in main
    process()
%s

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:2935)
"""  # noqa: E501
CRASHED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize("text", [OF_PYTHON, OF_JAVA])
def test_the_fault_of_a_worker_is_the_last_line_of_its_traceback(text: str) -> None:
    assert fault_of(text % "kafkalite.common.errors.StorageError: a.log: gone") == "a.log: gone"
    full = "OSError: [Errno 28] No space left on device"
    assert fault_of(text % full) == full
    assert fault_of(text % "AssertionError") == "AssertionError"
    first = OF_PYTHON % "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n"
    assert fault_of(first + OF_PYTHON % full) == full


def test_without_a_traceback_it_is_the_message_of_spark() -> None:
    found = "org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly (crashed)."
    assert fault_of(CRASHED) == found
    assert fault_of("[PATH_NOT_FOUND] Path does not exist: file:/lake. SQLSTATE: 42K03") == (
        "[PATH_NOT_FOUND] Path does not exist: file:/lake. SQLSTATE: 42K03"
    )
    assert fault_of("") == "Spark failed"


def test_a_worker_that_dies_and_an_output_that_cannot_be_made_are_said_in_one_line(
    spark: Any, topics: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the session is that of all tests
    topics.write([NewRecord(b"k", b"v", (), 1_700_000_000_000)])

    def dies(task: Any) -> Any:
        import os

        os._exit(1)

    (tmp_path / "file").touch()
    arguments = ["--data-dir", str(topics.path), "--topic", "orders", "--output"]
    assert load_job.main([*arguments, str(tmp_path / "file" / "lake")]) == 1
    assert str(tmp_path / "file" / "lake") in capsys.readouterr().err.strip().splitlines()[-1]
    monkeypatch.setattr(load_job, "write_split", dies)
    assert load_job.main([*arguments, str(tmp_path / "lake")]) == 1
    assert "Python worker exited unexpectedly" in capsys.readouterr().err.strip().splitlines()[-1]
