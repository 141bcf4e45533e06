"""Topic analysis: keys, sizes, nulls, headers and the rate of a topic, counted by one bounded scan.

Distinct keys are estimated by linear counting on a bitmap of 2^20 bits: within 1 % up to a million keys. Sizes are
counted in powers of two, times in equal parts of the span between the first and the last record.
Source: Whang, Vander-Zanden, Taylor, "A linear-time probabilistic counting algorithm", 1990.
"""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import BEGINNING, Limits, Scan, Start
from kafkalite.console.calls.route import Event
from kafkalite.record.compression import CODEC_NAMES

_BITS = 20
_HOUR_MS = 3_600_000
_HOURS_MAX = 24 * 366
_BARS_MAX = 48
_LARGEST = 10
_PROGRESS_S = 0.25
_ASK_S = 15.0


class Tally:
    """Counts of one side of the records."""

    def __init__(self) -> None:
        self.nulls = self.size_bytes = self.count = self.largest_bytes = 0
        self._by_bits: Counter[int] = Counter()

    def add(self, data: bytes | None) -> None:
        if data is None:
            self.nulls += 1
            return
        size = len(data)
        self.count += 1
        self.size_bytes += size
        self.largest_bytes = max(self.largest_bytes, size)
        self._by_bits[size.bit_length()] += 1

    def row(self) -> dict[str, Any]:
        """`sizes`: for each power of two the number of values that are smaller than it, and not than the half."""
        return {
            "nulls": self.nulls,
            "mean_bytes": self.size_bytes / self.count if self.count else None,
            "largest_bytes": self.largest_bytes if self.count else None,
            "total_bytes": self.size_bytes,
            "sizes": [{"below": 1 << bits, "count": count} for bits, count in sorted(self._by_bits.items())],
        }


class Analysis:
    """The counts of a topic; `add` gets its records."""

    def __init__(self) -> None:
        self.key, self.value = Tally(), Tally()
        self.records = self.with_headers = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self._seen = bytearray(1 << _BITS >> 3)
        self._hours: Counter[int] = Counter()
        self._partitions: Counter[int] = Counter()
        self._codecs: Counter[str] = Counter()
        self._largest: list[tuple[int, int, int]] = []

    def add(self, one: ScannedRecord) -> None:
        if one.marker is not None or one.fault is not None:
            return
        self.records += 1
        self.key.add(one.key)
        self.value.add(one.value)
        self.with_headers += bool(one.headers)
        self._partitions[one.partition] += 1
        codec = one.batch.codec
        self._codecs[CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec)] += 1
        if one.key is not None:
            bit = zlib.crc32(one.key) & ((1 << _BITS) - 1)
            self._seen[bit >> 3] |= 1 << (bit & 7)
        if one.timestamp >= 0:
            self.first_ms = one.timestamp if self.first_ms is None else min(self.first_ms, one.timestamp)
            self.last_ms = one.timestamp if self.last_ms is None else max(self.last_ms, one.timestamp)
            if len(self._hours) < _HOURS_MAX or one.timestamp // _HOUR_MS in self._hours:
                self._hours[one.timestamp // _HOUR_MS] += 1
        size = len(one.value or b"")
        if len(self._largest) < _LARGEST or size > self._largest[-1][0]:
            self._largest = sorted([*self._largest, (size, one.partition, one.offset)], reverse=True)[:_LARGEST]

    @property
    def distinct_keys(self) -> int:
        """About how many keys there are."""
        bits = 1 << _BITS
        zeros = bits - int.from_bytes(self._seen, "little").bit_count()
        return round(-bits * math.log(max(zeros, 1) / bits))

    def row(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "key": {**self.key.row(), "distinct": self.distinct_keys},
            "value": self.value.row(),
            "with_headers": self.with_headers,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "rate": self._rate(),
            "partitions": [{"partition": index, "count": count} for index, count in sorted(self._partitions.items())],
            "compression": dict(self._codecs),
            "largest": [{"size_bytes": size, "partition": at[0], "offset": at[1]} for size, *at in self._largest],
        }

    def _rate(self) -> list[dict[str, int]]:
        """The number of records by time, in at most _BARS_MAX parts of whole hours."""
        if not self._hours:
            return []
        first, last = min(self._hours), max(self._hours)
        hours = max(1, math.ceil((last - first + 1) / _BARS_MAX))
        bars: Counter[int] = Counter()
        for hour, count in self._hours.items():
            bars[(hour - first) // hours] += count
        return [
            {"from_ms": (first + bar * hours) * _HOUR_MS, "hours": hours, "count": bars[bar]}
            for bar in range((last - first) // hours + 1)
        ]


def analyse(
    cluster: ClusterClient,
    topic: str,
    partitions: list[int],
    limits: Limits,
    *,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Yields progress, then `done` with the counts. Raises Unanswered."""
    analysis = Analysis()

    def count(records: list[ScannedRecord]) -> list[ScannedRecord]:
        for one in records:
            analysis.add(one)
        return []

    keys = [(topic, index) for index in partitions]
    scan = Scan(
        cluster,
        keys,
        Start(BEGINNING),
        count,
        lambda *_: None,
        timeout_s=_ASK_S,
        limits=limits,
        monotonic_s=monotonic_s,
    )
    total = sum(span.high - span.low for span in scan.spans.values())
    reported_s = monotonic_s()
    yield Event("progress", {"scanned": 0, "scanned_bytes": 0, "total": total})
    for _ in scan.forwards():
        if monotonic_s() - reported_s >= _PROGRESS_S:
            reported_s = monotonic_s()
            yield Event("progress", {"scanned": scan.scanned, "scanned_bytes": scan.size_bytes, "total": total})
    yield Event("done", {"reason": scan.end_reason, "scanned": scan.scanned, "total": total, **analysis.row()})
