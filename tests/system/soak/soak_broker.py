"""The broker of the soak as a process that can be asked what it holds.

It embeds `kafkalite.Broker`, as a program would, and reads questions from its standard input, a word to a line, which
it answers with one line of JSON each: `where` the broker listens, what it holds now (`count`), what kinds of objects
Python's collector knows (`kinds`), and `stop`. Its log goes to standard error. Everything that must come to an end (a
connection, a waiter, a member) is counted where the broker itself keeps it; a counter that lies would hide a leak, a
second one beside it could lie.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

import kafkalite

COMMON_KINDS = 60


def descriptors() -> dict[str, int]:
    """Open descriptors by what they are: socket, data (a file of a log), removed (unlinked and still open), other."""
    kinds: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the directory that is being listed
        if target.startswith("socket:"):
            kinds["socket"] += 1
        elif target.endswith(" (deleted)"):
            kinds["removed"] += 1
        else:
            kinds["data" if target.endswith(("log", "index")) else "other"] += 1
    return dict(kinds)


def count(broker: kafkalite.Broker) -> dict[str, Any]:
    """The resources that the broker holds now."""
    server = broker.server
    processors = server.server.processors
    logs = server.logs.logs.values()
    groups = server.groups.store.by_id.values()
    partitions = [partition for topic in server.replica_manager for partition in topic.partitions.values()]
    return {
        "tasks": len(asyncio.all_tasks()),
        "connections": server.server.connection_count,
        "parked": sum(one.has_pending_response for processor in processors for one in processor.connections),
        "requests": sum(processor.requests for processor in processors),
        "megabytes_in": sum(processor.bytes_in for processor in processors) >> 20,
        "delayed_operations": sum(len(partition.delayed_operations) for partition in partitions),
        "group_timers": server.groups.timer_count,
        "groups": len(groups),
        "members": sum(len(group.members) for group in groups),
        "group_states": dict(Counter(group.state.value for group in groups)),
        "logs": len(logs),
        "segments": sum(len(log.segments) for log in logs),
        "producers": sum(len(log.producers) for log in logs),
        "descriptors": descriptors(),
    }


def kinds() -> dict[str, int]:
    """How many objects of the commonest types the collector tracks."""
    gc.collect()
    tracked = gc.get_objects()
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in tracked)
    return {"all": len(tracked), **dict(found.most_common(COMMON_KINDS))}


async def main(data_dir: Path, settings: dict[str, object]) -> None:
    loop = asyncio.get_running_loop()
    questions = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    async with kafkalite.Broker(data_dir=data_dir, port=0, **settings) as broker:
        while line := (await questions.readline()).decode().strip():
            if line == "stop":
                break
            if line == "where":
                answer: Any = broker.bootstrap_servers
            else:
                answer = count(broker) if line == "count" else kinds()
            print(json.dumps(answer), flush=True)
    gc.collect()  # a task whose failure nobody took says so when it goes


if __name__ == "__main__":
    logging.basicConfig(
        stream=sys.stderr, level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
