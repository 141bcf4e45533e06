"""Options and summary of the jobs that copy records into topics."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from kafkalite.client.producer.options import parse_write_options
from kafkalite.common.errors import ConfigError
from kafkalite.common.options import assignments
from spark_jobs.job import print_table
from spark_jobs.partition_copy import TRANSACTION_BYTES, Copied, CopyOptions


def add_target(parser: argparse.ArgumentParser, name: str) -> None:
    """The options that say where records go, and how."""
    add = parser.add_argument
    add("--to", required=True, metavar="HOST:PORT[,...]", help="brokers of the target")
    add("--topic-prefix", default="", metavar="TEXT", help="before the names of the topics there")
    add("--name", default=name, help=f"of the copy: its progress is stored under it (default: {name})")
    add("--into-existing", action="store_true", help="begin behind the records that the topics there have")
    add("--compression", default="lz4", metavar="CODEC", help="none, gzip, snappy, lz4, zstd (default: lz4)")
    add(
        "--transaction-bytes",
        type=int,
        default=TRANSACTION_BYTES,
        metavar="N",
        help="about so much is committed at a time (default: 64 MiB)",
    )
    add("--producer", action="append", default=[], metavar="KEY=VALUE", help="a producer's setting; may be repeated")


def copy_options(options: argparse.Namespace, source: str) -> CopyOptions:
    """Raises ConfigError."""
    settings = {"kafka.bootstrap.servers": options.to, "kafka.compression.type": options.compression}
    for key, value in assignments("--producer", options.producer, "batch.size=1048576").items():
        settings[key if key.startswith("kafka.") else f"kafka.{key}"] = value
    if options.transaction_bytes < 1:
        raise ConfigError(f"--transaction-bytes is {options.transaction_bytes}; it may be a number from 1 on")
    parsed = parse_write_options({**settings, "transactional": "true", "transactionalIdPrefix": options.name})
    return CopyOptions(
        parsed.producer, options.name, source, options.into_existing, transaction_bytes=options.transaction_bytes
    )


def print_copied(copied: Iterable[Copied]) -> None:
    """A line for each partition, and the sum."""
    rows: list[tuple[object, ...]] = [tuple(one) for one in sorted(copied)]
    rows.append(("total", len(rows), sum(int(str(row[2])) for row in rows), "", ""))
    print_table(("topic", "partition", "records", "from offset", "to offset"), rows)
