"""Mirrors into the cluster, as each process of `kafkalite mirror` reports them at its /metrics.

The processes are polled when a page asks, all at the same time, and not again within two seconds. The rates of a source
are those between two polls. A process that does not answer is a row with the reason.
Source: `client/mirror/flow_status`; the Prometheus exposition format, version 0.0.4.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable
from kafkalite.console.request.http_answer import read_body
from kafkalite.console.request.parameters import Row

_PREFIX = "kafkalite_mirror_"
_SAMPLE = re.compile(rf"{_PREFIX}([a-z_]+)\{{(.*)\}} (\S+)")
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"n": "\n", '"': '"', "\\": "\\"}
_ADDRESSES_MAX = 100
_POLL_S = 3.0
_BYTES_MAX = 64 << 20  # 800 bytes for each partition
_KEPT_S = 2.0
_RATE_S_MAX = 60.0
_TEXT_MAX = 500

Sample = tuple[str, Mapping[str, str], float]
"""The name of a metric without its prefix, its labels, its value."""


class _Copied(NamedTuple):
    """The counts of a source at a moment of the monotonic clock."""

    at_s: float
    records: float
    size_bytes: float


class Mirrors:
    """The mirrors whose processes serve /metrics at some addresses, http://HOST:PORT with commas."""

    def __init__(self, addresses: str, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError."""
        self._addresses = [address.strip().rstrip("/") for address in addresses.split(",") if address.strip()]
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._polled_s = float("-inf")
        self._copied: dict[tuple[str, str], _Copied] = {}
        if len(self._addresses) > _ADDRESSES_MAX:
            raise ConfigError(f"--mirrors has more than {_ADDRESSES_MAX} addresses")
        for address in self._addresses:
            if not _is_address(address):
                raise ConfigError(f"--mirrors {address[:80]} must be http://HOST:PORT, that of a mirror's --metrics")

    @classmethod
    def of(cls, addresses: str | None) -> Mirrors | None:
        """The mirrors of an option. Raises ConfigError."""
        return cls(addresses) if addresses and addresses.strip(", ") else None

    def rows(self) -> list[Row]:
        """A row for each source of each process, as they were at most two seconds ago."""
        with self._lock:  # pages that ask meanwhile wait for the same answers
            if self._monotonic_s() - self._polled_s >= _KEPT_S:
                with ThreadPoolExecutor(len(self._addresses)) as threads:
                    answers = list(threads.map(self._poll, self._addresses))
                self._rows = [row for rows in answers for row in rows]
                self._polled_s = self._monotonic_s()
            return self._rows

    def _poll(self, address: str) -> list[Row]:
        try:
            rows = mirror_rows(parse_samples(self._read(address)))
        except (OSError, http.client.HTTPException, ValueError, OverflowError) as fault:
            why = getattr(fault, "strerror", None) or str(fault) or "it closed the connection"
            return [{"address": address, "source": None, "fault": printable(why)[:_TEXT_MAX]}]
        return [{"address": address, **row, **self._rates(address, row), "fault": None} for row in rows]

    def _read(self, address: str) -> str:
        """The text of the metrics. Raises OSError, HTTPException, ValueError."""
        deadline_s = self._monotonic_s() + _POLL_S
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=_POLL_S)) as connection:
            connection.request("GET", "/metrics", headers={"Connection": "close"})
            answer = connection.getresponse()
            body = read_body(answer, _BYTES_MAX, lambda: deadline_s - self._monotonic_s())
        if answer.status != 200:
            raise ValueError(f"it answers with status {answer.status}")
        return body.decode()

    def _rates(self, address: str, row: Row) -> Row:
        """Records and bytes a second since the poll before; null without one in the last minute, and where partitions
        have gone to another process, since their counts go with them."""
        now = _Copied(self._monotonic_s(), row["records"], row["size_bytes"])
        before = self._copied.get(key := (address, row["source"]))
        self._copied[key] = now
        passed_s = 0.0 if before is None else now.at_s - before.at_s
        if before is None or not 0 < passed_s <= _RATE_S_MAX or now.records < before.records:
            return {"records_per_s": None, "bytes_per_s": None}
        return {
            "records_per_s": (now.records - before.records) / passed_s,
            "bytes_per_s": (now.size_bytes - before.size_bytes) / passed_s,
        }


def parse_samples(text: str) -> list[Sample]:
    """The samples of a mirror, without those of others. Raises ValueError."""
    found: list[Sample] = []
    for line in text.split("\n"):
        if (one := _SAMPLE.fullmatch(line)) is not None:
            labels = {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(one[2])}
            found.append((one[1], labels, float(one[3])))
    return found


def mirror_rows(samples: Sequence[Sample]) -> list[Row]:
    """A row for each source. A lag of which a part is not known is not known. Raises ValueError if there is none."""
    sources = [labels["source"] for name, labels, _ in samples if name == "copying" and "source" in labels]
    if not sources:
        raise ValueError("it has no metrics of a mirror")
    return [_row(source, [one for one in samples if one[1].get("source") == source]) for source in sources]


def _row(source: str, samples: Sequence[Sample]) -> Row:
    values: dict[str, list[float]] = {}
    error = ""
    for name, labels, value in samples:
        values.setdefault(name, []).append(value)
        error = labels.get("error", error)
    partitions = int(sum(values.get("partitions", ())))
    lags = values.get("lag_records", [])
    latest_ms = values.get("last_error_timestamp_ms")
    return {
        "source": source,
        "is_copying": values.get("copying") == [1.0],
        "leads": values.get("leads") == [1.0],
        "partitions": partitions,
        "lag": int(sum(lags)) if len(lags) == partitions else None,
        "records": int(sum(values.get("records_total", ()))),
        "size_bytes": int(sum(values.get("bytes_total", ()))),
        "lost_offsets": int(sum(values.get("lost_offsets_total", ()))),
        "latency_ms": max(values.get("latency_ms", ()), default=None),
        "failed": int(sum(values.get("partition_failed", ()))),
        "errors": int(sum(values.get("errors_total", ()))),
        "last_error": printable(error)[:_TEXT_MAX] or None,
        "last_error_ms": None if latest_ms is None else int(latest_ms[0]),
    }


def _unescaped(found: re.Match[str]) -> str:
    return _PLAIN.get(found[1], found[0])


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_plain = parts.port is not None and not parts.path and not parts.query and parts.username is None
        return parts.scheme == "http" and bool(parts.hostname) and is_plain
    except ValueError:
        return False
