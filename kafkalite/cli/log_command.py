"""`kafkalite log dump | verify | count`: the arguments, and how findings and counts are printed.

Exit code 0: all is well; 1: something is wrong with the files; 2: they could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalite.cli.command_config import whole
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.output import aligned, complain, json_line, print_all
from kafkalite.common.text import printable, size_text
from kafkalite.config.settings import INT_MAX
from kafkalite.inspection.files.record_text import FIELD_DECODERS, field_decoder, plain_decoder
from kafkalite.log.storage.file_names import expanded
from kafkalite.protocol.internal_records import RecordDecoder

if TYPE_CHECKING:
    from kafkalite.inspection.count_records import Count, Counted
    from kafkalite.inspection.files.printer import DumpOptions
    from kafkalite.inspection.verify.verify import Verdict

CANNOT = 2


def run(options: argparse.Namespace) -> int:
    """`kafkalite log ...`. Returns the exit code."""
    try:
        return {"dump": _dump, "verify": _verify, "count": _count}[options.log_command](options)
    except (ConfigError, StorageError) as error:
        complain(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"{error.filename or 'cannot read'}: {error.strerror or error}")
    return CANNOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite log`."""
    commands = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    dump = commands.add_parser(
        "dump",
        help="show the contents of the files",
        description="Show the contents of the files, as kafka-dump-log does. Exit code 0: they are healthy, with gaps "
        "or without; 1: something is damaged; 2: they could not be read.",
    )
    dump.add_argument("paths", nargs="+", metavar="FILE_OR_DIR", help=".log, .index, .timeindex, .txnindex, .snapshot")
    add_dump_options(dump)
    verify = commands.add_parser(
        "verify",
        help="check every byte of a data directory",
        description="Check everything of a data directory or of one partition, and predict what a restart would do. "
        "Nothing is changed. Exit code 0: all is well, or the findings are harmless; 1: something is wrong; "
        "2: it could not be read.",
    )
    verify.add_argument("paths", nargs="+", metavar="DIR")
    verify.add_argument("--deep", action="store_true", help="unpack every record too")
    count = commands.add_parser(
        "count",
        help="count records exactly",
        description="Count the live records, control records, batches and bytes of topics, partitions and segments. "
        "Exit code 0: all are counted; 1: some bytes are no whole batches; 2: the files could not be read.",
    )
    count.add_argument("paths", nargs="+", metavar="DIR|TOPIC", help="data or partition directories, topics in them")
    count.add_argument("--data-dir", metavar="DIR", help="where the topics are (default: ./kafkalite-data)")
    count.add_argument("--segments", action="store_true", help="a row for each segment too")
    for command in (dump, verify, count):
        command.add_argument("--json", action="store_true", help="one JSON object a line")


def _dump(options: argparse.Namespace) -> int:
    from kafkalite.inspection.dump.dump import dump
    from kafkalite.inspection.files.printer import Printer

    return dump(options.paths, dump_options_of(options), Printer(as_json=options.json))


def _verify(options: argparse.Namespace) -> int:
    from kafkalite.inspection.files.findings import Severity
    from kafkalite.inspection.verify.verify import verify

    code = 0
    for path in expanded(options.paths):
        verdict = verify(path, deep=options.deep)
        harmless = all(finding.severity is Severity.HARMLESS for finding in verdict.findings)
        code = max(code, 0 if harmless else 1)
        if verdict.is_running:
            complain(f"{verdict.root}: a broker is running here; what it is writing may seem unfinished")
        for finding in verdict.findings:
            print(json.dumps(finding.as_json()) if options.json else finding.as_text())
        print_all([_summary_object(verdict) if options.json else _summary(verdict, harmless=harmless)])
    return code


def _summary_object(verdict: Verdict) -> str:
    summary = {"type": "summary", "path": verdict.root, "findings": len(verdict.findings), "clean": verdict.clean}
    sizes = {"partitions": verdict.partition_count, "bytes": verdict.log_bytes, "lostBytes": verdict.lost_bytes}
    return json.dumps(summary | sizes)


def _summary(verdict: Verdict, *, harmless: bool) -> str:
    stop = "the last stop was orderly" if verdict.clean else "the last stop was not orderly"
    cost = f"; a restart would lose {verdict.lost_bytes:,} bytes" if verdict.lost_bytes else ""
    count = len(verdict.findings)
    found = f"{count} finding{'' if count == 1 else 's'}" if count else "nothing wrong"
    found += ", harmless" if count and harmless else ""
    sizes = f"{verdict.partition_count:,} partitions, {size_text(verdict.log_bytes)}"
    return printable(f"{verdict.root}: {sizes}, {stop}: {found}{cost}")


