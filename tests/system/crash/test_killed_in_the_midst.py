"""kill -9 at moments that nobody chose: while topics are made and unmade, offsets committed, records removed, segments
rolled, and while the daemon starts and recovers from the kill before.

Players in this process (see `crash_players`) make the requests, a librdkafka producer writes all the while, and all of
it is compared after every start. Power that fails is another story: here the kernel lives and keeps what was written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.support.wait import DEADLINE_S
from tests.system.crash.crash_line import Line
from tests.system.crash.crash_players import Administrator, Committer, Remover
from tests.system.crash.ledger import PARTITIONS, Ledger, create_topics, read_all

LIFE_S = 0.5  # at most so long after the daemon is ready it is killed


def check_ledger(daemon: Any, ledger: Ledger, until: Callable[..., None]) -> None:
    assert ledger.producer.flush(DEADLINE_S) == 0, "records that nobody answered for"
    assert ledger.refused == []
    for index, records in read_all(daemon.bootstrap, ledger.topic, until).items():
        assert [offset for offset, _ in records] == list(range(len(records))), "no gap, no repeat"
        assert [number for _, number in records] == ledger.sent[index], "each record once, in order"
        at = dict(records)
        wrong = {o: n for o, n in ledger.acknowledged[index].items() if at.get(o) != n}
        assert wrong == {}, "records that are not where they were acknowledged to be"


def test_everything_at_once_and_a_kill_at_any_moment(daemon: Any, rounds: int, until: Callable[..., None]) -> None:
    chance = random.Random(rounds)
    line = Line(daemon.port)
    create_topics(line, ledger=PARTITIONS, removed=1)
    ledger = Ledger(daemon.bootstrap, "ledger", idempotent=True)
    players = [Committer("ledger", PARTITIONS), Administrator(), Remover("removed")]
    for _ in range(rounds):
        ledger.send(ledger.count + 500 - ledger.number)  # what the last round left waiting counts
        daemon.kill_later(chance.uniform(0, LIFE_S))
        try:
            while True:
                ledger.producer.poll(0)
                chance.choice(players).act(line, chance)
        except OSError:  # in the midst of a request
            line.close()
        daemon.kill()
        daemon.start()
        line = Line(daemon.port)
        for player in players:
            player.check(line)
    line.close()
    check_ledger(daemon, ledger, until)


def test_killed_again_and_again_while_it_starts(daemon: Any, rounds: int, until: Callable[..., None]) -> None:
    """A recovery that was killed is completed by the next one."""
    chance = random.Random(rounds)
    line = Line(daemon.port)
    create_topics(line, ledger=PARTITIONS, removed=1)
    ledger = Ledger(daemon.bootstrap, "ledger", idempotent=True)
    players = [Committer("ledger", PARTITIONS), Administrator(), Remover("removed")]
    start_s = 0.3
    deaths = 0
    for _ in range(rounds):
        ledger.send(ledger.count + 300 - ledger.number)
        for _ in range(20):
            for player in players:
                player.act(line, chance)
        line.close()
        daemon.kill()
        for _ in range(chance.randrange(1, 3)):
            deaths += not daemon.begin_and_die(chance.uniform(0.02, start_s))
        daemon.start()
        start_s = min(start.ready_s for start in daemon.starts[-3:])  # one that took long says little of the next
        line = Line(daemon.port)
        for player in players:
            player.check(line)
    line.close()
    check_ledger(daemon, ledger, until)
    assert deaths > rounds // 3, "it was to be killed before it was ready, most of the time"
