"""One Spark session for all tests of a run; a test asks for it with the fixture `spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.places import ROOT


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


@pytest.hookimpl(tryfirst=True)  # pytest-xdist's own looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One JVM for all of them, in a parallel run, too, which begins with them: they take the longest."""
    with_spark = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    for item in with_spark:
        item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=set(with_spark).__contains__, reverse=True)