def _count(options: argparse.Namespace) -> int:
    from kafkalite.inspection.count_records import count

    directories = [path for path in options.paths if os.path.isdir(path)]
    topics = [path for path in options.paths if not os.path.isdir(path)]
    if options.data_dir is not None or not directories:
        directories.append(options.data_dir or "kafkalite-data")
    is_whole = True
    for path in directories:
        counted = count(path, topics)
        for topic in topics:
            if all(one.partition.topic != topic for one in counted.partitions):
                raise ConfigError(f"topic {topic} not found in {path}")
        if counted.is_running:
            complain(f"{counted.root}: a broker is running here, and may still write")
        if options.json:
            print_all(map(json_line, _count_objects(counted)))
        else:
            print_all(_count_table(counted, segments=options.segments))
        is_whole = is_whole and (counted.is_running or not counted.total().unread_bytes)
    return 0 if is_whole else 1


_COUNT_COLUMNS = ("", "live records", "control", "aborted", "batches", "size")


def _count_table(counted: Counted, *, segments: bool) -> Iterator[str]:
    """A row for each topic and partition, with `segments` for each segment too; the sum; bytes that are no batches."""
    rows: list[tuple[str, ...]] = [_COUNT_COLUMNS]
    for topic, (total, partitions) in counted.by_topic().items():
        rows.append(_count_row(topic, total))
        for one in sorted(partitions, key=lambda one: one.partition.partition):
            rows.append(_count_row(f"  {one.partition.name}  {one.start_offset}..{one.end_offset}", one.total))
            if segments:
                rows += [_count_row(f"    {base:020d}", found) for base, found in one.segments.items()]
    total = counted.total()
    rows.append(_count_row(f"{len(counted.partitions):,} partitions", total))
    yield from aligned(rows)
    for one in counted.partitions:
        if one.total.unread_bytes:
            name = printable(one.partition.name)
            yield f"{name}: {one.total.unread_bytes:,} bytes are no whole batches; see kafkalite log verify"


def _count_row(name: str, count: Count) -> tuple[str, ...]:
    numbers = (count.live_records, count.control_records, count.aborted_records, count.batches)
    return (name, *[f"{number:,}" for number in numbers], size_text(count.bytes))


def _count_objects(counted: Counted) -> Iterator[dict[str, object]]:
    """One object for each segment, each partition, each topic."""
    for one in counted.partitions:
        key = {"topic": one.partition.topic, "partition": one.partition.partition}
        for base, found in one.segments.items():
            yield {"type": "segment", **key, "base_offset": base, **found.as_json()}
        offsets = {"start_offset": one.start_offset, "end_offset": one.end_offset}
        yield {"type": "partition", **key, **offsets, **one.total.as_json()}
    for topic, (total, _) in counted.by_topic().items():
        yield {"type": "topic", "topic": topic, **total.as_json()}


def add_dump_options(parser: argparse.ArgumentParser) -> None:
    """The options of kafka-dump-log, under the same names."""
    add = parser.add_argument
    add("--deep-iteration", action="store_true", help="show every record, not only every batch")
    add("--print-data-log", action="store_true", help="show keys and values too")
    decoders = f"one of {', '.join(FIELD_DECODERS)} (default: string)"
    add("--key-decoder-class", "--key-decoder", metavar="DECODER", help=f"what keys are: {decoders}")
    add("--value-decoder-class", "--value-decoder", metavar="DECODER", help=f"what values are: {decoders}")
    add("--offsets-decoder", action="store_true", help="the records are those of __consumer_offsets")
    add("--transaction-log-decoder", action="store_true", help="the records are those of __transaction_state")
    add("--skip-record-metadata", action="store_true", help="only the key and value of each record")
    add("--max-bytes", type=whole(), default=INT_MAX, metavar="N", help="read only the first N bytes of each log")
    add("--verify-index-only", action="store_true", help="check indexes against the log without showing them")
    add("--index-sanity-check", action="store_true", help="check indexes only as Kafka does before it uses them")


def dump_options_of(options: argparse.Namespace) -> DumpOptions:
    """Raises ConfigError."""
    from kafkalite.inspection.files.printer import DumpOptions

    decoder = _record_decoder(options)
    return DumpOptions(
        deep=options.deep_iteration or decoder is not None,
        decoder=decoder,
        metadata=not options.skip_record_metadata,
        max_bytes=options.max_bytes,
        sanity_only=options.index_sanity_check,
        verify_only=options.verify_index_only,
    )


def _record_decoder(options: argparse.Namespace) -> RecordDecoder | None:
    if options.offsets_decoder or options.transaction_log_decoder:
        from kafkalite.protocol.internal_records import decode_group_record, decode_transaction_record

        return decode_group_record if options.offsets_decoder else decode_transaction_record
    key, value = options.key_decoder_class, options.value_decoder_class
    if not options.print_data_log and key is None and value is None:
        return None
    return plain_decoder(field_decoder(key or "string"), field_decoder(value or "string"))
