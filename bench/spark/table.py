"""The samples as figures: medians, ratios to the stock source, targets."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.comparison import Row
from bench.report import machine
from bench.spark.work import BEST, COUNT, DEFAULT, LOAD, OURS, PRUNED, STREAM, TABLES, WRITE, Sample, Work

DEFAULT_TARGET = 5.0
BEST_TARGET = 3.0
WRITE_TARGET = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One side of a work: medians, and the least and the most of its rates. CPU with the broker's, per record."""

    seconds: float
    rate: float
    least: float
    most: float
    cpu_ns: float
    min_partitions: int
    share_kept: float
    share_read: float


def figures(work: Work, samples: Iterable[Sample]) -> dict[str, Figures]:
    """By side. A rate is in million records per second."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.side, []).append(sample)
    return {side: _of(work, each) for side, each in found.items()}


def _of(work: Work, samples: Sequence[Sample]) -> Figures:
    rates = [work.records / sample.seconds / 1e6 for sample in samples]
    cpu = statistics.median(sample.spark_cpu_s + sample.broker_cpu_s for sample in samples)
    seconds = statistics.median(sample.seconds for sample in samples)
    rate = work.records / seconds / 1e6
    one = samples[0]
    parts = (one.share_kept, one.share_read)
    return Figures(seconds, rate, min(rates), max(rates), cpu / work.records * 1e9, one.min_partitions, *parts)


_HEAD = (
    "| work | kafkalite | (least-most) | columns named | kafka, default | kafka, best | of | ratio to default | "
    "ratio to best | CPU ns/record | kafka's |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def table(results: Mapping[Work, Sequence[Sample]]) -> str:
    """A line for each work, and one for the job that does it, in million rows per second; below them the seconds of
    counts and of small queries, and the sides of loads into tables."""
    lines, small = [_HEAD], []
    for work, samples in results.items():
        by = figures(work, samples)
        if work.records == 1 or work.sink == COUNT:
            small.append(f"{work.name}: " + ", ".join(_seconds(side, each) for side, each in by.items()))
            continue
        if work.sink == TABLES:
            small.append(_table_of_sides(work, by))
            continue
        default, best = by[DEFAULT], by.get(BEST)
        pruned = f"{by[PRUNED].rate:.2f}" if PRUNED in by else ""
        at_best = f"{best.rate:.2f} | {best.min_partitions}" if best else " | "
        for name, ours in ((work.name, by[OURS]), (f"{work.name}, {LOAD}", by.get(LOAD))):
            if ours is not None:
                lines.append(
                    f"| {name} | {ours.rate:.2f} | {ours.least:.2f}-{ours.most:.2f} | {pruned} | {default.rate:.2f} | "
                    f"{at_best} | {_ratio(ours, default, WRITE_TARGET if work.sink == WRITE else DEFAULT_TARGET)} | "
                    f"{_ratio(ours, best, BEST_TARGET)} | {ours.cpu_ns:.0f} | {default.cpu_ns:.0f} |"
                )
    return "\n".join([*(lines if len(lines) > 1 else []), *small])


def _table_of_sides(work: Work, by: Mapping[str, Figures]) -> str:
    """A line for each side, with its ratio to writeStream with its defaults."""
    lines = [
        f"| {work.name} | M rows/s | (least-most) | ratio | CPU ns/record |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for side, one in by.items():
        ratio = one.rate / by[STREAM].rate
        lines.append(f"| {side} | {one.rate:.2f} | {one.least:.2f}-{one.most:.2f} | {ratio:.1f} | {one.cpu_ns:.0f} |")
    return "\n".join(lines)


def plot_rows(results: Mapping[Work, Sequence[Sample]]) -> list[Row]:
    """A row for each work and for the job that does it: rates, beside the stock source with its defaults."""
    rows = []
    for work, samples in results.items():
        if work.records == 1 or work.sink in (COUNT, TABLES):
            continue
        rates = {
            side: [work.records / each.seconds / 1e6 for each in samples if each.side == side]
            for side in (OURS, LOAD, DEFAULT)
        }
        target = WRITE_TARGET if work.sink == WRITE else DEFAULT_TARGET
        for label, side in ((work.name, OURS), (f" {LOAD}", LOAD)):
            if rates[side]:
                rows.append(Row(label, "M rows/s", 2, target, True, rates[side], rates[DEFAULT]))
    return rows


def _seconds(side: str, found: Figures) -> str:
    read = f" ({found.share_kept:.2%} of the records from {found.share_read:.2%} of the bytes)"
    return f"{side} {found.seconds:.2f} s{read if found.share_read else ''}"


def _ratio(ours: Figures, theirs: Figures | None, target: float) -> str:
    if theirs is None:
        return ""
    ratio = ours.rate / theirs.rate
    return f"{ratio:.1f}" if ratio >= target else f"**{ratio:.1f}**"


def to_json(version: str, results: Mapping[Work, Sequence[Sample]]) -> str:
    """Every sample, so that the table can be made again."""
    works = [asdict(work) | {"taken": [sample._asdict() for sample in each]} for work, each in results.items()]
    return json.dumps({"spark": version, "machine": machine(), "works": works}, indent=1) + "\n"
