"""The format of values: a kind and a schema, which tell the column's type and how a value is decoded.

A prefix of Confluent's Schema Registry (0, then the schema's id) is stripped. With a registry the id of a record names
the schema that it was written with, and Avro resolves it to the schema of the column; Protobuf and JSON do without.
Source: Confluent's wire format; the registry's GET /schemas/ids/ID.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalite.common.errors import ConfigError

KINDS = ("json", "avro", "protobuf")
PREFIX_BYTES = 5
_ANSWER_BYTES_MAX = 8 << 20

Decode = Callable[[bytes], Any]
"""A value as Arrow takes it. Raises Exception, whose text is the reason."""


class ValueFormat(NamedTuple):
    """`schema` is text: JSON Schema or Avro's; for Protobuf base64 of a FileDescriptorSet with `message`. `registry` is
    the URL that writers' schemas are read from, or empty."""

    kind: str
    schema: str
    message: str = ""
    registry: str = ""

    def arrow_type(self) -> pa.DataType:
        """The type of the column. Raises ConfigError that names the field which has none."""
        return self._module().arrow_type(self.schema, self.message)

    def decoder(self) -> Decode:
        return self._module().decoder(self)  # type: ignore[no-any-return]

    def _module(self) -> Any:
        try:
            if self.kind == "avro":
                from spark_jobs.values import avro

                return avro
            if self.kind == "protobuf":
                from spark_jobs.values import protobuf

                return protobuf
        except ImportError:
            raise ConfigError(f"--value {self.kind} needs more packages: pip install 'kafkalite[tables]'") from None
        from spark_jobs.values import json_schema

        return json_schema


def schema_of_id(registry: str, number: int) -> str:
    """The text of a schema. Raises ConfigError."""
    url = f"{registry.rstrip('/')}/schemas/ids/{number}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return str(json.loads(response.read(_ANSWER_BYTES_MAX))["schema"])
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise ConfigError(f"the registry does not tell schema {number} ({url}: {fault})") from None


def split_prefix(data: bytes) -> tuple[int | None, bytes]:
    """The id of a registry's prefix, None without one, and the rest."""
    if len(data) >= PREFIX_BYTES and data[0] == 0:
        return int.from_bytes(data[1:PREFIX_BYTES], "big"), data[PREFIX_BYTES:]
    return None, data
