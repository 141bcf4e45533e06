"""Python processes that Spark keeps for the next query or task, made cheap to use again.

Before each use Spark calls `importlib.invalidate_caches()`, at which Python up to 3.12 reads the directory of
`pyspark.zip` again, once for each package in it: 45 ms. After each use Spark calls `gc.collect()`, which walks through
all that pyspark, numpy and pyarrow consist of: 24 ms. A query passes through two planning processes and each task
through a worker, so a query of one record took 0.2 s of CPU for this, and one of 15 tasks 1 s.
Source: pyspark.daemon, pyspark.worker_util.setup_spark_files; zipimport.zipimporter.invalidate_caches.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from functools import cache


def make_reuse_cheap() -> None:
    """Call after the imports of the process. Does nothing outside of a process that Spark reuses.

    Spark's own archives, which do not change while it runs, are not read again; others are. Objects of now are left out
    of garbage collections to come.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        for importer in sys.path_importer_cache.values():
            if isinstance(importer, zipimport.zipimporter) and _is_spark_s(importer.archive):
                vars(importer)["invalidate_caches"] = _nothing_changes
        _freeze()


def _is_spark_s(archive: str) -> bool:
    name = os.path.basename(archive)
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


def _nothing_changes() -> None:
    pass


@cache
def _freeze() -> None:
    """Once for a process: what a later use leaves behind shall be collected."""
    gc.freeze()
