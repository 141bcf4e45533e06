"""The same histories, as far as they can be told from outside, end in the same records and group offsets on Apache
Kafka 3.9.1.

Kafka also passes the checker itself, so the books say what Kafka does. Values are compared in their order, not their
offsets: Kafka writes markers a moment after the answer, so a marker and the next record may change places. Histories
share one Kafka and are told to it side by side, since most of their time is waiting.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable, reference_kafka
from tests.support.transactions.history import History, run
from tests.support.transactions.socket_driver import SocketDriver
from tests.support.transactions.steps import OUTSIDE_TIMEOUT_MS, outside, plan

HISTORIES = 60
AT_ONCE = 6
_SCAN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_SETTLES_MS = OUTSIDE_TIMEOUT_MS + 2_000
_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.enable": "false",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[str, int]]:
    running = reference_kafka(heap="512m", properties=_SCAN | _SETTINGS)
    try:
        host, _, port = running.__enter__().bootstrap.rpartition(":")
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    yield host, int(port)
    running.__exit__(None, None, None)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_same_records_are_committed(kafka: tuple[str, int]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        theirs = list(threads.map(lambda seed: _told_to(kafka, seed), range(HISTORIES)))
    root = tempfile.mkdtemp(prefix="kafkalite-transactions-")
    try:
        for seed, their in enumerate(theirs):
            ours = run(root, outside(plan(seed)), _SCAN)
            assert ours.committed == their.committed, f"history {seed}"
            assert ours.offsets == their.offsets, f"history {seed}"
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _told_to(address: tuple[str, int], seed: int) -> History:
    driver = SocketDriver(address, f"{Path(__file__).stem}-{seed}-", _SETTLES_MS)
    try:
        history = History(driver, outside(plan(seed)))
        try:
            history.play()
        except Exception as error:
            raise AssertionError(f"history {seed}: {error}") from error
        return history
    finally:
        driver.close()
