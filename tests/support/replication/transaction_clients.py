"""A stock transactional producer in a random history: what it committed is there, whole and once.

Each transaction puts its number into both partitions of MOVES and into the offset of a group. Some are aborted; now and
then another producer with the same transactional.id takes over in the middle of one, which then must not be committed.
Promised of the end: a transaction whose commit was acknowledged is read in both partitions, once; one that was aborted,
or never asked to be committed, in none; one of unknown outcome in both or in none. The group's offset is that of the
last one which is read. No transaction is left open: the last one is read, too.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from random import Random

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.support.replication.live_cluster import LOG, QUICK, Reachable, new_consumer, read_all
from tests.support.wait import DEADLINE_S, until

MOVES = "moves"
PARTITIONS = 2
GROUP = "movers"
_PAUSE_S = 0.02
_CALL_S = 5.0  # of a client's call; it is repeated
_STUCK_S = 4 * _CALL_S
_ABORTS, _TAKE_OVERS = 0.2, 0.05


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class _Stuck(Exception):
    """A call of the client does not come back."""


def _apart(call: Callable[[float], object]) -> Future[None]:
    """Make the call in a thread of its own, which does not keep the process alive."""
    future: Future[None] = Future()

    def work() -> None:
        try:
            call(_CALL_S)
        except BaseException as fault:
            future.set_exception(fault)
        else:
            future.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    return future


class TransactionClients:
    """One producer at a time, in a thread, between `start` and `finish`. `outcomes` are those of all transactions, by
    their numbers."""

    def __init__(self, cluster: Reachable, seed: object) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._cluster = cluster
        self._rng = Random(f"transactions {seed}")
        self._done = threading.Event()
        self._faults: list[str] = []
        self._consumer = new_consumer(cluster, group_id=GROUP)  # its group gets the offsets
        self._thread = threading.Thread(target=self._guarded)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """The cluster is whole: the transaction under way ends, and one more."""
        self._done.set()
        self._thread.join(3 * DEADLINE_S)
        if self._thread.is_alive():
            self._faults.append(f"transaction {len(self.outcomes)} does not end")

    def check(self) -> None:
        """Raises AssertionError."""
        assert not self._faults, self._faults[:3]
        last = max(self.outcomes)
        assert self.outcomes[last] is Outcome.COMMITTED, "the last one, on a cluster that is whole"
        read = [Counter(map(int, self._read(partition, last).values())) for partition in range(PARTITIONS)]
        faults = violations(self.outcomes, read)
        assert not faults, faults[:3]
        seen = max(number for counts in read for number in counts)
        offset = self._committed()
        assert offset == seen + 1, f"the group stands at {offset}, the last transaction is {seen}"
        self._consumer.close()

    def _committed(self) -> int:
        found: list[TopicPartition] = []

        def has_answered() -> bool:
            try:
                found.extend(self._consumer.committed([TopicPartition(MOVES, 0)], timeout=_CALL_S))
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() != confluent_kafka.KafkaError.NOT_COORDINATOR:
                    raise
            return bool(found)

        until(has_answered, "the offset of the group")
        return int(found[0].offset)

    def _read(self, partition: int, last: int) -> dict[int, bytes]:
        content: dict[int, bytes] = {}

        def is_there() -> bool:
            content.clear()
            content.update(read_all(self._cluster, MOVES, partition, isolation_level="read_committed"))
            return b"%d" % last in content.values()

        def seen() -> str:
            stored = read_all(self._cluster, MOVES, partition, isolation_level="read_uncommitted")
            tail = {offset: stored[offset] for offset in sorted(stored)[-5:]}
            return (
                f"transaction {last} in {MOVES}-{partition}: committed up to {max(content, default=None)}, "
                f"stored {tail}, outcomes {list(self.outcomes.items())[-5:]}"
            )

        until(is_there, seen)
        return content

    # -- the producer

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as fault:
            self._faults.append(repr(fault))

    def _work(self) -> None:
        producer = self._new_producer()
        for number in itertools.count():
            is_last = self._done.is_set()
            producer = self._transact(producer, number, is_last)
            if is_last and self.outcomes[number] is Outcome.COMMITTED:
                return
            self._done.wait(_PAUSE_S)

    def _new_producer(self) -> confluent_kafka.Producer:
        """It takes over the transactional.id: a transaction of another one is over when this returns."""
        while True:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self._cluster.bootstrap_servers,
                    "transactional.id": "mover",
                    "linger.ms": 0,
                    **QUICK,
                },
                logger=LOG,
            )
            for _ in range(int(DEADLINE_S)):
                try:
                    producer.init_transactions(_CALL_S)
                except confluent_kafka.KafkaException as error:
                    if not error.args[0].retriable():
                        break
                else:
                    return producer

    def _transact(self, producer: confluent_kafka.Producer, number: int, is_last: bool) -> confluent_kafka.Producer:
        """One transaction; the producer of the next."""
        commits = is_last or self._rng.random() >= _ABORTS
        is_fenced = not is_last and self._rng.random() < _TAKE_OVERS
        following = producer
        asked = False
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(MOVES, b"%d" % number, partition=partition)
            self._send_offset(producer, number)
            if is_fenced:
                producer.flush(_CALL_S)
                following = self._new_producer()
            if commits:
                asked = True
                self._repeat(producer.commit_transaction)
                if is_fenced:
                    self._faults.append(f"transaction {number} was committed by a producer that had been fenced")
                self.outcomes[number] = Outcome.COMMITTED
            else:
                self._repeat(producer.abort_transaction)
                self.outcomes[number] = Outcome.ABORTED
        except _Stuck:
            self.outcomes[number] = Outcome.UNKNOWN if asked and not is_fenced else Outcome.ABORTED
            if following is producer:
                following = self._new_producer()
        except confluent_kafka.KafkaException as error:
            self.outcomes[number] = self._give_up(producer, error.args[0], asked and not is_fenced)
            if following is producer and error.args[0].fatal():
                following = self._new_producer()
        return following

    def _send_offset(self, producer: confluent_kafka.Producer, number: int) -> None:
        offsets = [TopicPartition(MOVES, 0, number + 1)]
        metadata = self._consumer.consumer_group_metadata()
        self._repeat(lambda timeout: producer.send_offsets_to_transaction(offsets, metadata, timeout))

    def _give_up(self, producer: confluent_kafka.Producer, error: confluent_kafka.KafkaError, asked: bool) -> Outcome:
        """After an error: the transaction is aborted if the client may still do so. What was never asked to be
        committed will not be."""
        if error.txn_requires_abort():
            try:
                self._repeat(producer.abort_transaction)
            except (confluent_kafka.KafkaException, _Stuck):
                return Outcome.UNKNOWN if asked else Outcome.ABORTED
            return Outcome.ABORTED
        return Outcome.UNKNOWN if asked else Outcome.ABORTED

    def _repeat(self, call: Callable[[float], object]) -> None:
        """As often as the client says that it may be. Raises _Stuck if it does not come back: librdkafka now and then
        forgets to send offsets when the coordinator of their group has moved, and asks no broker any more."""
        for _ in range(int(2 * DEADLINE_S / _CALL_S)):
            try:
                _apart(call).result(_STUCK_S)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise
            except TimeoutError:
                raise _Stuck from None
            else:
                return
        raise AssertionError("a call of the client fails for ever")


def violations(outcomes: dict[int, Outcome], read: list[Counter[int]]) -> list[str]:
    """The broken promises, `read` being how often each number is in each partition."""
    found = []
    for number in sorted({*outcomes, *itertools.chain(*read)}):
        counts = tuple(counts[number] for counts in read)
        outcome = outcomes.get(number)
        allowed = {
            Outcome.COMMITTED: {(1,) * len(read)},
            Outcome.ABORTED: {(0,) * len(read)},
            Outcome.UNKNOWN: {(0,) * len(read), (1,) * len(read)},
            None: set(),
        }[outcome]
        if counts not in allowed:
            found.append(f"transaction {number}, {outcome and outcome.value}, is read {counts} times")
    return found
