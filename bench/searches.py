"""`python -m bench searches`: what filtered searches of the console cost, by the processor time of its process.

Each search goes through all of a topic for what no record has: records of 100 bytes and of 1 KB, of JSON, without a
codec and by lz4 and zstd, in batches of about 100 KB. MB are those of keys and values, whatever the codec makes of
them. The console is a process of its own beside the broker; processor time of the broker is given apart, since it
counts however busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.compaction import fill
from bench.console import await_console
from bench.keyed_log import CODECS, KeyedLog
from bench.reference.kafka import free_port
from bench.report import machine
from bench.session import Session
from bench.startup import kafkalite_launcher, started
from bench.usage import ProcessTree

_LIMIT_S = 600.0
_TICK_S = 0.01  # of the system's count of processor time
_BATCH_BYTES = 100_000
_RECORD_BYTES = (100, 1000)
_LIMITS = {"limit": 50, "max_bytes": 64 << 30, "max_records": 10_000_000, "max_ms": 600_000}
_FILTERS = {
    "text": {"value": "no record has these words"},
    "text, any case": {"value": "No Record HAS", "value_match": "contains_any_case"},
    "key equals": {"key": "12345678901", "key_match": "equals"},
    "$.state=closed": {"value": "$.state=closed", "value_match": "json"},
    "$.id>100": {"value": "$.id>100", "value_match": "json"},
    "regular expression": {"value": "clos(ed|ing)", "value_match": "regex"},
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench searches", description=__doc__)
    parser.add_argument("--size-mb", type=int, default=100, help="of each topic (default: %(default)s)")
    parser.add_argument("--times", type=int, default=3, help="each search (default: %(default)s)")
    parser.add_argument("--forwards", action="store_true", help="from the beginning (default: from the newest record)")
    options = parser.parse_args(arguments)
    place = "beginning" if options.forwards else "end"
    print(machine())
    print("| records | filter | MB/s of the console's processor time | of both | of time |\n|---|---|---:|---:|---:|")
    with started(kafkalite_launcher()) as broker, _console(broker.bootstrap) as (address, process):
        session = Session(broker.bootstrap, broker.process)
        for codec in CODECS:
            for record_bytes in _RECORD_BYTES:
                count = options.size_mb * 1_000_000 // record_bytes
                log = KeyedLog(count, count, _BATCH_BYTES // record_bytes, record_bytes, codec)
                with session.topic(f"searches-{codec}") as topic:
                    fill(session, topic, log)
                    for name, words in _FILTERS.items():
                        query = {**_LIMITS, "from": place, **words}
                        found = [
                            _search(address, topic, query, (process, broker.process)) for _ in range(options.times)
                        ]
                        rates = [
                            count * record_bytes / 1e6 / statistics.median(each) for each in zip(*found, strict=True)
                        ]
                        cells = " | ".join(f"{rate:,.0f}" for rate in rates)
                        print(f"| {record_bytes} B, {codec} | {name} | {cells} |", flush=True)
    return 0


@contextmanager
def _console(bootstrap: str) -> Iterator[tuple[str, ProcessTree]]:
    address = f"127.0.0.1:{free_port()}"
    words = [sys.executable, "-m", "kafkalite", "console", "-b", bootstrap, "--listen", address]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            await_console(address)
            yield address, ProcessTree(process.pid)
        finally:
            process.terminate()


def _search(
    address: str, topic: str, query: dict[str, Any], processes: tuple[ProcessTree, ProcessTree]
) -> tuple[float, float, float]:
    """Processor seconds of the console, of console and broker, and the seconds that it took."""
    before = [each.cpu().total_s for each in processes]
    url = f"http://{address}/api/topics/{topic}/messages?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
        done = json.loads(answer.read().rsplit(b"data: ", 1)[1])
    assert done["reason"] == "end" and not done["matched"] and done["scanned"] == done["total"], done
    console, broker = (each.cpu().total_s - last for each, last in zip(processes, before, strict=True))
    return max(console, _TICK_S), max(console + broker, _TICK_S), max(done["elapsed_ms"], 1) / 1000
