"""The result of one work, as a line of the table and as JSON.

MB is 10^6 bytes of record values (for the discarding reader: of log). CPU is the broker's, `system` the kernel's share
of it; `client` says how busy the load generator was (1.0 = one core), because where it nears 1.0 the figure is the
generator's limit, not the broker's.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.usage import Cpu


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in microseconds."""

    p50_us: float
    p99_us: float
    p999_us: float


def latency(samples_ns: Iterable[int]) -> Latency:
    """The nearest-rank percentiles of samples in nanoseconds (at least one)."""
    ordered = sorted(samples_ns)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000

    return Latency(at(0.5), at(0.99), at(0.999))


@dataclass(frozen=True, slots=True)
class Result:
    """One piece of work done, or why it was not (`error`)."""

    work: str
    seconds: float = 0.0
    requests: int = 0
    records: int = 0
    payload_bytes: int = 0
    cpu: Cpu | None = None
    client_cpu_s: float = 0.0
    latency: Latency | None = None
    resident_bytes: int | None = None
    note: str = ""
    error: str = ""

    @property
    def requests_per_s(self) -> float | None:
        return self.requests / self.seconds if self.requests and self.seconds else None

    @property
    def records_per_s(self) -> float | None:
        return self.records / self.seconds if self.records and self.seconds else None

    @property
    def mb_per_s(self) -> float | None:
        return self.payload_bytes / self.seconds / 1e6 if self.payload_bytes and self.seconds else None

    @property
    def cpu_us_per_request(self) -> float | None:
        return self.cpu.total_s * 1e6 / self.requests if self.cpu and self.requests else None

    @property
    def cpu_s_per_million_records(self) -> float | None:
        return self.cpu.total_s * 1e6 / self.records if self.cpu and self.records else None

    @property
    def cpu_s_per_gb(self) -> float | None:
        return self.cpu.total_s * 1e9 / self.payload_bytes if self.cpu and self.payload_bytes else None

    @property
    def system_share(self) -> float | None:
        return self.cpu.system_s / self.cpu.total_s if self.cpu and self.cpu.total_s else None

    def as_json(self) -> dict[str, object]:
        """The fields and everything derived from them."""
        derived = {
            name: getattr(self, name)
            for name in (
                "requests_per_s",
                "records_per_s",
                "mb_per_s",
                "cpu_us_per_request",
                "cpu_s_per_million_records",
                "cpu_s_per_gb",
            )
        }
        return asdict(self) | derived


def machine() -> dict[str, str]:
    """The machine of the measurement."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{pages / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


HEADINGS = (
    "work",
    "requests/s",
    "records/s",
    "MB/s",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "CPU us/request",
    "CPU s/M records",
    "CPU s/GB",
    "system",
    "client",
    "note",
)


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _cells(result: Result) -> tuple[str, ...]:
    if result.error:
        return (result.work, *("" for _ in HEADINGS[2:]), f"FAILED: {' '.join(result.error.split())[:160]}")
    spread = result.latency
    share = result.system_share
    return (
        result.work,
        _number(result.requests_per_s),
        _number(result.records_per_s),
        _number(result.mb_per_s),
        _number(spread.p50_us if spread else None),
        _number(spread.p99_us if spread else None),
        _number(spread.p999_us if spread else None),
        _number(result.cpu_us_per_request, 1),
        _number(result.cpu_s_per_million_records, 2),
        _number(result.cpu_s_per_gb, 2),
        "" if share is None else f"{share:.0%}",
        f"{result.client_cpu_s / result.seconds:.2f}" if result.seconds and result.client_cpu_s else "",
        result.note,
    )


def table(results: Sequence[Result]) -> str:
    """A Markdown table without empty columns."""
    rows = [_cells(result) for result in results]
    kept = [column for column in range(len(HEADINGS)) if any(row[column] for row in rows)]
    widths = [max(len(HEADINGS[column]), *(len(row[column]) for row in rows)) for column in kept]

    def line(row: Sequence[str]) -> str:
        cells = []
        for column, width in zip(kept, widths, strict=True):
            plain = HEADINGS[column] in ("work", "note")
            cells.append(row[column].ljust(width) if plain else row[column].rjust(width))
        return "| " + " | ".join(cells) + " |"

    rule = [
        "-" * width if HEADINGS[column] in ("work", "note") else "-" * (width - 1) + ":"
        for column, width in zip(kept, widths, strict=True)
    ]
    return "\n".join([line(HEADINGS), "| " + " | ".join(rule) + " |", *map(line, rows)])


def to_json(broker: str, results: Sequence[Result]) -> str:
    document = {"broker": broker, "machine": machine(), "results": [result.as_json() for result in results]}
    return json.dumps(document, indent=2) + "\n"
