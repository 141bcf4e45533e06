"""A transactional producer as Kafka's clients are: what is not answered is sent again before anything else, a refusal
for good ends the transaction, and a producer that was fenced begins anew.

Every answer is held against what it may be: a producer that nobody has replaced, and whose transaction has not timed
out, is never refused; one that was replaced is never obeyed.
"""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition
from tests.support.transactions.ledger import Batch, Commit, Fate, Transaction
from tests.support.transactions.steps import WAITS
from tests.support.transactions.transaction_requests import Dialect, TransactionRequests
from tests.support.transactions.world import GROUP, OK, TRANSACTION, Rivals, World


class TransactionalProducer:
    """A producer with a transactional id.

    `unanswered` are the batches, and `unanswered_commits` the offsets, that must be sent again; `ending` is the end of
    the transaction that was asked for, None if none was.
    """

    def __init__(self, name: str, transactional_id: str, dialect: Dialect, timeout_ms: int, world: World) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.dialect = dialect
        self.requests = TransactionRequests(transactional_id, dialect, world)
        self.timeout_ms = timeout_ms
        self.world = world
        self.ids: ProducerIdAndEpoch | None = None
        self.past: list[ProducerIdAndEpoch] = []
        self.transaction: Transaction | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self._begin_anew()
        self._rivals = world.rivals.setdefault(transactional_id, Rivals())

    def _begin_anew(self) -> None:
        self.transaction = None
        self.added: set[TopicPartition | str] = set()
        self.tried: set[TopicPartition | str] = set()
        self.unanswered: dict[TopicPartition, Batch] = {}
        self.last: dict[TopicPartition, Batch] = {}
        self.unanswered_commits: list[tuple[str, TopicPartition, Commit]] = []
        self.ending: bool | None = None
        self.must_bump = self.has_tried_to_bump = False
        self.was_answered = False  # some of the transaction

    # the application's calls. Each raises NoAnswer.

    def init(self) -> None:
        """Begin anew, as after a start of the application."""
        self._leave()
        self._init(None)

    def send(self, partition: TopicPartition, count: int, *, how: str = WAITS) -> None:
        if not self._is_ready() or not self._resend(partition):
            return
        transaction = self._transaction()
        if not self._add(partition):
            return
        assert self.ids is not None
        sequence = self.sequences.get(partition, 0)
        batch = self.world.make_batch(
            self.name, partition, count, transaction, base_sequence=sequence, **self.ids._asdict()
        )
        self.sequences[partition] = sequence + count
        self._produce(batch, how=how)

    def send_again(self, partition: TopicPartition) -> None:
        """The last batch once more, within its transaction."""
        if self.transaction is None or self.ending is not None or partition not in self.last:
            return
        batch = self.last[partition]
        if partition not in self.unanswered:
            error = self.requests.produce(self.name, batch)
            if error != OK:
                self._refused(error, "a repeated batch")

    def commit_offset(self, group: str, partition: TopicPartition, *, how: str = WAITS) -> None:
        if not self._is_ready():
            return
        transaction = self._transaction()
        if not self._add(group):
            return
        commit = Commit(self.world.ledger.next_number(), transaction)
        self.world.ledger.commit(group, partition, commit)
        self._commit_offset(group, partition, commit, how=how)

    def end(self, commit: bool, *, how: str = WAITS) -> None:
        if self.transaction is None or not self._is_ready() or self.transaction is None:
            return
        if commit and not self._flush():
            return
        if not self.added and not (self.dialect.adds and self.tried and self._add(min(self.tried, key=str))):
            return
        self.ending = commit
        self._end(how=how)

    def forget(self, topic: str) -> None:
        """The topic was deleted: nothing of it has to be sent again."""
        for place in [each for each in self.unanswered if each[0] == topic]:
            del self.unanswered[place]
        for place in [each for each in self.sequences if each[0] == topic]:
            del self.sequences[place]
            self.last.pop(place, None)

    def zombie(self, what: str, partition: TopicPartition, group: str) -> None:
        """A process that was replaced long ago goes on where it was."""
        current = self._rivals.ids
        stale = [ids for ids in self.past if current is not None and ids < current]
        if not stale:
            return
        ids = stale[-1]
        client = f"{self.name}-zombie"
        world = self.world
        sent: Batch | Commit | None = None
        if what == "send":
            transaction = Transaction(-1, client, ids, 0, 0)
            sequence = self.sequences.get(partition, 0)
            sent = batch = world.make_batch(client, partition, 1, transaction, base_sequence=sequence, **ids._asdict())
            batch.fate = Fate.REFUSED
            error = self.requests.produce(client, batch)
        elif what == "add":
            error = self.requests.add_partition(client, ids, partition)
        elif what == "commit_offset":
            world.find_coordinator(client, group, GROUP)
            sent = commit = Commit(world.ledger.next_number(), None, Fate.REFUSED)
            world.ledger.commit(group, partition, commit)
            error = self.requests.commit_offset(client, ids, group, partition, commit)
        else:
            self.requests.end(client, ids, commit=True)  # the end of another time may be confirmed again
            return
        ended = self._ended_by_itself(ids)
        if error == OK and sent is not None and ended is not None and world.has_refused:
            # a log that has refused the marker so far has the transaction still open, and so has Kafka's
            sent.transaction, sent.fate = ended, Fate.SENT
            return
        assert error != OK, f"{client} with {tuple(ids)} was obeyed ({what}), where {current} is current"

    # how it does it

    def _ended_by_itself(self, ids: ProducerIdAndEpoch) -> Transaction | None:
        """The last transaction of these ids, if nothing but its end has made them stale (KIP-890)."""
        if self._rivals.ids != ids._replace(producer_epoch=ids.producer_epoch + 1):
            return None
        of_ids = [one for one in self.world.ledger.transactions if one.producer == self.name and one.ids == ids]
        return of_ids[-1] if of_ids and of_ids[-1].outcome is not None else None

    def _is_ready(self) -> bool:
        """It has its ids, and nothing to finish."""
        if self.ending is not None:
            self._end(how=WAITS)
        if self.ids is not None and self.must_bump:
            self._init(self.ids if self.dialect.init >= 3 else None)
        elif self.ids is None:
            self._init(None)
        return self.ids is not None

    def _init(self, expected: ProducerIdAndEpoch | None) -> None:
        rivals = self._rivals
        was_owner = rivals.owner is self
        if not was_owner or expected is None:
            rivals.owner = None
        if expected is None:
            self._remember()
            self._begin_anew()
            self.ids = None
        self.world.find_coordinator(self.name, self.transactional_id, TRANSACTION)
        now_ms = self.world.driver.now_ms()
        is_retry, self.has_tried_to_bump = self.has_tried_to_bump, expected is not None
        answer = self.requests.init(self.name, self.timeout_ms, expected)
        if answer.error_code:
            # after a restart the coordinator does not know that it is a retry, and nor does Kafka's
            may_fail = expected is not None and (not was_owner or is_retry or self._is_forgotten())
            assert may_fail, f"{self.name} cannot begin: {answer}"
            self._fail()
            return
        self._remember()
        self._begin_anew()
        self.sequences.clear()
        self.ids = rivals.ids = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        rivals.owner = self
        rivals.used_ms = now_ms

    def _transaction(self) -> Transaction:
        if self.transaction is None:
            assert self.ids is not None
            ledger = self.world.ledger
            self.transaction = Transaction(
                len(ledger.transactions), self.name, self.ids, self.world.driver.now_ms(), self.timeout_ms
            )
            ledger.transactions.append(self.transaction)
        return self.transaction

    def _add(self, what: TopicPartition | str) -> bool:
        """Add a partition or a group to the transaction, if that is the client's task."""
        if what in self.added:
            return True
        now_ms = self.world.driver.now_ms()
        self.tried.add(what)
        if self.dialect.adds:
            assert self.ids is not None
            if isinstance(what, str):
                self.world.find_coordinator(self.name, what, GROUP)
                error = self.requests.add_offsets(self.name, self.ids, what)
            else:
                error = self.requests.add_partition(self.name, self.ids, what)
            if error != OK:
                self._refused(error, f"adding {what}")
                return False
        elif isinstance(what, str):
            self.world.find_coordinator(self.name, what, GROUP)
        self.added.add(what)
        if self.dialect.adds:
            self._rivals.used_ms = now_ms
        return True

    def _resend(self, partition: TopicPartition) -> bool:
        batch = self.unanswered.get(partition)
        return batch is None or self._produce(batch, how=WAITS)

    def _flush(self) -> bool:
        """Everything of the transaction is answered."""
        return all(self._produce(batch, how=WAITS) for batch in list(self.unanswered.values())) and all(
            self._commit_offset(*unanswered, how=WAITS) for unanswered in list(self.unanswered_commits)
        )

    def _produce(self, batch: Batch, *, how: str) -> bool:
        partition = batch.partition
        self.unanswered[partition] = batch
        was_sent = batch in self.last.values()
        self.last[partition] = batch
        error = self.requests.produce(self.name, batch, how=how)
        if error == OK:
            assert not self._is_replaced(), f"{self.name} was replaced, and {batch} was taken"
            del self.unanswered[partition]
            self.was_answered = True
            return True
        if not was_sent:
            batch.fate = Fate.REFUSED
        self._refused(error, str(batch))
        return False

    def _commit_offset(self, group: str, partition: TopicPartition, commit: Commit, *, how: str) -> bool:
        assert self.ids is not None
        unanswered = group, partition, commit
        was_sent = unanswered in self.unanswered_commits
        if not was_sent:
            self.unanswered_commits.append(unanswered)
        else:
            self.world.ledger.commit(group, partition, commit)  # it may stand in the log once more
        error = self.requests.commit_offset(self.name, self.ids, group, partition, commit, how=how)
        if error == OK:
            assert not self._is_replaced(), f"{self.name} was replaced, and its offset was taken"
            commit.fate = Fate.TAKEN
            self.unanswered_commits.remove(unanswered)
            self.was_answered = True
            return True
        if not was_sent:
            commit.fate = Fate.REFUSED
        self._refused(error, "an offset")
        return False

    def _end(self, *, how: str) -> None:
        transaction, commit = self.transaction, self.ending
        assert transaction is not None and commit is not None and self.ids is not None
        was_asked = commit in transaction.asked
        transaction.asked.add(commit)
        now_ms = self.world.driver.now_ms()
        answer = self.requests.end(self.name, self.ids, commit=commit, how=how)
        if answer.error_code:
            if not was_asked:
                transaction.asked.discard(commit)
            if answer.error_code == ErrorCode.PRODUCER_FENCED and not commit and self._may_be_empty():
                self._fail()
            else:
                self._refused(ErrorCode(answer.error_code), f"the end of {transaction}")
            return
        assert not self._is_replaced() or was_asked, f"{self.name} was replaced, and has ended {transaction}"
        transaction.outcome = commit
        self._rivals.used_ms = now_ms
        must_bump = bool(self.unanswered) or (not commit and bool(self.unanswered_commits))
        sequences = self.sequences
        self._begin_anew()
        self.sequences = sequences
        if answer.producer_id >= 0 and (answer.producer_id, answer.producer_epoch) != self.ids:
            self._remember()
            self.sequences.clear()
            self.ids = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            if self._rivals.owner is self:
                self._rivals.ids = self.ids
        else:
            self.must_bump = must_bump

    def _may_be_empty(self) -> bool:
        """Whether the broker may have nothing of the transaction yet, and still end the last one: then Kafka 4, too,
        takes the producer for a fenced one."""
        return not self.dialect.adds and not self.was_answered

    # refusals

    def _is_replaced(self) -> bool:
        """Another one has the later epoch."""
        return self._rivals.owner not in (None, self)

    def _refused(self, error: ErrorCode, what: str) -> None:
        """A refusal for good, which must have a reason."""
        transaction = self.transaction
        is_late = False
        if transaction is not None:
            is_late = self.world.driver.now_ms() - transaction.begun_ms >= transaction.timeout_ms
        has_reason = self._rivals.owner is not self or is_late or self._is_forgotten()
        assert has_reason, f"{self.name} {self.ids} got {error.name} for {what}"
        self._fail()

    def _is_forgotten(self) -> bool:
        """Whether the transactional id may have expired."""
        expires_ms, now_ms = self.world.expires_ms, self.world.driver.now_ms()
        return expires_ms is not None and now_ms - self._rivals.used_ms >= expires_ms

    def _fail(self) -> None:
        self._leave()
        self._remember()
        self._begin_anew()
        self.ids = None

    def _leave(self) -> None:
        if self.transaction is not None:
            self.transaction.is_left = True

    def _remember(self) -> None:
        if self.ids is not None and self.ids not in self.past:
            self.past.append(self.ids)
