"""kafkalite beside Apache Kafka in numbers: what is compared, medians of both, their ratio, and the ratio aimed at.

A comparison keeps every sample, so that a table and a plot can be drawn again from its JSON.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from bench.java_perf import VERSION
from bench.report import Result
from bench.wire import BrokerError
from bench.works import START

LATEST = "4.3.0"
"""The version of Apache Kafka that has the consumer protocol (KIP-848), for rows about it."""
LATENCY_AT_HALF_PEAK = "java-latency-half-peak"

SPREAD_MAX = 1.3
"""The most by the least of one side's samples. Beyond it a row is steady only if its halves agree."""
HALVES_MAX = 1.1
"""The larger of the ratios of two halves by the smaller one."""

Samples = Sequence[Result]
Measured = Mapping[str, tuple[Samples, Samples]]  # work -> kafkalite's samples, Kafka's samples


@dataclass(frozen=True, slots=True)
class Target:
    """One figure of one work, and how kafkalite's should stand to Kafka's."""

    label: str
    work: str
    unit: str
    figure: Callable[[Result], float | None]
    ratio: float
    """kafkalite / Apache Kafka: at least this where more is better, at most this where less is."""
    more_is_better: bool
    digits: int = 0
    kafka: str = VERSION
    """The version of Apache Kafka beside it."""


def _p50(result: Result) -> float | None:
    return result.latency.p50_us if result.latency else None


def _p99(result: Result) -> float | None:
    return result.latency.p99_us if result.latency else None


def _p99_ms(result: Result) -> float | None:
    return result.latency.p99_us / 1000 if result.latency else None


def _million_records(result: Result) -> float | None:
    return result.records_per_s / 1e6 if result.records_per_s else None


def _requests(result: Result) -> float | None:
    return result.requests_per_s


def _cpu_us_per_request(result: Result) -> float | None:
    return result.cpu_us_per_request


def _mb(result: Result) -> float | None:
    return result.mb_per_s


def _gb(result: Result) -> float | None:
    return result.mb_per_s / 1000 if result.mb_per_s else None


def _cpu_records(result: Result) -> float | None:
    return result.cpu_s_per_million_records


def _cpu_bytes(result: Result) -> float | None:
    return result.cpu_s_per_gb


def _requests_per_cpu_s(result: Result) -> float | None:
    return result.requests / result.cpu.total_s if result.cpu and result.cpu.total_s else None


def _ms_per_request(result: Result) -> float | None:
    return result.seconds * 1000 / result.requests if result.requests else None


def _start_ms(result: Result) -> float | None:
    return result.seconds * 1000


def _resident_mb(result: Result) -> float | None:
    return result.resident_bytes / 1e6 if result.resident_bytes else None


