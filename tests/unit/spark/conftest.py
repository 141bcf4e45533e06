"""One Spark session for the room, and a data directory to write segments into."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord, build_batch, parse_header
from tests.support.places import ROOT


class Topics:
    """Segments as a broker leaves them, without a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.options = {"path": str(path)}

    def directory(self, topic: str = "orders", partition: int = 0) -> Path:
        directory = self.path / f"{topic}-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def segment(self, base_offset: int = 0, topic: str = "orders", partition: int = 0) -> Path:
        return self.directory(topic, partition) / f"{base_offset:020d}.log"

    def write(
        self,
        *batches: list[NewRecord],
        base_offset: int = 0,
        topic: str = "orders",
        partition: int = 0,
        index: bool = True,
        padding_bytes: int = 0,
        **how: Any,
    ) -> int:
        """A segment of one batch per list, with an index entry for each but the first. Returns its end offset."""
        data = b""
        entries = b""
        offset = base_offset
        for rows in batches:
            batch = build_batch(rows, base_offset=offset, **how)
            last_offset = parse_header(batch).last_offset
            if data:
                entries += struct.pack(">ii", last_offset - base_offset, len(data))
            data += batch
            offset = last_offset + 1
        path = self.segment(base_offset, topic, partition)
        path.write_bytes(data)
        if index:
            path.with_suffix(".index").write_bytes(entries + bytes(padding_bytes))
        return offset


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
    root = str(ROOT)
    with pytest.MonkeyPatch.context() as patch:
        # the workers are this Python, and find this tree whether it is installed or not
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))
        builder = sql.SparkSession.builder.master("local[2]").appName("kafkalite tests")
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        # a JVM for small queries: it starts in half the time
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))  # one JVM for all of them, in a parallel run too
