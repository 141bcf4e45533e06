"""A job with --every: new records are in the table by and by, and SIGTERM ends it after a commit."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from pathlib import Path

import pytest

from kafkalite.record.batch import NewRecord
from tests.support.lake import read_table, table_options
from tests.support.segment_writer import Topics
from tests.system.spark.killed_job import LIMIT_S, kill, start

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables': ./dev setup")
pytest.importorskip("deltalake", reason="needs the extra 'tables': ./dev setup")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("job", ["load", "latest"])
def test_sigterm_ends_a_job_without_end_after_a_commit(tmp_path: Path, job: str, kind: str) -> None:
    topics = Topics(tmp_path / "data")
    words = ["--data-dir", topics.path, "--topic", "orders", *table_options(kind, tmp_path)]
    schedule = ["--every", "200ms", "--maintain-every", "1s", "--metrics", "127.0.0.1:0"]
    topics.write([NewRecord(b"k0", b"0")])
    process = start(f"spark_jobs.{job}", [*words, *schedule], tmp_path)
    watchdog = threading.Timer(LIMIT_S, kill, [process])
    watchdog.start()
    try:
        assert process.stdout is not None
        written, lines, address = 1, [], ""
        for line in process.stdout:
            lines.append(line)
            if line.startswith("metrics are on "):
                address = line.split()[-1]
            if "rows in" not in line:
                continue
            if written == 4:
                with urllib.request.urlopen(address) as response:
                    assert "kafkalite_job_rows_total 4\n" in response.read().decode()
                os.kill(process.pid, signal.SIGTERM)
            else:
                topics.write([NewRecord(b"k%d" % written, b"%d" % written)], base_offset=written)
                written += 1
        assert process.wait() == 0 and lines[-1] == f"{job}: ended after a commit\n", "".join(lines)
    finally:
        watchdog.cancel()
        kill(process)
    assert sorted(read_table(kind, tmp_path)["offset"].to_pylist()) == [0, 1, 2, 3]
