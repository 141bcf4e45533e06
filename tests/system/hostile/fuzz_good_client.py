"""A well-behaved client in a process of its own: produces a record, fetches it, and again; times every request.

    python -m fuzz_good_client 127.0.0.1:9092 a-topic

Each line on its standard input has it print what it has seen since the last one, as a line of JSON; the end of the
input ends it. A request that takes longer than `REQUEST_S_MAX`, or that is answered badly, ends it with a traceback.
"""

from __future__ import annotations

import json
import selectors
import sys
import time

from bench import wire
from bench.records import record_batch

REQUEST_S_MAX = 30.0


def main(bootstrap: str, topic: str) -> None:
    told = selectors.DefaultSelector()
    told.register(sys.stdin, selectors.EVENT_READ)
    with wire.Connection(bootstrap, timeout_s=REQUEST_S_MAX) as connection:
        batch = record_batch(1, 100)
        produce = wire.produce_frame(topic, 0, batch)
        took_s: list[float] = []
        while True:
            began_s = time.perf_counter()
            offset = connection.produce(produce)
            produced_s = time.perf_counter()
            answer = connection.exchange(wire.fetch_frame(topic, 0, offset, 1 << 16))
            fetched_s = time.perf_counter()
            assert batch[21:] in bytes(answer._data), "what was produced was not what was fetched"
            took_s += [produced_s - began_s, fetched_s - produced_s]
            if told.select(0):
                if not sys.stdin.readline():
                    return
                took_s.sort()
                print(json.dumps(figures(took_s)), flush=True)
                took_s = []


def figures(took_s: list[float]) -> dict[str, float]:
    """How many requests, and how long half of them, 99 of 100 and all of them took at most, in milliseconds."""
    count = len(took_s)
    at = {"p50_ms": count // 2, "p99_ms": count * 99 // 100, "max_ms": count - 1}
    return {"requests": count} | {name: round(took_s[index] * 1000, 3) for name, index in at.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
