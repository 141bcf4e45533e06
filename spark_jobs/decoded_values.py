"""Decoded values of a load: the options that name their schema, and the table of dead letters beside the table.

Two tables have two commits. That of the dead letters comes first, with the offsets behind it; a run that ends between
the two is read again from the offsets of the table, and of its dead letters those before their own offsets are left
out. So each row is in one of the two, once.
"""

from __future__ import annotations

import argparse
import base64
import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from spark_jobs.decoding import DEAD_SCHEMA, DeadLetters
from spark_jobs.load_task import Written
from spark_jobs.output import Output
from spark_jobs.partitioned_files import Layout
from spark_jobs.tables.options import TABLE_FORMATS, open_table
from spark_jobs.values.value_format import KINDS, ValueFormat, schema_of_id

SUFFIX = "_dead_letters"


class Values(NamedTuple):
    """The format of the values, and the table that undecodable rows go into."""

    format: ValueFormat
    dead: Output

    def layout(self, output: Output, schema: pa.Schema) -> Layout:
        """The layout of the table, with a typed column `value`. Raises ConfigError."""
        at = schema.get_field_index("value")
        if at < 0:
            raise ConfigError("--value needs the column value")
        return output.layout(schema.set(at, pa.field("value", self.format.arrow_type())))._replace(value=self.format)

    def begin(self, partitions: Iterable[TopicPartition]) -> DeadLetters:
        layout = self.dead.layout(DEAD_SCHEMA)
        return DeadLetters(self.dead.begin(), layout, self.dead.offsets(partitions))

    def commit(self, written: Sequence[Written], offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the dead letters, if there are any."""
        dead = [attempt.dead for attempt in written if attempt.dead is not None and attempt.dead.files]
        if dead:
            self.dead.commit(dead, offsets)


def add_values(parser: argparse.ArgumentParser) -> None:
    """The options that say how values are decoded."""
    add = parser.add_argument
    add("--value", choices=KINDS, help=f"decode values into a typed column; rows without one go to OUTPUT{SUFFIX}")
    add(
        "--value-schema",
        metavar="FILE|ID",
        help="a file with the JSON Schema, the Avro schema, or Protobuf's FileDescriptorSet (protoc --include_imports "
        "-o FILE); or with --registry the id of an Avro or JSON schema there",
    )
    add("--value-message", default="", metavar="NAME", help="of Protobuf: the message's full name")
    add("--registry", default="", metavar="URL", help="a schema registry with Confluent's API")


def open_values(options: argparse.Namespace, stack: ExitStack) -> Values | None:
    """None without --value. Raises ConfigError."""
    if options.value is None:
        return None
    if options.format not in TABLE_FORMATS:
        raise ConfigError("--value needs --format iceberg or delta")
    dead = copy.copy(options)
    dead.output, dead.partition_by = options.output.rstrip("/") + SUFFIX, "topic"
    return Values(_format(options), stack.enter_context(open_table(dead)))


def _format(options: argparse.Namespace) -> ValueFormat:
    if options.value_schema is None:
        raise ConfigError("--value needs --value-schema")
    if (options.value == "protobuf") != bool(options.value_message):
        raise ConfigError("--value-message names the message of --value protobuf")
    if options.registry and options.value_schema.isdecimal():
        text = schema_of_id(options.registry, int(options.value_schema))
    else:
        try:
            with open(options.value_schema, "rb") as file:
                data = file.read()
            text = base64.b64encode(data).decode() if options.value == "protobuf" else data.decode()
        except (OSError, UnicodeDecodeError) as fault:
            raise ConfigError(f"--value-schema {options.value_schema}: {fault}") from None
    return ValueFormat(options.value, text, options.value_message, options.registry)
