"""`kafkalite produce`: lines become records. Each is on every in-sync replica when the command ends well.

    echo hello | kafkalite produce orders
    kafkalite produce orders --key-separator : < lines        # KEY:VALUE
    kafkalite consume orders --json | kafkalite produce copies --json

Lines from a terminal are sent one by one; lines from a file or a pipe in batches.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import BinaryIO

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, add_timeout, security_of, whole
from kafkalite.cli.record_format import line_parser
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.producer.record_writer import RecordWriter
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.output import complain
from kafkalite.record.batch import NewRecord
from kafkalite.record.compression import CODECS
from kafkalite.record.json_lines import Line, parse_json

_LINE_BYTES_MAX = 64 << 20
_LINGER_S = 0.02
_READ_BYTES = 256 * 1024
Parse = Callable[[bytes], Line]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read lines from here (default: stdin)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="each line is KEY, this text, VALUE; \\t is a tab (default: no key)",
    )
    form.add_argument("--format", "-f", metavar="FORMAT", help="lines with %%k, %%v, %%p, %%T, such as '%%k=%%v'")
    form.add_argument(
        "--json", action="store_true", help="each line is a JSON object: value, key, headers, partition, timestamp"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--partition", "-p", type=whole(), metavar="N", help="write here (default: by the key)")
    place.add_argument("--keep-partitions", action="store_true", help="write each line to the partition that it names")
    parser.add_argument(
        "--header", "-H", action="append", default=[], metavar="NAME=VALUE", help="of every record; may be repeated"
    )
    parser.add_argument("--tombstone", action="store_true", help="an empty value is null, which deletes its key")
    parser.add_argument("--compression", "-z", choices=list(CODECS), default="none", help="(default: none)")
    parser.add_argument("--quiet", "-q", action="store_true", help="do not print how many were written")
    add_bootstrap_server(parser)
    add_command_config(parser)
    add_timeout(parser, 30.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    parse, headers = _parser_of(options), _headers(options)
    with ExitStack() as undo:
        try:
            source = undo.enter_context(open(options.file, "rb")) if options.file else sys.stdin.buffer
        except OSError as fault:
            raise ConfigError(f"--file {options.file} cannot be read: {fault.strerror or fault}") from None
        cluster = ClusterClient(options.bootstrap_server, min(options.timeout, 10.0), security_of(options))
        undo.callback(cluster.close)
        writer: RecordWriter | None = None
        try:
            writer = RecordWriter(cluster, options.topic, Retries(options.timeout), CODECS[options.compression])
            _write(writer, source, parse, headers, options)
            code = 0
        except KeyboardInterrupt:
            code = _ended(writer)
        except (Unanswered, WriteFailed) as fault:
            code = complain(str(fault))
    if not options.quiet and writer is not None and (code or sys.stderr.isatty()):
        records = "record" if writer.written == 1 else "records"
        complain(f"{writer.written} {records} written to {options.topic}")
    return code


def _ended(writer: RecordWriter | None) -> int:
    """Ends after Ctrl-C: lines that were read are written."""
    try:
        if writer is not None:
            writer.flush()
    except (Unanswered, WriteFailed) as fault:
        return complain(str(fault))
    return 0


def _write(
    writer: RecordWriter,
    source: BinaryIO,
    parse: Parse,
    headers: tuple[tuple[str, bytes], ...],
    options: argparse.Namespace,
) -> None:
    """Lines before one that is no record are written, too."""
    number = 1
    try:
        for line in _lines(source, writer):
            if line.strip() or not options.json:
                record, partition = parse(line)
                value = None if options.tombstone and not record.value else record.value
                timestamp = int(time.time() * 1000) if record.timestamp < 0 else record.timestamp
                one = NewRecord(record.key, value, (*record.headers, *headers), timestamp)
                is_named = options.keep_partitions or options.format is not None
                writer.add(one, partition if is_named and partition is not None else options.partition)
            number += 1
    except ValueError as fault:
        writer.flush()
        raise WriteFailed(f"line {number} {fault}") from None
    writer.flush()


def _lines(source: BinaryIO, writer: RecordWriter) -> Iterator[bytes]:
    """Lines without their ends. Flushes the writer whenever no more input arrives for a moment. Raises ValueError for a
    line that is too long."""
    pieces: list[bytes] = []  # of a line without its end yet
    size = 0
    while True:
        if not _has_more(source):
            writer.flush()
        data = _read(source)
        if not data:
            break
        first, *lines = data.split(b"\n")
        size += len(first)
        if size > _LINE_BYTES_MAX:
            raise ValueError(f"is longer than {_LINE_BYTES_MAX} bytes")
        pieces.append(first)
        if lines:
            for line in (b"".join(pieces), *lines[:-1]):
                yield line.removesuffix(b"\r")
            pieces, size = [lines[-1]], len(lines[-1])
    if last := b"".join(pieces):
        yield last


def _has_more(source: BinaryIO) -> bool:
    """Whether a terminal or a pipe has more input within a moment; True for a file."""
    try:
        return bool(select.select([source.fileno()], [], [], _LINGER_S)[0])
    except (OSError, ValueError):
        return True


def _read(source: BinaryIO) -> bytes:
    """Reads the available bytes; waits for some. Empty at the end. Bypasses the buffer, whose content is unknown."""
    try:
        file = source.fileno()
    except (OSError, ValueError):
        return source.read(_READ_BYTES)
    return os.read(file, _READ_BYTES)


def _parser_of(options: argparse.Namespace) -> Parse:
    """Raises ConfigError."""
    if options.json:
        return parse_json
    if options.format:
        return line_parser(options.format)
    if options.key_separator:
        return line_parser("%k" + options.key_separator.replace("%", "%%") + "%v")
    if options.key_separator == "":
        raise ConfigError("--key-separator is empty")
    return lambda line: Line(NewRecord(None, line), None)


def _headers(options: argparse.Namespace) -> tuple[tuple[str, bytes], ...]:
    """Raises ConfigError."""
    found = []
    for text in options.header:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--header {text} is not NAME=VALUE")
        name.encode()  # raises UnicodeEncodeError
        found.append((name, value.encode("utf-8", "surrogateescape")))
    return tuple(found)
