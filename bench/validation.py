"""The broker's CPU for the check of a batch's content: `python -m bench.validation [--rounds N] [--markdown]`.

A broker in this process for each setting of kafkalite.record.validation appends the same batches, by turns; a figure is
the median of the rounds, in microseconds of this process for one batch (all of `Partition.append`: checks, checksum,
write, indexes). What a request costs besides, on its socket and on the loop, is not in it: see the rows `replay-*` of
`python -m bench`. Run it on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.testing import Broker

SETTINGS = ("none", "frames", "records")
_T0 = 1_700_000_000_000
_SAMPLE_S = 0.04
_WORDS = [b"%x" % (n * 7919 % 65521) for n in range(300)]


class Work(NamedTuple):
    """Batches of `records` records with values of `size` bytes; `varied`: of any size up to twice that, with keys."""

    name: str
    records: int
    size: int
    codec: int
    varied: bool = False


WORKS = [
    *(Work(f"1 x 100 B, {name}", 1, 100, codec) for codec, name in enumerate(CODEC_NAMES)),
    *(Work(f"150 x 100 B, {name}", 150, 100, codec) for codec, name in enumerate(CODEC_NAMES)),
    *(Work(f"16 x 1 KB, {name}", 16, 1000, codec) for codec, name in enumerate(CODEC_NAMES)),
    Work("150 x 1 to 200 B with keys, none", 150, 100, 0, varied=True),
    Work("5,000 x 100 B, none", 5000, 100, 0),
    Work("5,000 x 100 B, lz4", 5000, 100, 3),
    Work("5,000 x 100 B, zstd", 5000, 100, 4),
    Work("5,000 x 1 to 200 B with keys, none", 5000, 100, 0, varied=True),
]


def batch_of(work: Work) -> bytearray:
    chance = random.Random(work.name)

    def value() -> bytes:
        size = chance.randrange(1, 2 * work.size) if work.varied else work.size
        return b" ".join(chance.choices(_WORDS, k=size // 4 + 1)).ljust(size)[:size]

    key = b"customer-7" if work.varied else None
    rows = [NewRecord(key, value(), (), _T0 + number // 10) for number in range(work.records)]
    return build_batch(rows, codec=work.codec)


def measure(brokers: dict[str, Broker], batch: bytearray, rounds: int) -> dict[str, float]:
    """Microseconds of CPU for one append, for each setting."""
    taken: dict[str, list[float]] = {setting: [] for setting in brokers}
    count = 20
    for number in range(rounds + 1):
        took = 0.0
        for setting in list(brokers) if number % 2 else list(reversed(brokers)):
            broker = brokers[setting]
            took = broker.call(partial(append, broker, batch, count))
            if number:
                taken[setting].append(took * 1e6)
        if not number:  # warms up, and finds how many appends a sample takes
            count = max(20, min(2000, int(_SAMPLE_S / max(took, 1e-6))))
    return {setting: statistics.median(values) for setting, values in taken.items()}


def append(broker: Broker, batch: bytearray, count: int) -> float:
    """Seconds of CPU for one append, on the broker's loop."""
    partition = broker.server.replica_manager.by_name["bench"].partitions[0]
    copies = [memoryview(bytearray(batch)) for _ in range(count)]
    began = time.process_time()
    for copy in copies:
        partition.append(copy, _T0, 9)
    return (time.process_time() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="samples of each setting for each row (default: 15)")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--markdown", action="store_true", help="write the table of docs/performance.md")
    options = parser.parse_args()
    bar = "|" if options.markdown else " "
    titles = f" {bar} ".join(f"{one:>8}" for one in SETTINGS)
    print(f"{bar} {'us of CPU for a batch':34} {bar} KB {bar} {titles} {bar}", flush=True)
    if options.markdown:
        print("|---|---:|---:|---:|---:|")
    for work in WORKS:
        if options.only not in work.name:
            continue
        batch = batch_of(work)
        with contextlib.ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkalite-bench-")))
            brokers = {}
            for setting in SETTINGS:
                settings: dict[str, Any] = {"kafkalite_record_validation": setting, "message_max_bytes": 16 << 20}
                broker = stack.enter_context(Broker(data_dir=home / setting, **settings))
                broker.create_topic("bench")
                brokers[setting] = broker
            found = measure(brokers, batch, options.rounds)
        cells = f" {bar} ".join(f"{found[setting]:8.1f}" for setting in SETTINGS)
        print(f"{bar} {work.name:34} {bar} {len(batch) / 1000:.1f} {bar} {cells} {bar}", flush=True)


if __name__ == "__main__":
    main()
