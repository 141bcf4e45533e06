"""A fail-over between two clusters: a consumer moves to the other one, and goes on where it was.

    python -m examples.fail_over

Two brokers stand for two clusters, `west` and `east`, and `kafkalite mirror` copies from west to east. A group reads
about half of the orders in the west, whose offsets are others than those of the copies. Then west is killed; orders are
written to the east from now on, and the group reads on there. At the end every order is counted and drawn.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from confluent_kafka import Consumer, Producer, TopicPartition

import kafkalite

TOPIC, COPY, GROUP = "orders", "west.orders", "billing"
IN_WEST, IN_EAST, PARTITIONS = 8_000, 2_000, 4
A_TRANSACTION = 100  # orders; its end takes an offset in each partition, at the source and at the target
CELL = 50  # orders of a character of the picture
PATIENCE_S = 60


def produce(bootstrap_servers: str, numbers: range) -> None:
    """Orders with these numbers, round robin over the partitions, in transactions."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions()
    for first in range(numbers.start, numbers.stop, A_TRANSACTION):
        producer.begin_transaction()
        for number in range(first, min(first + A_TRANSACTION, numbers.stop)):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
        producer.commit_transaction()


def consume(bootstrap_servers: str, topics: Sequence[str], is_enough: Callable[[list[int]], bool]) -> list[int]:
    """The numbers of the group's next orders until they are enough; then it commits, and its consumer ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 2_000,  # a few transactions of each partition at a time
        }
    )
    consumer.subscribe(list(topics))
    numbers: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(numbers) and time.monotonic() < deadline:
        found = consumer.consume(100, timeout=1.0)
        numbers += [int(record.value() or b"") for record in found if record.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return numbers


def committed(bootstrap_servers: str, topic: str) -> list[int]:
    """The offsets of the group in each partition, negative where there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP})
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 10)
    consumer.close()
    return [one.offset for one in found]


@contextlib.contextmanager
def mirror(west: str, east: str, log: IO[str]) -> Iterator[str]:
    """`kafkalite mirror` as a process; yields the address of its metrics."""
    words = ["--from", f"west={west}", "--to", east, "--to-alias", "east", "--metrics", "127.0.0.1:0"]
    words += ["--refresh-interval", "0.5", "--groups-interval", "0.5"]  # an example cannot wait for 5 s
    command = [sys.executable, "-u", "-m", "kafkalite", "mirror", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        if address is None:
            raise SystemExit("the mirror did not start")
        yield address[0]
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def metric(address: str, name: str) -> int:
    """A metric of the mirror, summed over its partitions of the topic."""
    with urllib.request.urlopen(address, timeout=10) as response:
        text = response.read().decode()
    pattern = rf'^kafkalite_mirror_{name}{{.*topic="{TOPIC}".*}} (\S+)$'
    return sum(int(float(value)) for value in re.findall(pattern, text, re.MULTILINE))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"this did not happen within {PATIENCE_S} s: {what}")
        time.sleep(0.05)


def picture(in_west: Sequence[int], in_east: Sequence[int]) -> str:
    """A line for each partition, a character for CELL orders of it: where they were read."""
    readers = dict.fromkeys(in_east, "=") | dict.fromkeys(in_west, "#")
    lines = []
    for partition in range(PARTITIONS):
        found = [readers.get(number, "?") for number in range(partition, IN_WEST + IN_EAST, PARTITIONS)]
        cells = ["".join(found[at : at + CELL]) for at in range(0, len(found), CELL)]
        lines.append(f"  partition {partition} " + "".join(Counter(cell).most_common(1)[0][0] for cell in cells))
    return "\n".join([*lines, f"  {CELL} orders each: # read in the west, = in the east, ? not at all"])


def story(place: Path) -> tuple[list[int], list[int]]:
    """The numbers of the orders that the group has read in the west, and then in the east."""
    with (
        (place / "mirror.log").open("w") as log,
        kafkalite.Broker(data_dir=place / "east", port=0) as east,
        kafkalite.Broker(data_dir=place / "west", port=0) as west,
        mirror(west.bootstrap_servers, east.bootstrap_servers, log) as metrics,
    ):
        for broker in (west, east):
            broker.create_topic(TOPIC, partitions=PARTITIONS)
        produce(west.bootstrap_servers, range(IN_WEST))
        wait_until(lambda: metric(metrics, "records_total") == IN_WEST, "the mirror copies all orders")
        wait_until(lambda: metric(metrics, "lag_records") == 0, "the mirror has no lag")
        print(f"{IN_WEST:,} orders are in the west, and in the east: the mirror's lag is 0", flush=True)

        before = consume(west.bootstrap_servers, [TOPIC], lambda read: len(read) >= IN_WEST // 2)
        here = committed(west.bootstrap_servers, TOPIC)
        print(f"the group {GROUP!r} has read {len(before):,} of them in the west, up to the offsets {here}", flush=True)
        absent = [offset < 0 for offset in here]
        wait_until(
            lambda: [offset < 0 for offset in committed(east.bootstrap_servers, COPY)] == absent,
            "the mirror translates the offsets of the group",
        )
        print(f"in the east, these are {committed(east.bootstrap_servers, COPY)}", flush=True)

        west.crash()
        print("west is killed; the shop and the group move to the east", flush=True)
        produce(east.bootstrap_servers, range(IN_WEST, IN_WEST + IN_EAST))
        orders, known = frozenset(range(IN_WEST + IN_EAST)), frozenset(before)
        after = consume(east.bootstrap_servers, [COPY, TOPIC], lambda read: orders <= known.union(read))
        fresh = sum(1 for number in after if number >= IN_WEST)
        print(f"it has read {len(after):,} there: {len(after) - fresh:,} copies, {fresh:,} new ones", flush=True)
    return before, after


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kafkalite-example-") as place:
        before, after = story(Path(place))
    print(picture(before, after))
    seen = Counter(before + after)
    missing = IN_WEST + IN_EAST - len(seen)
    print(f"{len(seen):,} orders were read: {missing} are missing, {seen.total() - len(seen)} were read twice")
    if missing:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
