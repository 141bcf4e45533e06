"""The language of histories: a step is a name and its arguments, all of them plain values.

So a history is a list that can be printed, shortened, kept, and told to any broker. `plan` makes one of a number.

    send P topic partition count how        by any producer; how: WAITS, LEAVES at once, or comes LATE
    send_again P topic partition            the last batch once more
    commit_offset P group topic partition how         within the transaction of P
    end P commit how                        EndTxn
    init P                                  the application of P begins anew, and replaces its rivals
    zombie P what topic partition group     a former life of P sends, adds, commits an offset or ends
    commit_plain group topic partition      without a transaction
    fetch_offsets group stable              every offset of the group
    delete_records topic partition share    up to so many percent of the partition
    poll R topic partition max_bytes        reader R goes on a little
    deliver                                 the oldest late request comes
    send_fleeting P count, delete_fleeting  to a topic that is made for it and may be deleted meanwhile
    check, wait ms                          everything is compared with the books; time passes
    refuse topic times                      the disk refuses so many writes to logs of the topic
    work n, end_soon calls by torn, kill, power_cut, restart, roll, clean, retain     of the broker, its disk and logs
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

Step = tuple[Any, ...]

WAITS, LEAVES, LATE = "waits", "leaves", "late"
"""A client waits for its answer, or not; or its request reaches the broker at the next `deliver`, or never."""

ORDERS, SHORT, TABLE = "orders", "short", "table"
PARTITIONS = ((ORDERS, 0), (ORDERS, 1), (SHORT, 0), (TABLE, 0))
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    ORDERS: (2, {"segment.bytes": "1500"}),
    SHORT: (1, {"segment.bytes": "400", "retention.bytes": "800"}),
    TABLE: (1, {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0"}),
}
FLEETING = "fleeting"
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

OPERATIONS = frozenset(("refuse", "work", "end_soon", "kill", "power_cut", "restart", "roll", "clean", "retain"))
"""Steps of the driver, not of a client."""

_STEPS = {
    "send": 60, "send_again": 4, "commit_offset": 16, "end": 34, "init": 3, "zombie": 6, "commit_plain": 4,
    "deliver": 10, "refuse": 4, "send_fleeting": 4, "delete_fleeting": 2,
    "fetch_offsets": 4, "delete_records": 2, "poll": 10, "check": 4, "wait": 8, "work": 8, "end_soon": 7, "kill": 2,
    "power_cut": 2, "restart": 1, "roll": 4, "clean": 4, "retain": 2,
}  # fmt: skip


class Plan(NamedTuple):
    """`flushes`: every append waits for the disk, so the power may fail. `dialects` are those of the producers.

    `last_epoch` is the last one that a producer id is used with, `expires_ms` is when an idle transactional id is
    forgotten; None: as ever, longer than any history."""

    seed: int
    flushes: bool
    is_shared: bool
    dialects: tuple[tuple[str, str], ...]
    timeout_ms: int
    steps: tuple[Step, ...]
    last_epoch: int | None = None
    expires_ms: int | None = None


def plan(seed: int) -> Plan:
    random = Random(seed)
    flushes = random.random() < 0.6
    names = random.choices(list(_STEPS), list(_STEPS.values()), k=random.randint(8, 60))
    dialects = tuple((name, random.choice(("old", "mid", "late", "new", "new"))) for name in PRODUCERS)
    steps = [step for name in names if (step := _step(name, random, flushes)) is not None]
    last_epoch = random.choice((1, 2, 4)) if random.random() < 0.2 else None
    expires_ms = 40_000 if random.random() < 0.2 else None
    is_shared, timeout_ms = random.random() < 0.3, random.choice((15_000, 60_000))
    return Plan(seed, flushes, is_shared, dialects, timeout_ms, tuple(steps), last_epoch, expires_ms)


def _step(name: str, random: Random, flushes: bool) -> Step | None:
    topic, partition = random.choice(PARTITIONS)
    producer, group = random.choice(tuple(PRODUCERS)), random.choice(GROUPS)
    how = WAITS if random.random() < 0.9 else random.choice((LEAVES, LATE))
    if name == "send":
        by = random.choice((*PRODUCERS, *PRODUCERS, *PRODUCERS, IDEMPOTENT, PLAIN))
        return name, by, topic, partition, random.choice((1, 1, 2, 5)), how
    if name == "send_again":
        return name, random.choice((*PRODUCERS, IDEMPOTENT)), topic, partition
    if name == "commit_offset":
        return name, producer, group, topic, partition, how
    if name == "end":
        return name, producer, random.random() < 0.65, how
    if name == "init":
        return name, producer
    if name == "refuse":
        return name, random.choice((*TOPICS, *dict(INTERNAL))), random.choice((1, 2, 5))
    if name == "send_fleeting":
        return name, producer, random.choice((1, 3))
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


OUTSIDE_TIMEOUT_MS = 3_000


def outside(told: Plan) -> Plan:
    """As much of a plan as can be told to any broker of Kafka's version 3.9: nothing that only its operator does, no
    client of a later version, and real time: a wait is long enough for a transaction to time out, or it is none."""
    steps = []
    for step in told.steps:
        if step[0] in OPERATIONS:
            continue
        if step[0] == "wait":
            step = "wait", OUTSIDE_TIMEOUT_MS + 1_500 if step[1] >= 20_000 else 1
        steps.append(step)
    dialects = tuple((name, "late" if dialect == "new" else dialect) for name, dialect in told.dialects)
    ordinary = told._replace(last_epoch=None, expires_ms=None)
    return ordinary._replace(dialects=dialects, timeout_ms=OUTSIDE_TIMEOUT_MS, steps=tuple(steps))
