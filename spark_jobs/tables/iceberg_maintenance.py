"""Maintenance that pyiceberg has no procedure for: small files written together, and files that no snapshot names.

Snapshots are expired by pyiceberg itself, which leaves their files. Files are looked for below the `data` and
`metadata` of the table's own location, and only those go that are older than the time that snapshots are kept for: a
run that is writing has not committed its files yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from spark_jobs.load_task import Written
from spark_jobs.partitioned_files import ParquetFile
from spark_jobs.tables.directory import RunDirectory, local_path

SMALL_BYTES = 32 << 20
FILES_MIN = 4
"""So many small files of a partition are worth writing together."""
_TOGETHER_BYTES = 128 << 20
_FIELD_ID = b"PARQUET:field_id"


class Compacted(NamedTuple):
    """New files in the directory of a run, and the data files that they replace."""

    written: Written
    replaced: list[Any]


def compact(table: Any, schema: pa.Schema, directory: RunDirectory, compression: str) -> Compacted:
    """The small files of each partition, written together with the columns of `schema`, which have field ids."""
    new, replaced = [], []
    for number, files in enumerate(_groups(table)):
        target = ParquetFile(directory.path, f"part-{number:05d}.{compression}.parquet", (), schema, compression)
        for file in files:
            system, path = pafs.FileSystem.from_uri(local_path(file.file_path))
            with system.open_input_file(path) as source:
                for rows in _rows(pq.ParquetFile(source), schema):
                    target.write(rows)
        new.append(target.close())
        replaced += files
    return Compacted(Written(directory.path, new, {}), replaced)


def _groups(table: Any) -> Iterator[list[Any]]:
    """Data files of one partition that are worth one file together."""
    small: dict[tuple[object, ...], list[Any]] = {}
    for task in table.scan().plan_files():
        file = task.file
        is_plain = not task.delete_files and file.spec_id == table.spec().spec_id
        if is_plain and file.file_size_in_bytes < SMALL_BYTES:
            small.setdefault(tuple(file.partition), []).append(file)
    for files in small.values():
        if len(files) < FILES_MIN:
            continue
        group, size_bytes = [], 0
        for file in files:
            group.append(file)
            size_bytes += file.file_size_in_bytes
            if size_bytes >= _TOGETHER_BYTES:
                yield group
                group, size_bytes = [], 0
        if len(group) > 1:
            yield group


def _rows(file: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """The row groups of a file, its columns found by their field ids; by their names in a file without."""
    ids = {_id_of(field): field.name for field in file.schema_arrow}
    for number in range(file.num_row_groups):
        group = file.read_row_group(number)
        columns = []
        for field in schema:
            name = ids.get(_id_of(field), field.name)
            has = name in group.schema.names
            columns.append(group.column(name).cast(field.type) if has else pa.nulls(len(group), field.type))
        yield pa.Table.from_arrays(columns, schema=schema)


def _id_of(field: pa.Field) -> bytes:
    return bytes((field.metadata or {}).get(_FIELD_ID, field.name.encode()))


def remove_unnamed(table: Any, before: datetime) -> int:
    """Removes the files older than `before` that no snapshot of the table names. Returns how many."""
    named = set(map(local_path, _named(table)))
    removed = 0
    for folder in ("data", "metadata"):
        system, path = pafs.FileSystem.from_uri(f"{local_path(table.location())}/{folder}")
        prefix = local_path(table.location()).removesuffix(path.removesuffix(f"/{folder}"))
        for info in system.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True)):
            is_file = info.type == pafs.FileType.File
            if is_file and prefix + info.path not in named and info.mtime < before:
                system.delete_file(info.path)
                removed += 1
                if isinstance(system, pafs.LocalFileSystem):
                    _remove_empty(os.path.dirname(info.path), path)
    return removed


def _named(table: Any) -> Iterable[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for statistics in table.metadata.statistics:
        yield statistics.statistics_path
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


def _remove_empty(directory: str, top: str) -> None:
    """Removes a directory and those above it, as long as they are empty and below `top`."""
    with suppress(OSError):
        while directory != top:
            os.rmdir(directory)
            directory = os.path.dirname(directory)
