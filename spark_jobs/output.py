"""Outputs of load: a directory of Parquet whose runs appear by a rename, or a table whose snapshots a library commits.

Data and the offsets behind it become visible together or not at all, so a load that is killed at any moment and run
again leaves no record out and none twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from kafkalite.common.names import TopicPartition
from spark_jobs.load_task import Written
from spark_jobs.partitioned_files import Layout


class Output(Protocol):
    """Where one run goes. `path` is its name in messages."""

    path: str

    def offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets behind the data of the partitions that have been loaded. Raises ConfigError."""

    def layout(self, schema: pa.Schema) -> Layout:
        """The layout of files with the columns of the schema; fields within its structs that the output lacks are
        added. Raises ConfigError if earlier rows are of another schema."""

    def begin(self) -> str:
        """Returns the directory below which the attempts of tasks write."""

    def commit(self, written: Sequence[Written], offsets: Mapping[TopicPartition, int]) -> str:
        """Makes files and offsets visible. Returns the name of the run. Raises ConfigError if another load has
        committed meanwhile."""
