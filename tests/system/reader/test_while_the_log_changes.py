"""Reads of a log that changes: between planning and reading, and while it is planned and read.

What the plan has seen is given as it was seen, once; or the error names the file that is gone; or, without
failOnDataLoss, the report has the offsets of exactly those rows that are missing. Of a compacted log what a consumer
still finds is given, and nothing else than was planned. A log that is only written on and rolled gives a prefix of what
a consumer finds in the end.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.reader.topic_history import TopicHistory, Writers

pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

from kafkalite.common.errors import StorageError
from kafkalite.reader.chunk_reader import read_split
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.split import ReadReport, ReadSettings, Split
from tests.support.reader.read_case import ALL, difference, rows_of, schema_of
from tests.support.reader.stock_consumer import Row, StockConsumer

DEEDS = 25
Ranges = dict[int, tuple[int, int]]


def read(splits: list[Split], settings: ReadSettings, report: ReadReport) -> list[Row]:
    return [Row(*row) for split in splits for row in rows_of(read_split(split, schema_of(ALL), settings, report), ALL)]


def options(data_dir: Path, topic: str, *, read_committed: bool, split_bytes: int) -> dict[str, str]:
    return {
        "path": str(data_dir),
        "subscribe": topic,
        "maxPartitionBytes": str(split_bytes),
        "kafka.isolation.level": "read_committed" if read_committed else "read_uncommitted",
    }


def since_start(ranges: Ranges, consumer: StockConsumer, history: TopicHistory) -> Ranges:
    """The ranges without what was deleted since."""
    starts = {index: consumer.bounds(history.topic, index)[0] for index in ranges}
    return {index: (max(start, starts[index]), end) for index, (start, end) in ranges.items()}


def change_and_read(data_dir: Path, seeds: range) -> tuple[int, int, int]:
    """Returns how many reads were whole, refused, and had losses that were reported."""
    whole = refused = lost = 0
    with Writers(data_dir) as writers:
        consumers = [StockConsumer(writers.bootstrap, read_committed=level) for level in (False, True)]
        for seed in seeds:
            history = TopicHistory(seed, begins_old=False)
            draw = history.random
            history.create(writers)
            history.live(writers, DEEDS)
            for _ in range(4):
                level = draw.random() < 0.5
                consumer = consumers[level]
                wanted = options(
                    data_dir, history.topic, read_committed=level, split_bytes=draw.choice((500, 3000, 1 << 20))
                )
                splits = plan(parse_options(wanted))
                ranges = {index: consumer.bounds(history.topic, index) for index in range(history.partitions)}
                before = consumer.read(history.topic, ranges)
                history.live(writers, draw.randrange(1, 12))
                if draw.random() < 0.5:  # file.delete.delay.ms is over
                    for file in data_dir.glob(f"{history.topic}-*/*.deleted"):
                        file.unlink()
                report = ReadReport()
                keeps = draw.random() < 0.5
                try:
                    found = read(splits, ReadSettings(fail_on_data_loss=keeps), report)
                except StorageError as error:
                    assert keeps and history.topic in str(error), f"{history.topic}: {error}"
                    refused += 1
                    continue
                spans = [(one.partition, one.first_offset or 0, one.end_offset or 0) for one in report.lost]
                left = [
                    row for row in before if not any(p == row.partition and a <= row.offset < b for p, a, b in spans)
                ]
                if history.is_compacted:  # as a consumer that comes so late: what is still there must come
                    now = set(consumers[False].read(history.topic, since_start(ranges, consumers[False], history)))
                    kept = set(found)
                    left = [row for row in left if row in kept or row in now]
                assert found == left, f"{history.topic}: {report.lost} {difference(found, left)}"
                whole += not spans
                lost += bool(spans)
            history.leave(writers)
        for consumer in consumers:
            consumer.close()
    return whole, refused, lost


@pytest.mark.timeout(180)
def test_some_logs_that_change_after_planning(tmp_path: Path) -> None:
    assert min(change_and_read(tmp_path, range(50, 58))) > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_logs_that_change_after_planning(tmp_path: Path) -> None:
    assert min(change_and_read(tmp_path, range(3000, 3150))) > 5


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.timeout(180)
def test_a_log_that_is_written_while_it_is_read_gives_a_prefix(read_committed: bool, tmp_path: Path) -> None:
    with Writers(tmp_path) as writers:
        history = TopicHistory(7, begins_old=False, policy="delete")
        history.create(writers)
        history.live(writers, 3)
        failed: list[Exception] = []

        def write() -> None:
            try:
                history.live(writers, 300, ("produce", "raw", "raw", "old", "transact", "end", "end", "roll"))
                history.leave(writers)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        seen: list[list[Row]] = []
        wanted = options(tmp_path, history.topic, read_committed=read_committed, split_bytes=5000)
        while thread.is_alive() or len(seen) < 2:
            seen.append(read(plan(parse_options(wanted)), ReadSettings(), ReadReport()))
        thread.join()
        assert not failed, failed
        consumer = StockConsumer(writers.bootstrap, read_committed=read_committed)
        ranges = {index: consumer.bounds(history.topic, index) for index in range(history.partitions)}
        last = consumer.read(history.topic, ranges)
        consumer.close()
    for found in seen:
        for index in ranges:
            part = [row for row in found if row.partition == index]
            whole = [row for row in last if row.partition == index]
            assert part == whole[: len(part)], difference(part, whole)
    assert len(last) > 500
