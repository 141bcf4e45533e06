"""The language of histories: a step is a name and its arguments, all of them plain values.

So a history is a list that can be printed, shortened, kept, and told to any broker. `plan` makes one of a number.

    send P topic partition count waits      by any producer; waits False: it does not wait for the answer
    send_again P topic partition            the last batch once more
    commit_offset P group topic partition waits       within the transaction of P
    end P commit waits                      EndTxn
    init P                                  the application of P begins anew, and replaces its rivals
    zombie P what topic partition group     a former life of P sends, adds, commits an offset or ends
    commit_plain group topic partition      without a transaction
    fetch_offsets group stable              every offset of the group
    delete_records topic partition share    up to so many percent of the partition
    poll R topic partition max_bytes        reader R goes on a little
    check, wait ms                          everything is compared with the books; time passes
    work n, end_soon calls by torn, kill, power_cut, restart, roll, clean, retain     of the broker, its disk and logs
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

Step = tuple[Any, ...]

ORDERS, SHORT, TABLE = "orders", "short", "table"
PARTITIONS = ((ORDERS, 0), (ORDERS, 1), (SHORT, 0), (TABLE, 0))
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    ORDERS: (2, {"segment.bytes": "1500"}),
    SHORT: (1, {"segment.bytes": "400", "retention.bytes": "800"}),
    TABLE: (1, {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0"}),
}
GROUPS = ("g", "h")
PRODUCERS = {"p0": "a", "p1": "a", "p2": "b"}
"""Transactional ids: two producers share one."""
IDEMPOTENT, PLAIN = "i0", "x0"
READERS = ("r0", "r1")
INTERNAL = (
    ("__transaction_state", 0),
    ("__transaction_state", 1),
    ("__consumer_offsets", 0),
    ("__consumer_offsets", 1),
)

_STEPS = {
    "send": 60, "send_again": 4, "commit_offset": 16, "end": 34, "init": 3, "zombie": 6, "commit_plain": 4,
    "fetch_offsets": 4, "delete_records": 2, "poll": 10, "check": 4, "wait": 8, "work": 8, "end_soon": 7, "kill": 2,
    "power_cut": 2, "restart": 1, "roll": 4, "clean": 4, "retain": 2,
}  # fmt: skip


class Plan(NamedTuple):
    """`flushes`: every append waits for the disk, so the power may fail. `dialects` are those of the producers."""

    seed: int
    flushes: bool
    is_shared: bool
    dialects: tuple[tuple[str, str], ...]
    timeout_ms: int
    steps: tuple[Step, ...]


def plan(seed: int) -> Plan:
    random = Random(seed)
    flushes = random.random() < 0.6
    names = random.choices(list(_STEPS), list(_STEPS.values()), k=random.randint(8, 60))
    dialects = tuple((name, random.choice(("old", "mid", "late", "new", "new"))) for name in PRODUCERS)
    steps = [step for name in names if (step := _step(name, random, flushes)) is not None]
    return Plan(seed, flushes, random.random() < 0.3, dialects, random.choice((15_000, 60_000)), tuple(steps))


def _step(name: str, random: Random, flushes: bool) -> Step | None:
    topic, partition = random.choice(PARTITIONS)
    producer, group = random.choice(tuple(PRODUCERS)), random.choice(GROUPS)
    waits = random.random() < 0.93
    if name == "send":
        by = random.choice((*PRODUCERS, *PRODUCERS, *PRODUCERS, IDEMPOTENT, PLAIN))
        return name, by, topic, partition, random.choice((1, 1, 2, 5)), waits
    if name == "send_again":
        return name, random.choice((*PRODUCERS, IDEMPOTENT)), topic, partition
    if name == "commit_offset":
        return name, producer, group, topic, partition, waits
    if name == "end":
        return name, producer, random.random() < 0.65, waits
    if name == "init":
        return name, producer
    if name == "zombie":
        return name, producer, random.choice(("send", "add", "commit_offset", "end")), topic, partition, group
    if name == "commit_plain":
        return name, group, topic, partition
    if name == "fetch_offsets":
        return name, group, random.random() < 0.5
    if name == "delete_records":
        return name, random.choice((ORDERS, SHORT)), 0, random.choice((10, 50, 100))
    if name == "poll":
        return name, random.choice(READERS), topic, partition, random.choice((1, 200, 1000))
    if name == "wait":
        return name, random.choice((1, 100, 1000, 5000, 20_000, 70_000))
    if name == "work":
        return name, random.choice((1, 1, 2, 5))
    if name == "end_soon":
        by = "power_cut" if flushes and random.random() < 0.6 else "kill"
        return name, random.randint(1, random.choice((3, 10, 30))), by, random.choice((None, random.randint(0, 200)))
    if name == "power_cut" and not flushes:
        return None
    if name in ("roll", "clean"):
        places = (*PARTITIONS, *INTERNAL) if name == "roll" else ((TABLE, 0), (TABLE, 0), *INTERNAL)
        return name, *random.choice(places)
    return (name,)
