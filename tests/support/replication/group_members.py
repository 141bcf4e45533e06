"""A stock member of a consumer group that commits what it reads before it counts it, and the check of all of them.

Offsets are committed in the callback of a revocation too, and the callbacks are called where the member polls: no
partition moves on while its records wait for their commit. So each record is committed by one member, once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.coordinator.group.record_codec import OffsetKey, read_key, read_offset_value
from tests.support.replication.live_cluster import LOG, QUICK, Reachable, new_consumer, read_all, read_messages
from tests.support.wait import DEADLINE_S, until

BATCH_MAX = 500  # records that wait for one commit
CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
REFUSED = {  # until the member has been assigned its partitions again, the same ones perhaps
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
}

WITHOUT_OFFSETS = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE}
"""Errors with which librdkafka 2.16 gives up to ask for the committed offsets of new partitions, which it then does not
read: the answer of a coordinator that has moved has an error of the group alone, as in Kafka."""

UNCOMPACTED = {"log.cleaner.min.compaction.lag.ms": str(1 << 40)}
"""Of brokers, where refused commits are looked for in `stored_commits`: compaction would remove all but the latest."""

Place = tuple[int, int]
"""Of a record in the topic: partition and offset."""


class Committing(Protocol):
    """A member of any kind, and the records that it committed; see `GroupMember`."""

    @property
    def committed(self) -> Sequence[Place]: ...

    @property
    def unsure(self) -> Set[Place]: ...

    def check(self) -> None: ...


class Fenced(Exception):
    """The client has ended by itself. A member of the consumer protocol does so when it was expelled and its group is a
    classic one meanwhile, in Apache Kafka's group as well."""


