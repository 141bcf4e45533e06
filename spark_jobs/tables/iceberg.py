"""Iceberg tables of any catalog that pyiceberg knows: REST, SQL (also Iceberg's JDBC catalog), Hive, Glue.

The offsets behind the data are in the summary of the snapshot that adds it, under `kafkalite.offsets.NAME`, in the form
of Spark's options. Each commit of ours carries those of other names along, and snapshots of other writers may come
between: the nearest ancestor with offsets has all of them. A table with rows, and without offsets, is refused: its
snapshots with them were expired, or it is another table.

Data files have the field ids of the table's schema. The catalog's compare-and-swap decides between two loads.
Source: the Iceberg specification (snapshots, column projection); pyiceberg.table.update.snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from spark_jobs.load_output import as_json, parse_offsets
from spark_jobs.load_task import Written
from spark_jobs.partitioned_files import Layout
from spark_jobs.tables.directory import RunDirectory, local_path
from spark_jobs.tables.evolution import missing_fields
from spark_jobs.tables.iceberg_maintenance import compact, remove_unnamed

OFFSETS = "kafkalite.offsets."
_TRIES = 20
_PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true"}  # else each commit leaves one file for ever
_INSTALL = "Iceberg needs pyiceberg: pip install 'kafkalite[tables]'"


class IcebergTable:
    """One table for one load or view of the `name`; created with the first rows if it is not there."""

    def __init__(
        self, path: str, properties: Mapping[str, str], name: str, partitioning: Sequence[str], into_existing: bool
    ) -> None:
        """`path` is CATALOG.NAMESPACE.TABLE; the catalog's own configuration is pyiceberg's, `properties` go before
        it. Raises ConfigError."""
        self.path = path
        self._catalog, self._identifier = _open_catalog(path, properties)
        self._name = name
        self._partitioning = tuple(partitioning)
        self._into_existing = into_existing
        self._table = self._load()
        self._directory: RunDirectory | None = None
        self._data_files: dict[str, Any] = {}
        self._begun: dict[TopicPartition, int] = {}  # the offsets when this run began

    def offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._begun = self._progress()
        return {key: self._begun[key] for key in partitions if key in self._begun}

    def layout(self, schema: pa.Schema) -> Layout:
        if self._table is None:
            self._table = self._create(schema)
        self._evolve(schema)
        there = {field.name: field for field in self._table.schema().fields}
        of_files = pa.schema([_with_ids(field, there[field.name]) for field in schema])
        return Layout(of_files, tuple(map(self._divided_by, self._table.spec().fields)), True)

    def begin(self) -> str:
        self._directory = RunDirectory(self._table.location())
        return self._directory.path

    def files(self) -> dict[TopicPartition, list[str]]:
        """The data files of each partition of a topic, by their paths or URIs."""
        found: dict[TopicPartition, list[str]] = {}
        self._data_files = {}
        for task in self._table.scan().plan_files():
            if task.delete_files:
                raise ConfigError(f"{self.path} has deletes of another writer, which a merge cannot read; compact it")
            path = local_path(task.file.file_path)
            self._data_files[path] = task.file
            values = dict(zip(self._partitioning, task.file.partition, strict=True))
            found.setdefault((values["topic"], values["partition"]), []).append(path)
        return found

    def commit(
        self, written: Sequence[Written], offsets: Mapping[TopicPartition, int], replaced: Sequence[str] = ()
    ) -> str:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        assert self._directory is not None
        self._directory.sync()
        io, metadata = self._table.io, self._table.metadata
        files = [parquet_file_to_data_file(io, metadata, path) for path in self._paths(written)]
        for _ in range(1 if replaced else _TRIES):  # what is replaced may have changed with the table
            if self._table is None or self._progress() != self._begun:  # also of a table that was made meanwhile
                break
            try:
                self._begun = self._add_snapshot(files, [self._data_files[path] for path in replaced], offsets)
                self._directory = None
                return f"snapshot {self._table.current_snapshot().snapshot_id} of {self.path}"
            except CommitFailedException:
                self._table = self._load()
        raise ConfigError(f"another writer has committed to {self.path} meanwhile; run this one again")

    def _add_snapshot(
        self, files: list[Any], replaced: list[Any], offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns all offsets of this name, as they are then."""
        offsets = {**self._begun, **offsets}
        with self._transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=self._summary(offsets))
            with update.overwrite() if replaced else update.fast_append() as snapshot:
                for file in replaced:
                    snapshot.delete_data_file(file)
                for file in files:
                    snapshot.append_data_file(file)
        return offsets

    def maintain(self, retain_ms: int) -> None:
        """Writes small files together, expires snapshots older than `retain_ms`, and removes files that no snapshot
        names. Raises ConfigError."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if self._table is None or self._table.current_snapshot() is None:
            return
        self._begun = self._progress()
        self._directory = RunDirectory(self._table.location())
        compacted = compact(self._table, schema_to_pyarrow(self._table.schema()), self._directory, "zstd")
        if compacted.replaced:
            self._data_files = {file.file_path: file for file in compacted.replaced}
            self.commit([compacted.written], {}, list(self._data_files))
        self.close()
        before = datetime.now(UTC) - timedelta(milliseconds=retain_ms)
        self._table.maintenance.expire_snapshots().older_than(before).commit()
        remove_unnamed(self._load(), before)

    def close(self) -> None:
        """Removes the files of a run that has not been committed."""
        if self._directory is not None:
            self._directory.discard()
            self._directory = None

    def _paths(self, written: Sequence[Written]) -> Iterator[str]:
        for attempt in written:
            assert self._directory is not None
            directory = self._directory.relative(attempt.directory)
            for file in attempt.files:
                yield f"{self._table.location()}/{directory}/{file.path}"

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A transaction that is not tried again by itself: another load may have committed the same offsets."""
        table = self._table
        once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": once})
        with table.transaction() as transaction:
            yield transaction

    def _load(self) -> Any:
        return _load_table(self._catalog, self._identifier)

    def _create(self, schema: pa.Schema) -> Any:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.transforms import DayTransform, IdentityTransform

        for name, column in (("topic", "topic"), ("partition", "partition"), ("day", "timestamp")):
            if name in self._partitioning and column not in schema.names:
                raise ConfigError(f"--partition-by {name} needs the column {column}")
        try:
            self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
            creation = self._catalog.create_table_transaction(self._identifier, schema, properties=_PROPERTIES)
            with creation as transaction, transaction.update_spec() as spec:
                for name in self._partitioning:
                    if name == "day":
                        spec.add_field("timestamp", DayTransform(), "timestamp_day")
                    else:
                        spec.add_field(name, IdentityTransform(), name)
        except (TableAlreadyExistsError, CommitFailedException):  # by another load, meanwhile
            pass
        return self._catalog.load_table(self._identifier)

    def _progress(self) -> dict[TopicPartition, int]:
        """All offsets of this name. Raises ConfigError where there are rows without any."""
        text = self._known().get(OFFSETS + self._name)
        if text is not None:
            return parse_offsets(json.loads(text))
        if self._table is not None and self._table.current_snapshot() is not None and not self._into_existing:
            raise ConfigError(
                f"{self.path} has rows, and no offsets of a load with the name {self._name!r}: it is another table, or "
                "its snapshots have expired. Load into a new table, or give --into-existing to begin at --from beside "
                "what is there"
            )
        return {}

    def _known(self) -> dict[str, str]:
        """The offsets of all names, as they are in the nearest snapshot that has some."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        while snapshot is not None:
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            found = {key: text for key, text in summary.items() if key.startswith(OFFSETS)}
            if found:
                return found
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return {}

    def _summary(self, offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
        text = json.dumps(as_json(offsets), separators=(",", ":"))
        return {**self._known(), OFFSETS + self._name: text}

    def _evolve(self, schema: pa.Schema) -> None:
        """Adds the fields within structs that the table lacks. Raises ConfigError where the schema does not fit."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        fields = self._table.schema().fields
        required = {field.name for field in fields if field.required}
        if not missing_fields(self.path, schema_to_pyarrow(self._table.schema()), schema, required):
            return
        try:
            with self._table.update_schema() as update:
                update.union_by_name(schema)
        except CommitFailedException:
            raise ConfigError(f"another writer has changed {self.path} meanwhile; run this one again") from None

    def _divided_by(self, field: Any) -> str:
        source, transform = self._table.schema().find_column_name(field.source_id), str(field.transform)
        if (source, transform) == ("timestamp", "day"):
            return "day"
        if source in ("topic", "partition") and transform == "identity":
            return str(source)
        raise ConfigError(f"{self.path} is partitioned by {transform}({source}), which load cannot write")


