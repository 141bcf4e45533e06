"""An application that may be killed at any moment: copies an input topic to an output topic, in transactions.

    python -m tests.system.crash.transactional_copy CLIENT BOOTSTRAP NAME

NAME is that of its transactional id and its group, and the topics are NAME-input and NAME-output.
A transaction reads some records, writes a copy of each, and commits the offsets of its group with them. Now and then
one is aborted and done again. The group's one member is static: the next process takes its place at once.

It says on standard output what it has done, a word and a number in a line: `ready`, and for each transaction `began`,
`wrote`, `offered` (its offsets) and `ended`. An exit code of FENCED means that another process with the same
transactional id has taken over. It ends politely on SIGTERM; on SIGUSR1 it says where it is.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
from collections.abc import Iterable

from tests.system.crash.copy_clients import CLIENTS, Abortable, Client, InputRecord

OUTPUT_PARTITIONS = 3
ABORTED = 0.1  # of the transactions, on purpose
FENCED = 7


def input_topic(name: str) -> str:
    return f"{name}-input"


def output_topic(name: str) -> str:
    return f"{name}-output"


def copy_of(record: InputRecord) -> bytes:
    """Names the record that it is a copy of."""
    return b"%d/%d=%s" % (record.partition, record.offset, record.value)


def output_partition(record: InputRecord) -> int:
    return (record.partition + record.offset) % OUTPUT_PARTITIONS


def say(word: str, number: int = 0) -> None:
    print(word, number, flush=True)


def run(client: Client, stopping: threading.Event) -> None:
    """Copies until it is stopped."""
    client.open()
    say("ready")
    number = 0
    while not stopping.is_set():
        records = client.poll()
        if not records:
            continue
        number += 1
        try:
            copy(client, records, number)
        except Abortable as why:
            print(f"transaction {number} is aborted: {why}", file=sys.stderr, flush=True)
            client.abort()
            client.rewind()
        say("ended", number)
    client.close()


def copy(client: Client, records: Iterable[InputRecord], number: int) -> None:
    """One transaction."""
    client.begin()
    say("began", number)
    next_offsets = {}
    for record in records:
        client.send(output_partition(record), copy_of(record))
        next_offsets[record.partition] = record.offset + 1
    if random.random() < 0.5:
        client.flush()
    say("wrote", number)
    client.offer_offsets(next_offsets)
    say("offered", number)
    if random.random() < ABORTED:
        raise Abortable("on purpose")
    client.commit()


def main(arguments: list[str]) -> int:
    kind, bootstrap, name = arguments
    stopping = threading.Event()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    client = CLIENTS[kind](bootstrap, name, input_topic(name), output_topic(name))
    try:
        run(client, stopping)
    except Exception as error:
        if not client.is_fencing(error):
            raise
        print(f"fenced: {error}", file=sys.stderr, flush=True)
        os._exit(FENCED)  # librdkafka 2.16 sometimes crashes when a fenced producer is destroyed
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
