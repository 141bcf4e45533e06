"""Delta tables, by delta-rs: no JVM and no jar takes part in a commit.

The offset behind the data of a partition is the version of a transaction identifier, NAME/TOPIC-PARTITION, in the
commit that adds the data; NAME itself has the number of the run. Delta refuses a commit whose identifiers were changed
by another one meanwhile, and keeps the last version of each in its checkpoints. A table with rows, and without the
identifier NAME, is refused: it is another table.

Columns that the table is partitioned by are in its log and not in the files. `day` is the date of the timestamp in UTC.
Source: Delta Transaction Log Protocol (add file, transaction identifiers); deltalake's create_write_transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from spark_jobs.load_task import PARTITIONS, Written
from spark_jobs.partitioned_files import NO_VALUE, Layout, WrittenFile
from spark_jobs.tables.directory import RunDirectory, local_path
from spark_jobs.tables.evolution import missing_fields

_INSTALL = "Delta needs deltalake: pip install 'kafkalite[tables]'"
_TOGETHER_BYTES = 128 << 20
_DAY = pa.field("day", pa.date32())


class DeltaTable:
    """One table for one load or view of the `name`; created with the first rows if it is not there."""

    def __init__(self, path: str, name: str, partitioning: Sequence[str], into_existing: bool) -> None:
        """`path` is a directory or a URI. Raises ConfigError."""
        self.path = path
        self._location = local_path(path)
        self._name = name
        self._partitioning = tuple(partitioning)
        self._into_existing = into_existing
        self._table = load_delta(path)
        self._directory: RunDirectory | None = None
        self._adds: dict[str, Any] = {}
        self._number = 0  # of the last run, when this one began

    def offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        table = self._table
        if table is None:
            return {}
        self._number = table.transaction_version(self._name) or 0
        if not self._number and not self._into_existing and table.count():
            raise ConfigError(
                f"{self.path} has rows, and no offsets of a load with the name {self._name!r}: it is another table. "
                "Load into a new table, or give --into-existing to begin at --from beside what is there"
            )
        found = {key: table.transaction_version(self._identifier(key)) for key in partitions}
        return {key: offset for key, offset in found.items() if offset is not None}

    def layout(self, schema: pa.Schema) -> Layout:
        if self._table is None:
            self._table = self._create(schema)
        partitioning = tuple(self._divided_by())
        unknown = [name for name in partitioning if name not in PARTITIONS]
        if unknown:
            raise ConfigError(f"{self.path} is partitioned by {unknown[0]}, which load cannot write")
        self._evolve(schema)
        return Layout(pa.schema([field for field in schema if field.name not in partitioning]), partitioning, True)

    def begin(self) -> str:
        self._directory = RunDirectory(self._location)
        return self._directory.path

    def files(self) -> dict[TopicPartition, list[str]]:
        """The data files of each partition of a topic, by their paths or URIs."""
        if "deletionVectors" in (self._table.protocol().reader_features or ()):
            raise ConfigError(f"{self.path} has deletion vectors, which a merge cannot read")
        found: dict[TopicPartition, list[str]] = {}
        self._adds = {}
        for add in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
            path = f"{self._location}/{unquote(add['path'])}"
            self._adds[path] = add
            found.setdefault((add["partition.topic"], add["partition.partition"]), []).append(path)
        return found

    def commit(
        self, written: Sequence[Written], offsets: Mapping[TopicPartition, int], replaced: Sequence[str] = ()
    ) -> str:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        if (self._table.transaction_version(self._name) or 0) != self._number:  # the table was made or read anew
            raise self._refused("the offsets have changed")
        assert self._directory is not None
        self._directory.sync()
        ends = {self._name: self._number + 1, **{self._identifier(key): end for key, end in offsets.items()}}
        actions = [self._add(attempt, file) for attempt in written for file in attempt.files]
        actions += map(self._remove, replaced)
        identifiers = [Transaction(name, version) for name, version in ends.items()]
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._divided_by(),
                commit_properties=CommitProperties(app_transactions=identifiers),
            )
        except CommitFailedError as fault:
            raise self._refused(fault) from None
        self._directory = None
        self._table.update_incremental()
        self._number += 1
        return f"version {self._table.version()} of {self.path}"

    def maintain(self, retain_ms: int) -> None:
        """Writes small files together, and removes files that no version of the last `retain_ms` names."""
        if self._table is not None:
            self._table.optimize.compact(target_size=_TOGETHER_BYTES)
            hours = -(-retain_ms // 3_600_000)
            self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def close(self) -> None:
        """Removes the files of a run that has not been committed."""
        if self._directory is not None:
            self._directory.discard()
            self._directory = None

    def _refused(self, reason: object) -> ConfigError:
        return ConfigError(f"another writer has committed to {self.path} meanwhile; run this one again ({reason})")

    def _identifier(self, partition: TopicPartition) -> str:
        return f"{self._name}/{partition[0]}-{partition[1]}"

    def _add(self, attempt: Written, file: WrittenFile) -> Any:
        from deltalake.transaction import AddAction

        assert self._directory is not None
        path = f"{self._directory.relative(attempt.directory)}/{file.path}"
        values = {name: None if value == NO_VALUE else value for name, value in file.partition}
        return AddAction(path, file.size_bytes, values, int(time.time() * 1000), True, file.statistics)

    def _remove(self, path: str) -> Any:
        from deltalake.transaction import RemoveAction

        add = self._adds[path]
        of = {name: add[f"partition.{name}"] for name in self._divided_by()}
        values = {name: None if value is None else str(value) for name, value in of.items()}
        return RemoveAction(add["path"], True, int(time.time() * 1000), add["size_bytes"], values)

    def _divided_by(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._table.metadata().partition_columns)

    def _create(self, schema: pa.Schema) -> Any:
        from deltalake import DeltaTable as Table
        from deltalake import Schema

        for name in self._partitioning:
            column = "timestamp" if name == "day" else name
            if column not in schema.names:
                raise ConfigError(f"--partition-by {name} needs the column {column}")
        if "day" in self._partitioning:
            schema = schema.append(_DAY)
        return Table.create(self._location, Schema.from_arrow(schema), "ignore", list(self._partitioning))

    def _evolve(self, schema: pa.Schema) -> None:
        """Adds the fields within structs that the table lacks. Raises ConfigError where the schema does not fit."""
        from deltalake import write_deltalake

        required = {field.name for field in self._table.schema().fields if not field.nullable}
        if missing_fields(self.path, pa.schema(self._table.schema()), schema, required):
            if "day" in self._divided_by():
                schema = schema.append(_DAY)
            write_deltalake(self._table, schema.empty_table(), mode="append", schema_mode="merge")
            self._table.update_incremental()


def load_delta(path: str) -> Any:
    """The table as deltalake has it, None if there is none. Raises ConfigError."""
    try:
        import deltalake
    except ImportError:
        raise ConfigError(_INSTALL) from None
    try:
        return deltalake.DeltaTable(local_path(path))
    except deltalake.exceptions.TableNotFoundError:
        return None
    except deltalake.exceptions.DeltaError as fault:
        raise ConfigError(f"{path}: {fault}") from None