def load_iceberg(path: str, properties: Mapping[str, str]) -> Any:
    """The table CATALOG.NAMESPACE.TABLE as pyiceberg has it, None if there is none. Raises ConfigError."""
    return _load_table(*_open_catalog(path, properties))


def _open_catalog(path: str, properties: Mapping[str, str]) -> tuple[Any, str]:
    """The catalog of a table, and the table's name there."""
    name, _, identifier = path.partition(".")
    if "." not in identifier:
        raise ConfigError(f"{path} must be CATALOG.NAMESPACE.TABLE")
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise ConfigError(_INSTALL) from None
    try:
        return load_catalog(name, **properties), identifier
    except Exception as fault:  # of a library for each kind of catalog
        raise ConfigError(f"the catalog {name!r} cannot be used: {fault}") from None


def _load_table(catalog: Any, identifier: str) -> Any:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


def _with_ids(field: pa.Field, known: Any) -> pa.Field:
    """An Arrow field, and those within it, with the ids of an Iceberg field."""
    kind, of = field.type, known.field_type
    if pa.types.is_map(kind):
        kind = pa.map_(_with_ids(kind.key_field, of.key_field), _with_ids(kind.item_field, of.value_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, of.element_field))
    elif pa.types.is_struct(kind):
        names = {one.name: one for one in of.fields}
        kind = pa.struct([_with_ids(one, names[one.name]) for one in kind])
    return pa.field(field.name, kind, field.nullable, {"PARQUET:field_id": str(known.field_id)})
