"""Comparison of a table's columns with those that a run writes: what must be added, what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafkalite.common.errors import ConfigError


def missing_fields(path: str, there: pa.Schema, ours: pa.Schema, required: set[str]) -> list[str]:
    """The fields within structs of ours that the table at `path` lacks, by their dotted names. Raises ConfigError for
    columns that the table lacks or requires, and for fields of another type."""
    known = {field.name: field for field in there}
    for name in ours.names:
        if name not in known:
            raise ConfigError(f"the rows in {path} are of another schema: it has no column {name!r}")
    for name in sorted(required.difference(ours.names)):
        raise ConfigError(f"the rows in {path} are of another schema: it has a required column {name!r}")
    return [name for field in ours for name in _compare(path, field.name, known[field.name].type, field.type)]


def _compare(path: str, name: str, there: pa.DataType, ours: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(there) and pa.types.is_struct(ours):
        known = {field.name: field.type for field in there}
        for field in ours:
            below = f"{name}.{field.name}"
            if field.name in known:
                yield from _compare(path, below, known[field.name], field.type)
            else:
                yield below
    elif _is_list(there) and _is_list(ours):
        yield from _compare(path, f"{name}.element", there.value_type, ours.value_type)
    elif pa.types.is_map(there) and pa.types.is_map(ours):
        yield from _compare(path, f"{name}.value", there.item_type, ours.item_type)
    elif _plain(there) != _plain(ours):
        raise ConfigError(f"{name!r} in {path} is {there}, and not {ours}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without the widths of offsets, which libraries choose as they like."""
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
