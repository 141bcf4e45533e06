"""All work that the bench can do, by name; and how one of it is done without ending the rest when it fails."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from bench.beside import beside_flushing, beside_reading, flushed_produce
from bench.beside_compaction import beside_compaction
from bench.consumer_groups import heartbeats, rebalance, stock_rebalance
from bench.discard import discard
from bench.java_perf import java_consume, java_produce
from bench.librdkafka import ClientError
from bench.reference import ReferenceUnavailable
from bench.replay import closed_loop_replay, replay
from bench.report import Result
from bench.scaling import many_partitions, segments_fetch, segments_produce
from bench.session import Session
from bench.share_groups import share_consume, share_in_flight
from bench.stock import round_trip, stock_consume, stock_produce
from bench.transactions import transactions
from bench.wide import session_fetch, wide_produce
from bench.wire import BrokerError

START = "start"
MEMORY = "memory"

Work = Callable[[Session, str], Result]

# Name, what is done; in this order.
WORKS: dict[str, Work] = {
    "replay-150x100B": lambda session, name: replay(session, name, 150, 100),
    "replay-16x1KB": lambda session, name: replay(session, name, 16, 1000),
    "replay-512x1KB": lambda session, name: replay(session, name, 512, 1000),
    "replay-1x100B": lambda session, name: replay(session, name, 1, 100),
    "closed-loop-1x100B": closed_loop_replay,
    "fetch-1MiB": lambda session, name: discard(session, name, 1 << 20),
    "fetch-8MiB": lambda session, name: discard(session, name, 8 << 20),
    "fetch-1MiB-committed": lambda session, name: discard(session, name, 1 << 20, isolation_level=1),
    "stock-produce-100B": lambda session, name: stock_produce(session, name, 100),
    "stock-produce-1KB": lambda session, name: stock_produce(session, name, 1000),
    "stock-consume-100B": lambda session, name: stock_consume(session, name, 100),
    "stock-consume-1KB": lambda session, name: stock_consume(session, name, 1000),
    "round-trip-100B": round_trip,
    "transactions-100x100B": transactions,
    "produce-50-partitions": lambda session, name: wide_produce(session, name, 50),
    "session-fetch-50": lambda session, name: session_fetch(session, name, 50),
    "session-fetch-500": lambda session, name: session_fetch(session, name, 500),
    "partitions-1": lambda session, name: many_partitions(session, name, 1),
    "partitions-100": lambda session, name: many_partitions(session, name, 100),
    "partitions-2000": lambda session, name: many_partitions(session, name, 2000),
    "segments-produce-1": lambda session, name: segments_produce(session, name, 1),
    "segments-produce-100": lambda session, name: segments_produce(session, name, 100),
    "segments-produce-2000": lambda session, name: segments_produce(session, name, 2000),
    "segments-fetch-1": lambda session, name: segments_fetch(session, name, 1),
    "segments-fetch-100": lambda session, name: segments_fetch(session, name, 100),
    "segments-fetch-2000": lambda session, name: segments_fetch(session, name, 2000),
}
# Done only when asked for by name: the effect of other work on a waiting client, which needs a quiet machine.
BESIDE_WORKS: dict[str, Work] = {
    "flushed-produce-1": lambda session, name: flushed_produce(session, name, 1),
    "flushed-produce-10": lambda session, name: flushed_produce(session, name, 10),
    "flushed-produce-50": lambda session, name: flushed_produce(session, name, 50),
    "flushed-produce-50x50": lambda session, name: flushed_produce(session, name, 50, 50),
    "beside-flush": beside_flushing,
    "beside-hot-1MiB": lambda session, name: beside_reading(session, name, 1 << 20, cold=False),
    "beside-hot-8MiB": lambda session, name: beside_reading(session, name, 8 << 20, cold=False),
    "beside-cold-1MiB": lambda session, name: beside_reading(session, name, 1 << 20, cold=True),
    "beside-cold-8MiB": lambda session, name: beside_reading(session, name, 8 << 20, cold=True),
}
# Done only when asked for by name, on a broker whose cleaner scans often.
COMPACTION_WORKS: dict[str, Work] = {
    "beside-compaction-1KB": lambda session, name: beside_compaction(session, name, "none", record_bytes=1010),
    "beside-compaction-lz4": lambda session, name: beside_compaction(session, name, "lz4"),
    "beside-compaction-zstd": lambda session, name: beside_compaction(session, name, "zstd"),
}
# Done only when asked for by name, on brokers that have the consumer protocol and short heartbeat intervals.
GROUP_WORKS: dict[str, Work] = {
    "group-heartbeats": heartbeats,
    "group-rebalance-100": rebalance,
    "group-rebalance-stock": stock_rebalance,
}
# Done only when asked for by name, on brokers that have share groups, with short heartbeat intervals; by Java clients.
SHARE_WORKS: dict[str, Work] = {
    f"share-consume-{name}-{members}": partial(share_consume, value_bytes=value_bytes, members=members)
    for name, value_bytes in (("100B", 100), ("1KB", 1000))
    for members in (1, 4, 16)
}
# The broker's memory, which a JVM's heap says nothing about; on a broker with 10,000 locks a partition.
IN_FLIGHT_WORKS: dict[str, Work] = {"share-in-flight": share_in_flight}
# Done only when asked for by name: a machine without Java and Maven is no failure.
JAVA_WORKS: dict[str, Work] = {
    "java-produce-100B": java_produce,
    "java-consume-100B": java_consume,
}
NAMED_WORKS = BESIDE_WORKS | COMPACTION_WORKS | GROUP_WORKS | SHARE_WORKS | IN_FLIGHT_WORKS | JAVA_WORKS
WARM_UP = ("replay-150x100B", "replay-16x1KB", "replay-1x100B", "fetch-1MiB", "stock-produce-1KB", "round-trip-100B")


def matching(names: Iterable[str], only: str) -> list[str]:
    """Those of `names` that one of the comma-separated patterns means, in their order; an unknown one is an error."""
    known, patterns = list(names), [pattern.strip() for pattern in only.split(",")]
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise BrokerError(f"no work is called {pattern}; there is {', '.join(known)}")
    return [name for name in known if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def chosen(only: str | None) -> list[str]:
    """The names of the work to do, in the table's order; an unknown name is a `BrokerError`."""
    if not only:
        return [START, *WORKS, MEMORY]
    return matching([START, *WORKS, *NAMED_WORKS, MEMORY], only)


def warm_up(session: Session, seconds: float) -> None:
    """Load of all kinds, so that a JIT compiler has met it before the first figure is taken."""
    share = seconds / len(WARM_UP) / 2
    short = replace(session, seconds=max(0.5, share), warm_up_limit_s=share, fill_bytes=64 * 10**6)
    for name in WARM_UP:
        WORKS[name](short, name)


def perform(name: str, work: Callable[[], Result]) -> Result:
    """One work; whatever the broker does wrong is a line of the table."""
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    started_at = time.monotonic()
    try:
        result = work()
    except (BrokerError, ClientError, ReferenceUnavailable, OSError) as error:
        result = Result(name, error=str(error) or type(error).__name__)
    print(f"{time.monotonic() - started_at:.1f} s{' FAILED' if result.error else ''}", file=sys.stderr)
    return result
