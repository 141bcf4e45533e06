"""`python -m bench compaction`: how long compaction takes, what it costs and what is left, on both brokers by turns.

The time runs from the change of cleanup.policy until the log has dropped to the size at which it stays. Both scan for
logs every 100 ms, so that this wait is not measured; all other settings are defaults. The brokers take turns as in
vs-kafka: the one that is not measured is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.compaction import CLEANER, Compaction, sample
from bench.java_perf import VERSION
from bench.keyed_log import CODECS, KeyedLog
from bench.reference import ReferenceUnavailable
from bench.report import machine
from bench.session import Session
from bench.startup import kafkalite_launcher, overrides, reference_launcher
from bench.versus import COMMON, KAFKA, KAFKA_ONLY, KAFKALITE, Side, order
from bench.wire import BrokerError

WARM_UP_RECORDS = 2_000_000


def run(options: argparse.Namespace) -> dict[str, tuple[list[Compaction], list[Compaction]]]:
    """Every shape's samples, ours and theirs."""
    both = sides()
    chosen = {"both": both, "kafkalite": both[:1], "kafka": both[1:]}[options.side]
    measured: dict[str, tuple[list[Compaction], list[Compaction]]] = {}
    template = Session("", None)
    with contextlib.ExitStack() as stack:
        for side in chosen:
            stack.enter_context(side.running(template))
        for codec in options.codec:
            warm = KeyedLog(options.warm_up, options.keys, 1000, options.record_bytes, codec)
            for side in chosen if options.warm_up else []:
                _one(side, f"compact-warm-up-{codec}", warm, options.segment_mb << 20)
            for size in options.batch:
                log = KeyedLog(options.records, options.keys, size, options.record_bytes, codec)
                work = f"compact-{size}-{codec}"
                found: dict[str, list[Compaction]] = {KAFKALITE: [], KAFKA: []}
                for number, which in enumerate(order(options.pairs)):
                    side = chosen[which % len(chosen)]
                    if len(chosen) == 2 or number % 2 == 0:
                        found[side.name].append(_one(side, work, log, options.segment_mb << 20))
                measured[work] = found[KAFKALITE], found[KAFKA]
    return measured


def sides() -> tuple[Side, Side]:
    """kafkalite and Apache Kafka with the same cleaner."""
    ours = COMMON | CLEANER
    theirs = reference_launcher(VERSION, properties=ours | KAFKA_ONLY)
    return Side(KAFKALITE, kafkalite_launcher(overrides(ours))), Side(KAFKA, theirs)


def _one(side: Side, work: str, log: KeyedLog, segment_bytes: int) -> Compaction:
    print(f"{work} {side.name} ...", end=" ", file=sys.stderr, flush=True)
    try:
        with side.turn() as session:
            found = sample(session, work, log, segment_bytes)
    except (BrokerError, OSError) as error:
        found = Compaction(error=str(error) or type(error).__name__)
    print(found.error or f"{found.seconds:.2f} s", file=sys.stderr)
    return found


HEADINGS = (
    "batch, codec", "log MB", "left MB", "records left", "kafkalite s", "(least-most)", "Kafka s", "(least-most)",
    "ratio", "CPU s", "Kafka's", "peak MB (over idle)", "Kafka's",
)  # fmt: skip


def table(measured: dict[str, tuple[list[Compaction], list[Compaction]]]) -> str:
    """One line a shape, in Markdown; medians."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "|".join(["---"] + ["---:"] * (len(HEADINGS) - 1)) + "|"]
    for work, both in measured.items():
        lines.append("| " + " | ".join(_cells(work, *both)) + " |")
    return "\n".join(lines)


def _cells(work: str, ours: list[Compaction], theirs: list[Compaction]) -> list[str]:
    for one in (*ours, *theirs):
        if one.error:
            return [work, f"FAILED: {one.error[:200]}"]
    any_side = (ours or theirs)[0]
    left = " / ".join(dict.fromkeys(f"{one.records_after:,}" for one in (*ours, *theirs)))
    mb = partial("{:,.0f}".format)
    seconds = [statistics.median(one.seconds for one in side) if side else None for side in (ours, theirs)]
    ratio = f"{seconds[0] / seconds[1]:.2f}" if seconds[0] and seconds[1] else ""
    cells = [work, mb(any_side.bytes_before / 1e6), mb(any_side.bytes_after / 1e6), left]
    for side in (ours, theirs):
        times = [one.seconds for one in side]
        cells += [f"{statistics.median(times):.2f}", f"{min(times):.2f}-{max(times):.2f}"] if times else ["", ""]
    cells.append(ratio)
    cells += [f"{statistics.median(one.cpu.total_s for one in side):.2f}" if side else "" for side in (ours, theirs)]
    return cells + [_memory(side) for side in (ours, theirs)]


def _memory(side: list[Compaction]) -> str:
    if not side:
        return ""
    peak = statistics.median(one.peak_resident_bytes for one in side) / 1e6
    over = statistics.median(one.peak_resident_bytes - one.idle_resident_bytes for one in side) / 1e6
    return f"{peak:,.0f} ({over:+,.0f})"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench compaction", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000, help="writes (default 10 M)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys that they go to (default 1 M)")
    parser.add_argument("--record-bytes", type=int, default=100, help="key and value (default 100)")
    parser.add_argument("--batch", type=_numbers, default="100,1000,3000", metavar="N,..", help="records in a batch")
    parser.add_argument("--codec", type=_codecs, default=",".join(CODECS), metavar="NAME,..", help="of the producer")
    parser.add_argument("--segment-mb", type=int, default=128, help="segment.bytes in MiB (default 128)")
    parser.add_argument("--pairs", type=int, default=3, help="samples of each shape on each broker (default 3)")
    parser.add_argument("--side", choices=("both", "kafkalite", "kafka"), default="both", help="measure only one")
    parser.add_argument(
        "--warm-up", type=int, default=WARM_UP_RECORDS, metavar="RECORDS",
        help="compacted on each broker before a codec's first sample (default 2 M; 0 for none)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _codecs(text: str) -> list[str]:
    for word in text.split(","):
        if word not in CODECS:
            raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(CODECS)}")
    return text.split(",")


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        measured = run(options)
    except (BrokerError, ReferenceUnavailable, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(f"{options.records:,} records of {options.record_bytes} B over {options.keys:,} keys on {facts}\n")
    print(table(measured))
    if options.json:
        document = {work: [[asdict(one) for one in side] for side in both] for work, both in measured.items()}
        options.json.write_text(json.dumps({"machine": machine(), "samples": document}, indent=1) + "\n")
    failed = [one for both in measured.values() for side in both for one in side if one.error]
    return 1 if failed else 0
