"""The reader of segment files gives what a stock consumer of the broker gives: row by row, over random histories.

A history is everything that may happen to a topic: compaction, transactions, deleted and expired prefixes, every codec,
formats v0, v1 and v2, headers, nulls, empty segments. A case is one read of it: positions in any form, an isolation
level, 1 to 64 splits, any columns. A few each time, 5,000 in the long form; a failure tells the seed of its topic.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader.topic_history import TopicHistory, Writers

pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

from tests.support.reader.read_case import ReadCase
from tests.support.reader.stock_consumer import StockConsumer

DEEDS = 40
CASES = 25  # of a topic
TOPICS = 200
PARTS = 10


def play(data_dir: Path, seeds: range, cases: int) -> tuple[int, int]:
    """Returns how many reads were compared, and how many rows they had."""
    histories = [TopicHistory(seed) for seed in seeds]
    for history in histories:
        history.write_before(data_dir)
    compared = rows = 0
    with Writers(data_dir, adopt=True) as writers:
        consumers = [StockConsumer(writers.bootstrap, read_committed=level) for level in (False, True)]
        try:
            for history in histories:
                history.create(writers)
                history.live(writers, DEEDS)
                for number in range(cases):
                    consumer, level = consumers[number % 2], number % 2 == 1
                    seed = history.random.randrange(1 << 40)
                    case = ReadCase(seed, history.topic, consumer, history.partitions, read_committed=level)
                    rows += case.check(str(data_dir))
                    compared += 1
                    if number < 2:
                        case.check_whole(str(data_dir))
                history.leave(writers)
        finally:
            for consumer in consumers:
                consumer.close()
    return compared, rows


@pytest.mark.timeout(180)
def test_some_reads_give_what_a_consumer_gives(tmp_path: Path) -> None:
    compared, rows = play(tmp_path, range(1, 5), 10)
    assert compared == 40 and rows > 300, "the topics are empty"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_five_thousand_reads_give_what_a_consumer_gives(part: int, tmp_path: Path) -> None:
    count = TOPICS // PARTS
    first = 1000 + part * count
    compared, rows = play(tmp_path, range(first, first + count), CASES)
    assert compared == count * CASES and rows > 10 * compared