# In the order of the table and of the plot; a work's figures stand together.
TARGETS = (
    Target("one-record requests, one in flight, p50", "closed-loop-1x100B", "us", _p50, 0.33, False, 1),
    Target("one-record requests, one in flight, p99", "closed-loop-1x100B", "us", _p99, 0.25, False, 1),
    Target("one-record requests, five in flight", "replay-1x100B", "requests/s", _requests, 4.0, True),
    Target("  broker CPU of one", "replay-1x100B", "us", _cpu_us_per_request, 0.14, False, 1),
    Target("replayed batches of 150 x 100 B", "replay-150x100B", "M records/s", _million_records, 3.5, True, 2),
    Target("replayed batches of 16 x 1 KB", "replay-16x1KB", "MB/s", _mb, 3.3, True),
    Target("replayed batches of 512 x 1 KB", "replay-512x1KB", "MB/s", _mb, 1.7, True),
    Target("discarding reader, 1 MiB", "fetch-1MiB", "GB/s", _gb, 1.4, True, 2),
    Target("discarding reader, 8 MiB", "fetch-8MiB", "GB/s", _gb, 1.5, True, 2),
    Target("discarding reader, 1 MiB, read_committed", "fetch-1MiB-committed", "GB/s", _gb, 1.5, True, 2),
    Target("requests of 50 partitions", "produce-50-partitions", "requests/s", _requests, 2.3, True),
    Target("  broker CPU of a partition", "produce-50-partitions", "us", _cpu_records, 0.43, False, 1),
    Target("one change among 50 partitions", "session-fetch-50", "per CPU s", _requests_per_cpu_s, 2.0, True),
    Target("one change among 500 partitions", "session-fetch-500", "per CPU s", _requests_per_cpu_s, 5.0, True),
    Target("stock C producer, 100 B", "stock-produce-100B", "M records/s", _million_records, 1.0, True, 2),
    Target("  broker CPU of it", "stock-produce-100B", "s/M records", _cpu_records, 0.5, False, 3),
    Target("stock C producer, 1 KB", "stock-produce-1KB", "MB/s", _mb, 1.0, True),
    Target("  broker CPU of it", "stock-produce-1KB", "s/GB", _cpu_bytes, 0.5, False, 2),
    Target("stock C consumer, 100 B", "stock-consume-100B", "M records/s", _million_records, 1.0, True, 2),
    Target("  broker CPU of it", "stock-consume-100B", "s/M records", _cpu_records, 0.5, False, 3),
    Target("stock C consumer, 1 KB", "stock-consume-1KB", "GB/s", _gb, 1.0, True, 2),
    Target("  broker CPU of it", "stock-consume-1KB", "s/GB", _cpu_bytes, 0.5, False, 2),
    Target("stock Java producer, 100 B", "java-produce-100B", "M records/s", _million_records, 1.25, True, 2),
    Target("stock Java consumer, 100 B", "java-consume-100B", "M records/s", _million_records, 1.0, True, 2),
    Target("produce to consume, p50", "round-trip-100B", "us", _p50, 0.33, False),
    Target("produce to consume, p99", "round-trip-100B", "us", _p99, 0.2, False),
    Target("transactions of 100 records", "transactions-100x100B", "per s", _requests, 3.5, True),
    Target("  broker CPU of one", "transactions-100x100B", "us", _cpu_us_per_request, 0.4, False),
    Target("Java producer at half of Kafka's peak, p99", LATENCY_AT_HALF_PEAK, "ms", _p99_ms, 1.0, False),
    Target("start to first acknowledged record", START, "ms", _start_ms, 0.1, False),
    Target("idle RSS", START, "MB", _resident_mb, 0.25, False),
    Target("heartbeats of consumer groups", "group-heartbeats", "per CPU s", _requests_per_cpu_s, 5.0, True, 0, LATEST),
    *(
        target
        for label, work in (
            ("rebalance of 100 members, default intervals", "group-rebalance-stock"),
            ("rebalance of 100 members in step, 50 ms", "group-rebalance-100"),
        )
        for target in (
            Target(label, work, "ms", _ms_per_request, 0.7, False, 0, LATEST),
            Target("  broker CPU of it", work, "us", _cpu_us_per_request, 0.7, False, 0, LATEST),
        )
    ),
    *(
        target
        for size, figure, unit, cpu, cpu_unit in (
            ("100B", _million_records, "M records/s", _cpu_records, "s/M records"),
            ("1KB", _mb, "MB/s", _cpu_bytes, "s/GB"),
        )
        for members in (1, 4, 16)
        for target in (
            Target(
                f"share group, {size}, members: {members}",
                f"share-consume-{size}-{members}",
                *(unit, figure, 1.2, True, 3 if size == "100B" else 1, LATEST),
            ),
            Target("  broker CPU of it", f"share-consume-{size}-{members}", cpu_unit, cpu, 0.6, False, 3, LATEST),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A target with what was measured for it, sample by sample; `error` where there is a side without samples."""

    label: str
    unit: str
    digits: int
    target: float
    more_is_better: bool
    ours: list[float]
    theirs: list[float]
    error: str = ""

    @property
    def ratio(self) -> float | None:
        """Median by median, kafkalite's by Kafka's."""
        return _ratio(self.ours, self.theirs)

    @property
    def met(self) -> bool:
        ratio = self.ratio
        if ratio is None or self.error or not self.steady:
            return False
        return ratio >= self.target if self.more_is_better else ratio <= self.target

    @property
    def steady(self) -> bool:
        """Whether the samples of each side lie close together, or both halves of them, in their order, give the same
        ratio."""
        if all(max(side) <= SPREAD_MAX * min(side) for side in (self.ours, self.theirs) if side):
            return True
        first, second = (_ratio(*(_half(side, second=which) for side in (self.ours, self.theirs))) for which in (0, 1))
        if first is None or second is None:
            return False
        return max(first, second) <= HALVES_MAX * min(first, second)


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    below = statistics.median(theirs) if theirs else 0.0
    return statistics.median(ours) / below if ours and below else None


def _half(values: Sequence[float], *, second: int) -> Sequence[float]:
    """The first or the second half; a value in the middle is in neither."""
    size = len(values) // 2
    return values[-size:] if second and size else values[:size]


def rows(measured: Measured) -> list[Row]:
    """A row for every target whose work was done."""
    return [_row(target, *measured[target.work]) for target in TARGETS if target.work in measured]


def _row(target: Target, ours: Samples, theirs: Samples) -> Row:
    errors = [result.error for result in (*ours, *theirs) if result.error]
    figures = [_figures(target, samples) for samples in (ours, theirs)]
    if not errors and not all(figures):
        errors = ["no figure"]
    return Row(
        target.label,
        target.unit,
        target.digits,
        target.ratio,
        target.more_is_better,
        figures[0],
        figures[1],
        errors[0] if errors else "",
    )


def _figures(target: Target, samples: Samples) -> list[float]:
    values = [target.figure(result) for result in samples if not result.error]
    return [value for value in values if value is not None]


HEADINGS = ("work", "unit", "kafkalite", "(least-most)", "Kafka", "(least-most)", "ratio", "target", "")


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    verdict = "met" if row.met else "**missed**" if row.steady else "unsteady"
    if row.error:
        verdict = f"FAILED: {' '.join(row.error.split())[:80]}"
    aim = f"{'>=' if row.more_is_better else '<='} {row.target:g}"
    label = row.label.replace("  ", "&nbsp;&nbsp;")
    return (label, row.unit, *_side(row, row.ours), *_side(row, row.theirs), ratio, aim, verdict)


def _side(row: Row, values: Sequence[float]) -> tuple[str, str]:
    """Median, and the span of all samples."""
    if not values:
        return "", ""
    least, middle, most = (
        f"{value:,.{row.digits}f}" for value in (min(values), statistics.median(values), max(values))
    )
    return middle, f"{least}-{most}"


def table(found: Sequence[Row]) -> str:
    """The rows in Markdown."""
    cells = [HEADINGS, *map(_cells, found)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    left = (0, 1, len(HEADINGS) - 1)

    def line(row: Sequence[str]) -> str:
        parts = [
            cell.ljust(widths[column]) if column in left else cell.rjust(widths[column])
            for column, cell in enumerate(row)
        ]
        return "| " + " | ".join(parts) + " |"

    rule = ["-" * max(3, width) if column in left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(cells[0]), "| " + " | ".join(rule) + " |", *map(line, cells[1:])])


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole run: what was compared, on what, how often, and the rows."""

    names: tuple[str, str]
    machine: Mapping[str, str]
    date: str
    pairs: int
    seconds: float
    rows: Sequence[Row]

    samples: Mapping[str, object] = field(default_factory=dict)
    """By work: the results of both sides, as JSON has them."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def but_with(self, measured: Measured) -> Comparison:
        """The same with the rows and samples of `measured` in place of its own of that work."""
        labels = [(target.label, target.work) for target in TARGETS if target.work in self.samples]
        kept = {key: row for key, row in zip(labels, self.rows, strict=True) if key[1] not in measured}
        found = kept | {
            (target.label, target.work): _row(target, *measured[target.work])
            for target in TARGETS
            if target.work in measured
        }
        keys = [(target.label, target.work) for target in TARGETS]
        samples = dict(self.samples) | {
            work: [[result.as_json() for result in side] for side in sides] for work, sides in measured.items()
        }
        return replace(self, rows=[found[key] for key in keys if key in found], samples=samples)


def from_json(text: str) -> Comparison:
    """The comparison that `to_json` wrote."""
    try:
        document = json.loads(text)
        found = [Row(**row) for row in document.pop("rows")]
        return Comparison(**document | {"names": tuple(document["names"]), "rows": found})
    except (ValueError, TypeError, KeyError) as error:
        raise BrokerError(f"this is no JSON of vs-kafka: {error}") from None
