"""An application that copies in transactions, and its broker, are killed with -9 again and again.

The ledger of the input lives in this process, which nobody kills. In the end each of its records is exactly once in the
output as a read_committed consumer sees it, the offsets of the group are at the end of the input, and no transaction is
open. Kills come while a transaction is begun, written, given offsets or ended, and while the application or the broker
starts. Some processes of the application are not killed but paused until the next has taken over: they must end by
themselves, and nothing of theirs may count.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system.crash.copy_job import CopyJob, await_copied, check_copies, feeding
from tests.system.crash.crash_line import Line
from tests.system.crash.ledger import PARTITIONS, Ledger, create_topics
from tests.system.crash.transactional_copy import OUTPUT_PARTITIONS, input_topic, output_topic

LONG = [
    pytest.param(client, 200, marks=[pytest.mark.long, pytest.mark.timeout(3600)]) for client in ("confluent", "raw")
]
MOMENTS = ("began", "wrote", "offered", "ended")
PAUSE_S = 0.02  # at most so long after such a moment
START_S = 0.3  # or after the start of a process


SHORT = [("confluent", 5), ("raw", 5)]


@pytest.mark.parametrize(("client", "kills"), [*SHORT, *LONG], ids=str)
def test_each_record_is_copied_once(daemon: Any, tmp_path: Path, client: str, kills: int) -> None:
    chance = random.Random(kills)
    line = Line(daemon.port)
    create_topics(line, **{input_topic("copy"): PARTITIONS, output_topic("copy"): OUTPUT_PARTITIONS})
    line.close()
    ledger = Ledger(daemon.bootstrap, input_topic("copy"), idempotent=True)
    job = CopyJob("copy", daemon.bootstrap, tmp_path / "job.txt", client)
    try:
        with feeding(ledger):
            job.begin()
            for number in range(kills):
                strike(daemon, job, chance, number)
        await_copied(job, ledger)
        job.stop()
    finally:
        job.close()
    daemon.kill()
    daemon.start()
    check_copies(job, lambda *_: daemon.port, ledger)


def strike(daemon: Any, job: CopyJob, chance: random.Random, number: int) -> None:
    """One kill of the application, of the broker, or of both."""
    if number % 4:
        job.await_word("ended" if number % 4 == 3 else chance.choice(MOMENTS))
        time.sleep(chance.uniform(0, PAUSE_S))
    else:
        time.sleep(chance.uniform(0, START_S))  # after the start of one of them
    victim = chance.choice(("application", "broker", "broker", "both", "paused application"))
    if victim == "paused application":
        replace(job, chance)
    elif victim == "application":
        job.kill()
        job.begin()
    elif victim == "broker":
        daemon.kill()
        daemon.start()
    else:
        daemon.kill()
        job.kill()
        job.begin()
        daemon.start()


def replace(job: CopyJob, chance: random.Random) -> None:
    """The process is paused until another has taken over. It has begun; else it would take over when it resumes."""
    job.await_word(chance.choice(MOMENTS))
    before = job.hand_over()
    before.pause()
    try:
        job.begin()
        job.await_word("ended")
        before.resume()
        before.await_fenced()
    finally:
        before.close()
