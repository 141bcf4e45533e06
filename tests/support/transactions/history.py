"""Tells a history to a broker, keeps the books, and compares what readers find with them.

After every history all transactions are ended, by their producers or by time, and then
    - readers of what is committed see exactly the records of committed transactions and those without one, in order,
      and each once; what became of a transaction whose end was not answered is the same everywhere
    - everything that was acknowledged is there, but for what retention, compaction and DeleteRecords took away
    - groups have the offsets of the last commit that counts
    - the last stable offset is the end of each partition
and all of that again after another start.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.transaction import transaction, transaction_state
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from tests.support.log.history import shorten
from tests.support.transactions.driver import Driver, NoAnswer
from tests.support.transactions.idempotent_producer import Idempotent
from tests.support.transactions.in_process_driver import InProcessDriver
from tests.support.transactions.ledger import Batch, Commit, Fate, Ledger, Transaction
from tests.support.transactions.readers import COMMITTED, UNCOMMITTED, Found, Read, read
from tests.support.transactions.steps import (
    FLEETING,
    GROUPS,
    IDEMPOTENT,
    OPERATIONS,
    PARTITIONS,
    PLAIN,
    PRODUCERS,
    TABLE,
    TOPICS,
    Plan,
    Step,
)
from tests.support.transactions.transaction_requests import DIALECTS
from tests.support.transactions.transactional_producer import TransactionalProducer
from tests.support.transactions.world import GROUP, World

_KEYS = 4
_FETCH_VERSIONS = (4, 7, 11, 12)


class History:
    """One history; `play` tells it."""

    def __init__(self, driver: Driver, plan: Plan) -> None:
        self.driver = driver
        self.plan = plan
        self.ledger = Ledger()
        self.world = World(driver, self.ledger, _key_of, plan.expires_ms)
        self.idempotent = Idempotent(IDEMPOTENT, self.world)
        dialects = dict(plan.dialects)
        self.producers = {
            name: TransactionalProducer(name, transactional_id, DIALECTS[dialects[name]], plan.timeout_ms, self.world)
            for name, transactional_id in PRODUCERS.items()
        }
        self.seen: dict[TopicPartition, dict[int, Found]] = {each: {} for each in PARTITIONS}
        self.read_up_to: dict[TopicPartition, tuple[int, int]] = {}  # the greatest stable offset and high watermark
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self.polled: dict[tuple[str, TopicPartition], list[Found]] = {}
        self.skipped: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = {}
        self.committed: dict[TopicPartition, list[bytes]] = {}  # values at the end, in their order
        self.offsets: dict[tuple[str, TopicPartition], int] = {}  # of groups, at the end
        self.checks = 0

    def play(self) -> None:
        self._until_answered(partial(self._create, TOPICS))
        for step in self.plan.steps:
            self._up()
            try:
                self.step(step)
            except NoAnswer:
                pass
            except Exception as error:
                raise AssertionError(f"at {step}: {error}") from error
        self.finish()

    def step(self, step: Step) -> None:
        name, *arguments = step
        if name in OPERATIONS:
            self.world.has_refused |= name == "refuse"
            self.driver.operate(name, *arguments)
        else:
            getattr(self, name)(*arguments)

    def _up(self) -> None:
        if self.driver.is_down:
            self.driver.start()

    def _until_answered(self, deed: Callable[[], Any]) -> None:
        while True:
            self._up()
            try:
                deed()
            except NoAnswer:
                continue
            return

    def _create(self, wanted: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        topics = [
            CreatableTopic(
                name=name, num_partitions=count, replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
            )
            for name, (count, config) in wanted.items()
        ]  # fmt: skip
        answer = self.driver.ask("admin", CreateTopicsRequest(topics=topics, timeout_ms=10_000), 4)
        errors = {topic.error_code for topic in answer.topics}
        assert errors <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, answer

    # steps

    def send(self, by: str, topic: str, partition: int, count: int, how: str) -> None:
        place = topic, partition
        if by == IDEMPOTENT:
            self.idempotent.send(place, count, how=how)
        elif by == PLAIN:
            batch = self.world.make_batch(by, place, count)
            error = self.world.produce(by, batch, 9, how=how)
            assert error == ErrorCode.NONE, f"{batch} got {error.name}"
        else:
            self.producers[by].send(place, count, how=how)

    def send_again(self, by: str, topic: str, partition: int) -> None:
        producer = self.idempotent if by == IDEMPOTENT else self.producers[by]
        producer.send_again((topic, partition))

    def commit_offset(self, by: str, group: str, topic: str, partition: int, how: str) -> None:
        self.producers[by].commit_offset(group, (topic, partition), how=how)

    def end(self, by: str, commit: bool, how: str) -> None:
        self.producers[by].end(commit, how=how)

    def init(self, by: str) -> None:
        self.producers[by].init()

    def zombie(self, by: str, what: str, topic: str, partition: int, group: str) -> None:
        self.producers[by].zombie(what, (topic, partition), group)

    def wait(self, duration_ms: int) -> None:
        self.driver.wait(duration_ms)

    def deliver(self) -> None:
        self.driver.deliver()

    def send_fleeting(self, by: str, count: int) -> None:
        self._create({FLEETING: (1, {})})
        self.producers[by].send((FLEETING, 0), count)

    def delete_fleeting(self) -> None:
        request = DeleteTopicsRequest(topic_names=[FLEETING], timeout_ms=10_000)
        answer = self.driver.ask("admin", request, 3)
        error = answer.responses[0].error_code
        assert error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), answer
        for producer in self.producers.values():
            producer.forget(FLEETING)

    def commit_plain(self, group: str, topic: str, partition: int) -> None:
        self.world.find_coordinator(group, group, GROUP)
        commit = Commit(self.ledger.next_number(), None)
        self.ledger.commit(group, (topic, partition), commit)
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=commit.offset)
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])]
        )  # fmt: skip
        answer = self.world.ask(group, request, 7, lambda answer: [answer.topics[0].partitions[0].error_code])
        assert not answer.topics[0].partitions[0].error_code, answer
        commit.fate = Fate.TAKEN

    def fetch_offsets(self, group: str, stable: bool) -> None:
        for partition, (offset, error) in self._offsets(group, stable=stable).items():
            key = group, partition
            if error == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert stable and any(each.transaction for each in self.ledger.commits[key]), f"{key} is not unstable"
                continue
            assert not error, f"{key}: {error}"
            allowed = self.ledger.offsets_allowed(key, is_settled=stable)
            assert offset in allowed, f"{key} is at {offset}, and may be at {sorted(allowed)}"
            taken = [each for each in self.ledger.commits.get(key, ()) if each.fate is Fate.TAKEN]
            pending = any(self._is_open(each.transaction) for each in taken)
            assert not (stable and pending), f"{key} is at {offset} and said to be stable, with an open transaction"

    def _is_open(self, transaction: Transaction | None) -> bool:
        """Whether it must be open."""
        if transaction is None or transaction.asked or transaction.is_left:
            return False
        producer = self.producers[transaction.producer]
        is_owner = self.world.rivals[producer.transactional_id].owner is producer
        return is_owner and self.driver.now_ms() - transaction.begun_ms < transaction.timeout_ms

    def _offsets(self, group: str, *, stable: bool) -> dict[TopicPartition, tuple[int, int]]:
        self.world.find_coordinator(group, group, GROUP)
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=list(range(n))) for name, (n, _) in TOPICS.items()
        ]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
        answer = self.world.ask(group, request, 7, lambda answer: [answer.error_code])
        return {
            (topic.name, one.partition_index): (one.committed_offset, one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }

    def delete_records(self, topic: str, partition: int, share: int) -> None:
        found = read(self.driver, "admin", (topic, partition), UNCOMMITTED)
        offset = found.begin_offset + (found.high_watermark - found.begin_offset) * share // 100
        one = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=1000)
        self.driver.ask("admin", request, 1)

    def poll(self, reader: str, topic: str, partition: int, max_bytes: int) -> None:
        place = topic, partition
        self._poll(reader, place, max_bytes=max_bytes, fetches=1)

    def _poll(self, reader: str, place: TopicPartition, **how: int) -> None:
        key = reader, place
        position = self.positions.get(key, 0)
        version = _FETCH_VERSIONS[len(self.ledger.transactions) % len(_FETCH_VERSIONS)]
        found = read(self.driver, reader, place, COMMITTED, offset=position, version=version, **how)
        if found.begin_offset > position:
            self.skipped.setdefault(key, []).append((position, found.begin_offset))
        self.polled.setdefault(key, []).extend(found.records)
        self.positions[key] = found.position

    # what must be so

    def check(self) -> None:
        for place in PARTITIONS:
            self._check_partition(place, is_settled=False)

    def finish(self) -> None:
        """Some producers end what they have begun, others do not: time does it for them."""
        self.driver.operate("heal")
        for number, producer in enumerate(self.producers.values()):
            if number % 2:
                self._until_answered(partial(producer.end, True))
        self._settle()
        self._check_everything()
        self.driver.operate("restart")
        self._settle()
        self._check_everything()

    def _settle(self) -> None:
        end_ms = self.driver.now_ms() + self.driver.settles_ms
        while self.driver.is_down or self.driver.now_ms() < end_ms:
            self._up()
            self.driver.wait(max(1, end_ms - self.driver.now_ms()))

    def _check_everything(self) -> None:
        self._until_answered(self._check_settled)

    def _check_settled(self) -> None:
        for place in PARTITIONS:
            self._check_partition(place, is_settled=True)
        for group in GROUPS:
            for partition, (offset, error) in self._offsets(group, stable=True).items():
                key = group, partition
                assert not error, f"{key}: {ErrorCode(error).name} though every transaction has ended"
                allowed = self.ledger.offsets_allowed(key, is_settled=True)
                assert offset in allowed, f"{key} is at {offset}, and may be at {sorted(allowed)}"
                self.ledger.see_offset(key, offset)
                self.offsets[key] = offset
        for reader in ("r0", "r1"):
            for place in PARTITIONS:
                self._poll(reader, place)
                self._check_polled(reader, place)

    def _check_partition(self, place: TopicPartition, *, is_settled: bool) -> None:
        self.checks += 1
        everything = read(self.driver, "all", place, UNCOMMITTED)
        max_bytes = 300 if self.checks % 2 else 1 << 20
        version = _FETCH_VERSIONS[self.checks % len(_FETCH_VERSIONS)]
        committed = read(self.driver, "committed", place, COMMITTED, max_bytes=max_bytes, version=version)
        if committed.begin_offset != everything.begin_offset:
            return  # retention was at work in between
        ends = committed.stable_offset, committed.high_watermark
        before = self.read_up_to.get(place, (0, 0))
        assert ends >= before, f"{place} ended at {before} (last stable offset, high watermark), and now at {ends}"
        self.read_up_to[place] = ends
        if is_settled:
            self.committed[place] = [record.value for record in committed.records]
            assert ends[0] == ends[1], (
                f"{place} is stable up to {ends[0]} of {ends[1]}, and every transaction has ended"
            )
        self._check_taken(place, everything)
        self._check_committed(place, everything, committed)

    def _check_taken(self, place: TopicPartition, everything: Read) -> None:
        """Checks that each acknowledged record is there once, in its place; nothing is there that was refused."""
        numbers: dict[str, int] = {}
        for record in everything.records:
            by, number = _by_and_number(record.value)
            assert by == PLAIN or number > numbers.get(by, 0), f"{place} has {record.value!r} out of its order"
            numbers[by] = number
        at = {record.offset: record.value for record in everything.records}
        values = [record.value for record in everything.records]
        assert len(set(values)) == len(values), f"{place} has duplicates: {values}"
        for value in values:
            batch = self.ledger.batch_of(value)
            assert batch.partition == place and batch.fate is not Fate.REFUSED, f"{place} has {batch}"
        for batch in self.ledger.batches.get(place, ()):
            if batch.fate is not Fate.TAKEN or batch.offset is None:
                continue
            for offset, value in enumerate(batch.values, batch.offset):
                if offset < everything.begin_offset or at.get(offset) == value:
                    continue
                assert offset not in at, f"{place} has {at[offset]!r} at {offset}, in the place of {batch}"
                assert self._is_superseded(place, value, batch, everything), f"{place} has lost {value!r} of {batch}"

    def _is_superseded(self, place: TopicPartition, value: bytes, batch: Batch, everything: Read) -> bool:
        """Compaction may take a record when its key has a later one that counts, or if its transaction was aborted."""
        if place[0] != TABLE:
            return False
        if batch.transaction is not None and batch.transaction.commits is not True:
            return True
        key = _key_of_value(place[0], value)
        return any(
            record.key == key and record.offset > (batch.offset or 0) and self._commits(record) is not False
            for record in everything.records
        )

    def _commits(self, record: Found) -> bool | None:
        transaction = self.ledger.batch_of(record.value).transaction
        return True if transaction is None else transaction.commits

    def _check_committed(self, place: TopicPartition, everything: Read, committed: Read) -> None:
        found = {record.offset: record for record in committed.records}
        stable = [record for record in everything.records if record.offset < committed.stable_offset]
        for record in stable:
            batch = self.ledger.batch_of(record.value)
            is_visible = record.offset in found
            if batch.transaction is None:
                assert is_visible, f"{place} hides {batch}"
            else:
                batch.transaction.see(is_visible, f"{place} at {record.offset}")
        extra = set(found) - {record.offset for record in stable}
        assert not extra, f"{place} shows {extra} to readers of what is committed only"
        for record in everything.records:
            if record.offset >= committed.stable_offset:
                break
            batch = self.ledger.batch_of(record.value)
            open_before = f"{place} is stable up to {committed.stable_offset}, with {batch} before it"
            assert not self._is_open(batch.transaction), open_before
        seen = self.seen[place]
        if place[0] != TABLE:
            for offset, record in seen.items():
                if offset >= committed.begin_offset:
                    assert offset in found and found[offset].value == record.value, f"{place} lost {record}"
        seen.update(found)

    def _check_polled(self, reader: str, place: TopicPartition) -> None:
        """A reader that went on bit by bit has seen every committed record once, but for what it came too late for."""
        key = reader, place
        polled = self.polled.get(key, [])
        offsets = [record.offset for record in polled]
        assert offsets == sorted(set(offsets)), f"{reader} saw {offsets} of {place}"
        for record in polled:
            assert self._commits(record) is not False, (
                f"{reader} saw {record.value!r} of {place}, which is not committed"
            )
        if place[0] == TABLE:
            return
        gaps = self.skipped.get(key, [])
        missed = [
            record.value for offset, record in self.seen[place].items()
            if offset not in set(offsets) and not any(first <= offset < last for first, last in gaps)
        ]  # fmt: skip
        assert not missed, f"{reader} has never seen {missed} of {place}"


def _key_of(topic: str, number: int) -> bytes | None:
    return b"k%d" % (number % _KEYS) if topic == TABLE else None


def _key_of_value(topic: str, value: bytes) -> bytes | None:
    return _key_of(topic, _by_and_number(value)[1])


def _by_and_number(value: bytes) -> tuple[str, int]:
    by, _, number = value.decode().rpartition(":")
    return by, int(number)


# one history in this process


def run(root: str, plan: Plan, more_settings: Mapping[str, str] | None = None) -> History:
    """Tell one history to a broker of its own below `root`."""
    directory = f"{root}/history-{plan.seed}"
    shutil.rmtree(directory, ignore_errors=True)
    logging.disable(logging.CRITICAL)
    try:
        settings = dict(more_settings or {})
        if plan.flushes:
            settings["log.flush.interval.messages"] = "1"
        if plan.expires_ms is not None:
            settings["transactional.id.expiration.ms"] = str(plan.expires_ms)
            settings["transaction.remove.expired.transaction.cleanup.interval.ms"] = "20000"
        with _epochs_up_to(plan.last_epoch):
            driver = InProcessDriver(directory, settings, plan.seed, is_shared=plan.is_shared)
            try:
                history = History(driver, plan)
                history.play()
            finally:
                driver.close()
        return history
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _epochs_up_to(last_epoch: int | None) -> Iterator[None]:
    """Producer ids are used up soon."""
    with ExitStack() as patches:
        if last_epoch is not None:
            for module in (transaction, transaction_state):
                patches.enter_context(patch.object(module, "LAST_EPOCH", last_epoch))
                patches.enter_context(patch.object(module, "EPOCH_MAX", last_epoch + 1))
        yield


def tell(root: str, plan: Plan) -> str:
    """The shortest form of a history that fails."""

    def error_of(steps: list[Step]) -> str | None:
        try:
            run(root, plan._replace(steps=tuple(steps)))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    steps = shorten(list(plan.steps), lambda fewer: error_of(fewer) is not None)
    told = "\n".join(f"        {step!r}," for step in steps)
    return f"{plan._replace(steps=())}\n{told}\n    {error_of(steps)}"
