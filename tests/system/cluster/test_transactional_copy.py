"""An application copies in transactions while brokers are killed with -9: the coordinator of its transactions, that of
its group, leaders of partitions it writes to, and itself.

Each partition has one replica and comes back with its broker. In the end each record of the input, of which this
process keeps a ledger, is exactly once in the output as a read_committed consumer sees it, the offsets of the group are
at the end of the input, and no transaction is open.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.wait import until
from tests.system.cluster.members import Cluster
from tests.system.crash.copy_job import CopyJob, await_copied, check_copies, feeding
from tests.system.crash.ledger import PARTITIONS, Ledger
from tests.system.crash.transactional_copy import OUTPUT_PARTITIONS, input_topic, output_topic

CLIENTS = ("confluent", "raw")
SHORT = [(client, 4) for client in CLIENTS]
LONG = [pytest.param(client, 200, marks=[pytest.mark.long, pytest.mark.timeout(7200)]) for client in CLIENTS]
AWAY_S = 0.5  # at most
PAUSE_S = 0.02  # after a moment of a transaction, at most
MOMENTS = ("began", "wrote", "offered", "ended")


@pytest.mark.parametrize(("client", "kills"), [*SHORT, *LONG], ids=str)
def test_each_record_is_copied_once(
    cluster: Cluster, tmp_path: Path, client: str, kills: int, report: Callable[[str], None]
) -> None:
    chance = random.Random(kills)
    name = f"copy-{uuid.uuid4().hex[:8]}"
    ids = sorted(cluster.members)
    cluster.create(input_topic(name), [ids[i % 3] for i in range(PARTITIONS)])
    cluster.create(output_topic(name), [ids[i % 3] for i in range(OUTPUT_PARTITIONS)])
    until(lambda: cluster.transaction_coordinator(name) in cluster.members, "a coordinator")
    ledger = Ledger(cluster.bootstrap, input_topic(name), idempotent=True)
    job = CopyJob(name, cluster.bootstrap, tmp_path / "job.txt", client)
    back_s: list[float] = []
    try:
        with feeding(ledger):
            job.begin()
            for number in range(kills):
                job.await_word("ended")
                job.await_word(chance.choice(MOMENTS))
                time.sleep(chance.uniform(0, PAUSE_S))
                struck = time.monotonic()
                strike(cluster, job, chance, number)
                job.await_word("ended")
                back_s.append(time.monotonic() - struck)
        await_copied(job, ledger)
        job.stop()
    finally:
        job.close()
    leaders = {topic: cluster.leaders(topic) for topic in (ledger.topic, output_topic(name))}
    check_copies(job, lambda topic, index: cluster.members[leaders[topic][index]].port, ledger)
    median_s = sorted(back_s)[len(back_s) // 2]
    report(
        f"{kills} kills of brokers and of an application ({client}) that copies in transactions: {ledger.number} "
        f"records, each copied once; it went on after {median_s:.1f} s (at most {max(back_s):.1f} s)"
    )


def strike(cluster: Cluster, job: CopyJob, chance: random.Random, number: int) -> None:
    """In turn: the coordinator of the transactions, a leader of the output, the application, and two at once."""
    coordinator = cluster.transaction_coordinator(job.name)
    leader = chance.choice(list(cluster.leaders(output_topic(job.name)).values()))
    which = number % 4
    if which == 2:
        job.kill()
        job.begin()
        return
    victims = {0: {coordinator}, 1: {leader}, 3: {coordinator, chance.choice(list(cluster.members))}}[which]
    for victim in victims:
        cluster.members[victim].kill()
    if which == 3 and chance.random() < 0.5:
        job.kill()
        job.begin()
    time.sleep(chance.uniform(0, AWAY_S))
    cluster.start()
