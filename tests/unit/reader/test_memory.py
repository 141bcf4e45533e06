"""The memory of a task: at most three times the batch size, whatever the segment is and unpacks to.

Arrow and numpy take memory of their own, so the peak is that of a process: what the kernel saw resident, above what it
was before the first byte was read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.record.batch import NewRecord, build_batch, stamp

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BATCH_BYTES = 32 << 20
READ = """
import gzip, sys, lz4.frame, zstandard
import pyarrow as pa
from kafkalite.reader.chunk_reader import COLUMNS
from kafkalite.reader.chunk_reader import read_split
from kafkalite.reader.planning.split import ReadSettings
from kafkalite.reader.planning.split import Chunk

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

with open(sys.argv[1], "rb") as file:
    data = file.read(61)
    size = file.seek(0, 2)
schema = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
chunk = Chunk("orders", 0, sys.argv[1], 0, size, data, 0, 1 << 60)
batch_bytes = int(sys.argv[2])
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
before = peak()
rows = largest = 0
for batch in read_split((chunk,), schema, ReadSettings(batch_bytes)):
    rows += batch.num_rows
    largest = max(largest, batch.nbytes)
print(rows, largest, peak() - before)
"""

SHAPES = {
    "large segment": ([NewRecord(b"key", bytes(range(250)) * 4)] * 500, 0, 120),
    "tiny records": ([NewRecord(None, None)] * 100_000, 0, 20),
    "tiny records, compressed": ([NewRecord(None, None)] * 150_000, 4, 20),
    "one batch that unpacks to much": ([NewRecord(b"key", bytes(100_000))] * 600, 4, 2),
    "many headers": ([NewRecord(b"k", b"v", tuple((f"h{i}", b"x") for i in range(20)))] * 10_000, 3, 20),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_takes_three_times_the_batch_size_at_most(tmp_path: Path, shape: str) -> None:
    records, codec, count = SHAPES[shape]
    batch = build_batch(records, codec=codec)
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        for i in range(count):
            stamp(batch, i * len(records), 0)
            file.write(batch)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(BATCH_BYTES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, largest, growth = map(int, done.stdout.split())
    assert rows == len(records) * count
    assert largest <= BATCH_BYTES
    assert growth <= 3 * BATCH_BYTES