class GroupMember(threading.Thread):
    """One member, which reads from its creation to `leave`. `committed`: the records whose commit was acknowledged, in
    this order; `unsure`: those of a refused commit, which may be in the log: the client may have asked before, without
    an answer."""

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        topic: str,
        settings: Mapping[str, Any] = CONSUMER,
        *,
        may_be_fenced: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self._may_be_fenced = may_be_fenced
        self.committed: list[Place] = []
        self.unsure: set[Place] = set()
        self.failure: BaseException | None = None
        self._topic = topic
        self._ends = threading.Event()
        self._held: dict[int, list[int]] = {}  # read and not committed yet
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = Consumer({**common, **QUICK, **settings}, logger=LOG)
        self._subscribe()
        self.start()

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_revoke=self._on_revoke, on_lost=self._on_lost)

    def run(self) -> None:
        try:
            batch = 1
            was_refused = False
            while not self._ends.is_set():
                self._take(self._consumer.poll(0.1))
                while self._held and self._held_count() < batch:
                    message = self._consumer.poll(0)
                    if message is None:
                        break
                    self._take(message)
                # many small commits, and a long backlog is soon read all the same
                batch = min(2 * batch, BATCH_MAX) if self._held_count() >= batch else 1
                was_refused = self._commit()
            if was_refused:  # a commit in `close`, without a coordinator that knows the member, may never be answered
                self._held.clear()
            self._consumer.close()
        except Fenced as failure:
            self.unsure.update((partition, offset) for partition, held in self._held.items() for offset in held)
            self._consumer.close()
            self.failure = None if self._may_be_fenced else failure
        except BaseException as failure:  # for `check`
            self.failure = failure

    def _held_count(self) -> int:
        return sum(map(len, self._held.values()))

    @property
    def held(self) -> dict[int, int]:
        """The count of records in each partition that wait for their commit, for a message. The client is not asked
        for its assignment: it did not always answer."""
        return {partition: len(offsets) for partition, offsets in self._held.items()}

    def check(self) -> None:
        """Raises what ended the member early."""
        if self.failure is not None:
            raise self.failure

    def leave(self) -> None:
        """Begin to leave; `await_end` waits for the end."""
        self._ends.set()

    def await_end(self, seconds: float = DEADLINE_S) -> None:
        self.join(seconds)
        assert not self.is_alive(), f"a member does not leave; it holds {self._held}"
        self.check()

    def _take(self, message: confluent_kafka.Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise Fenced(error)
            assert error.code() != KafkaError._AUTO_OFFSET_RESET, error
            if error.code() in WITHOUT_OFFSETS:
                self._consumer.unsubscribe()
                self._subscribe()
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self._held.setdefault(partition, []).append(offset)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._held.pop(each.partition, None)

    def _commit(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Commit what is held, of these partitions alone if there are any: each has its answer when this returns. True
        if some is held still, for it was refused: a member that keeps a partition commits there later. (It does not
        seek back: beside incremental rebalances librdkafka 2.16 was seen to read on from where the partition had once
        been assigned.)
        """
        revoked = None if partitions is None else {each.partition for each in partitions}
        is_refused = False
        while not is_refused and (
            held := {p: offsets for p, offsets in self._held.items() if revoked is None or p in revoked}
        ):
            asked = [TopicPartition(self._topic, partition, max(offsets) + 1) for partition, offsets in held.items()]
            for partition, code in self._answers(asked).items():
                if code == KafkaError.NO_ERROR:
                    self.committed += [(partition, offset) for offset in self._held.pop(partition)]
                elif code in REFUSED:
                    self.unsure.update((partition, offset) for offset in held[partition])
                    is_refused = revoked is None  # the next poll tells whether it keeps the partition
                    if not is_refused:
                        del self._held[partition]  # the next owner reads them again
        return is_refused

    def _answers(self, asked: list[TopicPartition]) -> dict[int, int]:
        """The error of each partition."""
        try:
            answered = self._consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as refusal:
            error = refusal.args[0]
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise Fenced(error) from refusal
            return dict.fromkeys((each.partition for each in asked), error.code())
        return {each.partition: each.error.code() if each.error else KafkaError.NO_ERROR for each in answered}


def await_progress(members: Iterable[Committing], count: int = 5) -> None:
    """Wait until each of them has committed so many more. Raises if one of them has failed."""
    for member, before in [(member, len(member.committed)) for member in members]:

        def has_progressed(member: Committing = member, wanted: int = before + count) -> bool:
            member.check()
            return len(member.committed) >= wanted

        until(has_progressed, "a member to commit")


def await_all(
    members: Collection[Committing], written: Collection[Place], stored: Callable[[], Mapping[int, list[int]]]
) -> None:
    """Wait until every record is committed, as far as members know; what they do not know is in `stored`, the
    commits of each partition. Raises if a member has failed."""
    wanted = set(written)

    def missing() -> set[Place]:
        for member in members:
            member.check()
        left = wanted.difference(*(member.committed for member in members))
        unsure = {place for member in members for place in member.unsure}
        if not left or not left <= unsure:
            return left
        commits = stored()
        return {place for place in left if not _is_covered(place, unsure, commits)}

    until(lambda: not missing(), lambda: f"{len(wanted)} commits; missing {sorted(missing())[:10]} of {len(missing())}")


def _is_covered(place: Place, unsure: Set[Place], commits: Mapping[int, list[int]]) -> bool:
    """Whether the first commit behind a record is one that a member is unsure of."""
    partition, offset = place
    behind = next((one for one in commits.get(partition, []) if one > offset), None)
    return behind is not None and (partition, behind - 1) in unsure


def check_each_once(members: Iterable[Committing], written: Collection[Place]) -> None:
    """Raises AssertionError if one was committed twice, or was never written."""
    counts = Counter(place for member in members for place in member.committed)
    twice = {place: count for place, count in counts.items() if count > 1}
    assert not twice, f"{len(twice)} records committed more than once: {sorted(twice.items())[:10]}"
    assert counts.keys() <= set(written), f"never written: {sorted(counts.keys() - set(written))[:10]}"


def written_places(cluster: Reachable, topic: str, partitions: int) -> set[Place]:
    """Every record that is in the topic."""
    return {(index, offset) for index in range(partitions) for offset in read_all(cluster, topic, index)}


def stored_commits(cluster: Reachable, group: str, topic: str) -> dict[int, list[int]]:
    """The offsets of a group in `__consumer_offsets` by partition of the topic, from the first commit on."""
    found: dict[int, list[int]] = {}
    with contextlib.closing(new_consumer(cluster)) as consumer:
        count = len(
            consumer.list_topics(GROUP_METADATA_TOPIC, timeout=DEADLINE_S).topics[GROUP_METADATA_TOPIC].partitions
        )
    for index in range(count):
        for message in read_messages(cluster, GROUP_METADATA_TOPIC, index):
            key, value = read_key(message.key() or b""), message.value()
            if isinstance(key, OffsetKey) and key[:2] == (group, topic):
                assert isinstance(value, bytes), f"the offset of {key} was removed"
                found.setdefault(key.partition, []).append(read_offset_value(value).offset)
    return found


def check_stored_commits(stored: Mapping[int, list[int]], members: Iterable[Committing]) -> None:
    """Raises AssertionError if a committed offset went backwards, or an acknowledged one is missing."""
    for partition, offsets in stored.items():
        backwards = [pair for pair in itertools.pairwise(offsets) if pair[0] > pair[1]]
        assert not backwards, f"partition {partition}: committed offsets went backwards: {backwards[:5]}"
    acknowledged = Counter[int]()
    for member in members:
        for partition, offset in member.committed:
            acknowledged[partition] = max(acknowledged[partition], offset + 1)
    lost = {p: offset for p, offset in acknowledged.items() if max(stored.get(p, [0])) < offset}
    assert not lost, f"acknowledged commits are missing: {lost}; stored { ({p: stored.get(p, [])[-1:] for p in lost}) }"
