"""`kafkalite read`: records of topics from the segment files to a file or to stdout, without a broker.

The output gets its name only when it is complete: it is written beside it as `.NAME.partial-PID`, synced and renamed.
Exit code 0: everything is written; 1: it is not, and the reason is on stderr.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.common.output import complain
from kafkalite.common.text import printable, safe_json

if TYPE_CHECKING:
    from kafkalite.reader.topic_reader import TopicReader

_FORMATS = {  # and the endings of file names that stand for them
    "parquet": ("parquet",),
    "arrow": ("arrow", "feather", "ipc"),
    "arrow-stream": ("arrows",),
    "csv": ("csv",),
    "jsonl": ("jsonl", "ndjson"),
}
_TEXT_BATCH_BYTES = 8 << 20  # text is made of little at a time; columns of files gain by more
_TEXTS = ("csv", "jsonl")
_ENCODINGS = ("auto", "utf-8", "base64")
_ARGUMENTS = (
    "starting_offsets", "ending_offsets", "starting_timestamp", "ending_timestamp", "isolation_level",
    "include_headers", "partitions", "columns", "mode",
)  # fmt: skip
_NAMES = re.compile("|".join(rf"\b{name}\b" for name in _ARGUMENTS))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kafkalite read`."""
    parser.description = "Write the records of topics to a file or to stdout, from the segment files."
    add = parser.add_argument
    add("topics", nargs="*", metavar="TOPIC")
    add("--topic-pattern", metavar="REGEX", help="all topics whose names match, instead of naming them")
    add(
        "--data-dir",
        default="kafkalite-data",
        metavar="DIR[,DIR]",
        help="the data directory (default: ./kafkalite-data)",
    )
    add("-o", "--output", default="-", metavar="FILE", help="replaced when the new one is complete (default: stdout)")
    add("-f", "--format", choices=_FORMATS, help="default: as the file's name ends; on stdout jsonl")
    add("--columns", metavar="A,B", help="of key, value, topic, partition, offset, timestamp, timestampType, headers")
    add("--partitions", metavar="0,1", help="only these partitions of one topic (default: all)")
    add(
        "--starting-offsets",
        default="earliest",
        metavar="OFFSETS",
        help='earliest, latest-100, or {"orders": {"0": 23}}',
    )
    add("--ending-offsets", default="latest", metavar="OFFSETS", help="latest, or as JSON; exclusive")
    add("--starting-timestamp", metavar="TIME", help="milliseconds since 1970, or 2026-01-31T12:00:00+00:00")
    add("--ending-timestamp", metavar="TIME", help="up to the first record of this time or later")
    add("--isolation-level", default="read_uncommitted", metavar="LEVEL", help="or read_committed")
    add("--include-headers", action="store_true", help="with the column headers")
    add("--mode", default="FAILFAST", metavar="MODE", help="PERMISSIVE leaves corrupt batches out (default: an error)")
    add(
        "--ignore-data-loss",
        action="store_true",
        help="read the remaining records if some offsets are gone (default: an error)",
    )
    add(
        "--encoding",
        choices=_ENCODINGS,
        default="auto",
        help="of keys and values in CSV and JSON lines; auto: text if UTF-8, else base64 behind 'base64:'",
    )


def run(options: argparse.Namespace) -> int:
    """`kafkalite read`. Returns the exit code. Raises ConfigError, StorageError."""
    format_name = _format(options)
    try:
        import pyarrow
    except ImportError:
        raise ConfigError("kafkalite read needs pyarrow: pip install 'kafkalite[arrow]'") from None
    if format_name in _TEXTS:  # Arrow's own pool keeps what is freed: 30 MiB more for records of 10 MB
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        reader = _reader(options, {"batchBytes": str(_TEXT_BATCH_BYTES)} if format_name in _TEXTS else {})
        with _output(options.output, is_json=format_name == "jsonl") as stream:
            _write(reader, stream, format_name, options.encoding)
    except ConfigError as error:
        raise ConfigError(_NAMES.sub(lambda found: "--" + found[0].replace("_", "-"), str(error))) from None
    except Malformed as error:
        return complain(str(error))
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return complain(f"{error.filename or options.output}: {error.strerror or error}")
    return 0


def _format(options: argparse.Namespace) -> str:
    chosen: str | None = options.format
    if chosen is None:
        ending = "jsonl" if options.output == "-" else options.output.rpartition(".")[2].lower()
        chosen = next((name for name, endings in _FORMATS.items() if ending in endings), None)
        if chosen is None:
            known = ", ".join(f".{one}" for endings in _FORMATS.values() for one in endings)
            raise ConfigError(f"--output {options.output} names no format; give --format, or end it in one of {known}")
    if options.output == "-" and chosen not in _TEXTS and sys.stdout.isatty():
        raise ConfigError(f"{chosen} is no text for a terminal; name a file with --output, or redirect stdout")
    return chosen


def _reader(options: argparse.Namespace, settings: Mapping[str, str]) -> TopicReader:
    from kafkalite.common.timestamps import parse_moment
    from kafkalite.reader.topic_reader import TopicReader, as_options

    if bool(options.topics) == bool(options.topic_pattern):
        raise ConfigError("name the topics to read, or give --topic-pattern, not both")
    columns = None if options.columns is None else options.columns.split(",")
    topic = options.topics[0] if len(options.topics) == 1 else options.topics
    start, end = options.starting_timestamp, options.ending_timestamp
    arguments = as_options(
        options.data_dir.split(","),
        _pattern(options.topic_pattern) if options.topic_pattern else topic,
        partitions=_partitions(options.partitions),
        starting_offsets=options.starting_offsets,
        ending_offsets=options.ending_offsets,
        starting_timestamp=None if start is None else parse_moment("--starting-timestamp", start),
        ending_timestamp=None if end is None else parse_moment("--ending-timestamp", end),
        isolation_level=options.isolation_level,
        include_headers=options.include_headers or (columns is not None and "headers" in columns),
        fail_on_data_loss=not options.ignore_data_loss,
        mode=options.mode,
    )
    return TopicReader({**arguments, **settings}, columns)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"--topic-pattern is no regular expression: {error}") from None


def _partitions(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise ConfigError(f"--partitions is {text!r}; write it as 0,1,2") from None


class _Terminal(io.RawIOBase):
    """Text on a terminal, with the control characters of records escaped."""

    def __init__(self, stream: BinaryIO, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace").decode

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = self._decode(bytes(data))
        lines = "\n".join(map(safe_json, text.split("\n"))) if self._is_json else printable(text, keep="\n\t")
        self._stream.write(lines.encode())
        return len(data)

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _output(path: str, *, is_json: bool = False) -> Iterator[BinaryIO]:
    """Stdout, or a file that gets its name at the end; it is removed after an error."""
    if path == "-":
        yield cast(BinaryIO, _Terminal(sys.stdout.buffer, is_json)) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    directory, name = os.path.split(path)
    partial = os.path.join(directory, f".{name}.partial-{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _write(reader: TopicReader, stream: BinaryIO, format_name: str, encoding: str) -> None:
    from kafkalite.inspection.files.printer import Progress
    from kafkalite.reader.record_writer import open_writer

    progress = Progress(reader.size_bytes)
    writer = open_writer(stream, format_name, reader.schema, encoding)
    try:
        for batch in reader.batches(progress.advance):
            writer.write_batch(batch)
        writer.close()
    finally:
        progress.clear()
